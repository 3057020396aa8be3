# Compares what the steps of a search keep in executables whose keys and values are in f32, bf16 and int8.
# Usage: kept_bytes.py [--type TYPE] F32 BF16 INT8
import json
import subprocess
import sys

arguments = sys.argv[1:]
what = "decoding"
if arguments[0] == "--type":
    what, arguments = f"decoding in {arguments[1]}", arguments[2:]
kept = [json.loads(subprocess.run([exe, "info", "--json"], check=True, capture_output=True, text=True).stdout)["memory"][what]["held_bytes"]
        for exe in arguments]
features = 12  # of a head
expected = [1, 1 / 2, (features + 4) / (4 * features)]
for bytes, share in zip(kept, expected):
    assert abs(bytes / kept[0] - share) < 1e-6, (kept, expected)
