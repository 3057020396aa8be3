"""packed_only.py EXECUTABLE RUN IDS: besides its packed weights, decoding takes only a fraction of the memory of the weights; and several workers
pack them once."""
import json
import resource
import subprocess
import sys

executable, run, ids = sys.argv[1:]


def translate(*options):
    return peak(executable, "translate", "--model", run, "--format", "ids", "--input", ids, "--batch-tokens", "32", "--beam", "1", "--max-length", "20", *options)


def peak(*command):
    """Peak resident bytes of the largest child process so far."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


info = json.loads(subprocess.run([executable, "info", "--json"], check=True, capture_output=True).stdout)
base = peak(executable, "info")
weights = info["parameters"] * 4
for kind in "int8", "f32":  # ascending, since peak() is the largest so far
    taken = translate("--compute-type", kind) - base
    most = {"int8": 0.25, "f32": 1}[kind] * weights + 0.45 * weights
    print(f"{kind}: {taken / 1e6:.1f} MB above info, at most {most / 1e6:.1f}; weights {weights / 1e6:.1f}")
    if taken > most:
        sys.exit(f"{kind}: weights that were packed stay in memory")
more = translate("--workers", "4", "--threads", "4") - base - taken
print(f"4 workers: {more / 1e6:.1f} MB more, at most {0.4 * weights / 1e6:.1f}")
if more > 0.4 * weights:
    sys.exit("workers have weights of their own")
