"""compare_devices.py TRANSLATOR WEIGHTS DRIVERS FOLDER [PAD]: a GPU computes what the CPU computes: logits, attention, losses and gradients of
ragged sentences, training from these weights, and translations. DRIVERS holds the PTX interpreter's libcuda.so.1, which also looks for races.
Plain Python."""
import json
import os
import subprocess
import sys
from random import Random

sys.path.insert(0, os.path.dirname(__file__))
import tensors

translator, weights, drivers = map(os.path.abspath, sys.argv[1:4])
pad = int(sys.argv[5]) if len(sys.argv) > 5 else 0
os.makedirs(sys.argv[4], exist_ok=True)
os.chdir(sys.argv[4])


def run(device, *words):
    environment = dict(os.environ, LD_LIBRARY_PATH=drivers, XFC_PTX_ARCH="80", XFC_PTX_CHECK="1")
    done = subprocess.run([translator, *words, "--device", device], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (device, words, done.stderr)
    return done.stdout


def close(what, tolerance):
    for name, error in tensors.differences(f"{what}.cpu", f"{what}.cuda").items():
        assert error <= tolerance, f"{what}: {name} differs by {error:.1e} of its largest value"


about = json.loads(subprocess.run([translator, "info", "--json"], capture_output=True, text=True, check=True).stdout)
generator = Random(7)
# The first tokens, and the last one, may have a meaning.
rows = {side: [[generator.randrange(4, about[side + "_vocab"] - 1) for _ in range(length)] for length in lengths]
        for side, lengths in (("source", (9, 1, 6)), ("target", (6, 4, 2)))}
for side in rows:
    with open(side, "w") as file:
        file.writelines(" ".join(map(str, row)) + "\n" for row in rows[side])
with open("wanted", "w") as file:
    file.write("5 6\n\n4 || 7 7\n")
rows["labels"] = [row[1:] + [4] for row in rows["target"]]
padded = {name: [row + [pad] * (len(lines[0]) - len(row)) for row in lines] for name, lines in rows.items()}
tensors.write("in", {name: ("I32", [len(lines), len(lines[0])], sum(lines, [])) for name, lines in padded.items()})
found = {}
for device in ("cpu", "cuda"):
    run(device, "forward", "--weights", weights, "--input", "in", "--output", f"forward.{device}", "--gradients", "--attention", "--label-smoothing", "0.1")
    # A large eps, so that noise in a gradient of 0 does not become a step.
    run(device, "train", "--format", "ids", "--source", "source", "--target", "target", "--init", weights, "--out", f"run.{device}", "--steps", "2",
        "--batch-tokens", "64", "--lr", "0.01", "--schedule", "constant", "--warmup", "0", "--adam-eps", "0.01", "--seed", "5", "--quiet")
    os.replace(f"run.{device}/last.safetensors", f"trained.{device}")
    # With constraints, a search reads all log-probabilities instead of the best candidates.
    found[device] = [[(each["ids"], each["score"]) for each in json.loads(line)["hypotheses"]] for more in ([], ["--constraints", "wanted"]) for line in run(
        device, "translate", "--weights", weights, "--format", "ids", "--input", "source", "--beam", "3", "--n-best", "2", "--min-length", "3",
        "--max-length", "6", "--json", "--quiet", *more).splitlines()]
close("forward", 1e-4)
close("trained", 2e-3)
pairs = [pair for lines in zip(found["cpu"], found["cuda"], strict=True) for pair in zip(*lines, strict=True)]
assert len(pairs) == 4 * len(rows["source"]) and all(a == b and abs(x - y) <= 1e-4 * max(1, abs(x)) for (a, x), (b, y) in pairs), pairs
print("a GPU does what the CPU does")
