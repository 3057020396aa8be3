# Compares what the steps of a search keep in executables whose keys and values are in f32, bf16 and int8.
# Usage: kept_bytes.py F32 BF16 INT8
import json
import subprocess
import sys

kept = [json.loads(subprocess.run([exe, "info", "--json"], check=True, capture_output=True, text=True).stdout)["memory"]["decoding"]["held_bytes"]
        for exe in sys.argv[1:]]
features = 12  # of a head
expected = [1, 1 / 2, (features + 4) / (4 * features)]
for bytes, share in zip(kept, expected):
    assert abs(bytes / kept[0] - share) < 1e-6, (kept, expected)
