"""check_cuda_faults.py TRANSLATOR DRIVERS FOLDER: for anything that can be wrong with a GPU, one line says what to do. DRIVERS holds the PTX
interpreter's libcuda.so.1, which simulates the faults. Plain Python."""
import os
import subprocess
import sys

translator, drivers, folder = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3]
os.makedirs(folder, exist_ok=True)
os.chdir(folder)


def run(device, *words, expect=0, **faults):
    environment = dict(os.environ, LD_LIBRARY_PATH=drivers, **faults)
    done = subprocess.run([translator, *words, "--device", device], env=environment, capture_output=True, text=True)
    assert done.returncode == expect, (words, done.returncode, done.stderr)
    return done.stderr


def refused(words, said, **faults):
    message = run("cuda", *words, expect=1, **faults)
    assert all(part in message for part in said) and message.count("\n") == 1, (said, message)


for name in "ab":
    with open(name, "w") as file:
        for sentence in range(40):
            print(*range(4, 5 + sentence % 12), file=file)
common = ("--format", "ids", "--source", "a", "--target", "b", "--batch-tokens", "64", "--seed", "5", "--quiet")
run("cuda", "train", "--out", "run", "--steps", "2", *common)
greedy = ("translate", "--weights", "run/last.safetensors", "--format", "ids", "--input", "a", "--beam", "1", "--quiet")
refused(greedy, ("the driver found no GPU", "--device cpu"), XFC_PTX_DEVICES="0")
refused(greedy, ("driver is for CUDA 11.0", "or later; update the driver"), XFC_PTX_DRIVER_VERSION="11000")
refused(greedy, ("compute capability 7.5", "--cuda-arch"), XFC_PTX_ARCH="75")
refused(greedy, ("bytes", "are free"), XFC_PTX_MEMORY="80000")
refused(("train", "--out", "little", "--steps", "1", *common), ("training needs", "the GPU has"), XFC_PTX_MEMORY="300000")
refused((*greedy, "--compute-type", "int8"), ("--compute-type int8", "decodes in"))

# If a GPU is lost during training, only the steps since the last checkpoint are lost, and no file.
files = ("run/last.safetensors", "run/state/training.safetensors")
before = [open(name, "rb").read() for name in files]
refused(("train", "--out", "run", "--steps", "500", "--save-every", "1000", "--resume", *common), ("the GPU was lost", "--resume"), XFC_PTX_LOST_AFTER="700")
assert [open(name, "rb").read() for name in files] == before, "a run that lost its GPU touched its files"

# Without a driver everything else still runs.
drivers = folder  # a folder without a driver
if subprocess.run(["sh", "-c", "ldconfig -p | grep -q libcuda.so.1"]).returncode:
    refused(greedy, ("libcuda.so.1 was not found", "--device cpu"))
run("cpu", *greedy)
print("what is wrong with a GPU is said")
