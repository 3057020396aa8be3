"""memory.py EXECUTABLE PREDICTED.json CASE MEASURED.json: compares the memory that inspect predicted for a case with what bench used."""
import json
import resource
import subprocess
import sys

executable, predicted, case, measured = sys.argv[1:]
step = json.load(open(predicted))[case]
run = json.load(open(measured))
subprocess.run([executable, "info"], check=True, stdout=subprocess.DEVNULL)
base = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
taken = run["peak_rss_mb"] * 1e6 - base
print(f"arena {run['arena_bytes']} predicted {step['arena_bytes']}; state {run['state_bytes']} predicted {step['state_bytes']}; "
      f"peak above info {taken / 1e6:.1f} MB predicted {step['peak_bytes'] / 1e6:.1f} MB")
if run["arena_bytes"] != step["arena_bytes"]:
    sys.exit("the arena differs")
if run["state_bytes"] != step["state_bytes"]:
    sys.exit("parameters and what else is held differ")
if abs(taken - step["peak_bytes"]) > 0.05 * step["peak_bytes"] + 8e6:
    sys.exit("the peak is off by more than 5 % + 8 MB")
