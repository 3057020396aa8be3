"""check_cuda_archs.py TRANSLATOR DRIVERS FOLDER: a bf16 executable with code for sm_80 and for sm_90a uses the best code for the GPU that it
finds, and computes the same with both. DRIVERS holds the PTX interpreter's libcuda.so.1. Plain Python."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors

translator, drivers, folder = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
os.makedirs(folder, exist_ok=True)
os.chdir(folder)


def run(capability, *words):
    """Runs on a GPU of a compute capability (90: 9.0), with a check for races, or on the CPU if it is 0."""
    environment = dict(os.environ, LD_LIBRARY_PATH=drivers, XFC_PTX_ARCH=str(capability), XFC_PTX_CHECK="1")
    done = subprocess.run([translator, *words, "--device", "cuda" if capability else "cpu"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (capability, words, done.stderr)
    return done.stdout


def close(first, second, tolerance):
    for name, error in tensors.differences(first, second).items():
        assert error <= tolerance, f"{first}, {second}: {name} differs by {error:.1e} of its largest value"


# Code for sm_90a runs only on 9.0; PTX for 8.0 also runs on later GPUs.
for capability, arch in ((80, "sm_80"), (89, "sm_80"), (90, "sm_90a"), (100, "sm_80")):
    measured = json.loads(run(capability, "bench", "decode", "--sentences", "1", "--batch", "1", "--length", "2", "--beam", "1", "--steps", "1", "--json"))
    assert measured["gpu"].endswith(f", {arch} PTX"), (capability, measured["gpu"])

# --cuda-image names another image that the executable has and the GPU runs, or its PTX.
bench = ("bench", "decode", "--sentences", "1", "--batch", "1", "--length", "2", "--beam", "1", "--steps", "1", "--json")
for capability, image, arch in ((90, "sm_80", "sm_80"), (90, "sm_90a", "sm_90a"), (90, "ptx", "sm_90a"), (90, "ptx:sm_80", "sm_80"), (80, "ptx", "sm_80")):
    measured = json.loads(run(capability, *bench, "--cuda-image", image))
    assert measured["gpu"].endswith(f", {arch} PTX"), (capability, image, measured["gpu"])
startup = json.loads(run(90, "bench", "startup", "--json", "--cuda-image", "sm_80"))
assert startup["gpu"].endswith(", sm_80 PTX") and startup["runs"] == 7, startup


def refused(capability, image, *said):
    environment = dict(os.environ, LD_LIBRARY_PATH=drivers, XFC_PTX_ARCH=str(capability))
    done = subprocess.run([translator, *bench, "--cuda-image", image, "--device", "cuda" if capability else "cpu"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and all(part in done.stderr for part in said), (capability, image, done.stderr)


refused(90, "sm_90", "--cuda-image sm_90: this executable has sm_90a, sm_80, and ptx (or ptx:NAME)")
refused(80, "sm_90a", "--cuda-image sm_90a: is not for", "compute capability 8.0")
refused(0, "sm_80", "--cuda-image sm_80", "needs --device cuda")

generator = random.Random(7)
vocabulary = json.loads(subprocess.run([translator, "info", "--json"], capture_output=True, text=True, check=True).stdout)["source_vocab"]
for name in "ab":
    with open(name, "w") as file:
        for _ in range(30):
            print(*(generator.randrange(4, vocabulary) for _ in range(generator.randint(1, 12))), file=file)

# Each kernel of a training step, on the operands of the CPU's; more rows than one tile has.
for capability in (80, 90):
    assert "everything holds" in run(capability, "selfcheck", "--kernels", "--batch-tokens", "300"), capability

common = ("--format", "ids", "--source", "a", "--target", "b", "--batch-tokens", "64", "--seed", "5", "--quiet", "--lr", "0.01", "--schedule", "constant",
          "--adam-eps", "0.01")
source, target = ([generator.randrange(4, vocabulary) for _ in range(3 * length)] for length in (9, 6))
tensors.write("in", {"source": ("I32", [3, 9], source), "target": ("I32", [3, 6], target), "labels": ("I32", [3, 6], target[1:] + [5])})
run(0, "train", "--out", "first", "--steps", "5", *common)
weights = ("--weights", "first/last.safetensors")
for capability in (80, 90):
    run(capability, "forward", *weights, "--input", "in", "--output", f"out.{capability}", "--gradients", "--label-smoothing", "0.1")
run(90, "forward", *weights, "--input", "in", "--output", "out.same", "--gradients", "--label-smoothing", "0.1", "--cuda-image", "sm_80")
assert open("out.same", "rb").read() == open("out.80", "rb").read(), "code for 8.0 computes otherwise on 9.0"
for capability in (0, 80, 90):
    run(capability, "train", "--out", f"train.{capability}", "--steps", "3", *common)
# Sums that differ in their last bits are rounded to other rows of bf16.
close("out.80", "out.90", 2e-2)
close("train.80/last.safetensors", "train.90/last.safetensors", 1e-2)
close("train.0/last.safetensors", "train.90/last.safetensors", 1e-2)  # only GPUs compute attention and store rows in bf16

translate = ("translate", *weights, "--format", "ids", "--input", "a", "--max-length", "10", "--beam", "3", "--scores", "--quiet")
translations = {tokens: run(90, *translate, "--batch-tokens", tokens) for tokens in ("1", "30", "4096")}
assert len(set(translations.values())) == 1, "a translation on 9.0 depends on its batch"
print("each GPU takes its code, and computes the same")
