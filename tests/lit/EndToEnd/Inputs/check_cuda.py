"""check_cuda.py TRANSLATOR FOLDER [IMAGE]: compares what an executable does on a GPU and on the CPU. IMAGE is for --cuda-image.
Plain Python."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors

translator, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
image = ("--cuda-image", sys.argv[3]) if len(sys.argv) > 3 else ()
os.makedirs(folder, exist_ok=True)
os.chdir(folder)


def run(device, *words):
    done = subprocess.run([translator, *words, "--device", device, *(image if device == "cuda" else ())], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.returncode, done.stderr)
    return done.stdout


def close(first, second, tolerance):
    for name, error in tensors.differences(first, second).items():
        assert error <= tolerance, f"{first}, {second}: {name} differs by {error:.1e} of its largest value"


def same(first, second):
    assert open(first, "rb").read() == open(second, "rb").read(), f"{first} and {second} differ"


about = json.loads(subprocess.run([translator, "info", "--json"], capture_output=True, text=True, check=True).stdout)
assert about["targets"] == ["cpu", "cuda"] and about["cuda_archs"], about["targets"]
vocabulary = about["source_vocab"]
generator = random.Random(7)
for name in "ab":
    with open(name, "w") as file:
        for _ in range(40):
            print(*(generator.randrange(4, vocabulary) for _ in range(generator.randint(1, 12))), file=file)

with open("w", "w") as file:
    for _ in range(40):
        print(generator.random() * 2, file=file)

# Logits, loss and all gradients of a batch of ragged sentences with pads inside.
source = [generator.randrange(4, vocabulary) for _ in range(3 * 9)]
target = [generator.randrange(4, vocabulary) for _ in range(3 * 6)]
source[4] = source[15] = source[16] = source[17] = target[11] = 0
tensors.write("in", {"source": ("I32", [3, 9], source), "target": ("I32", [3, 6], target), "labels": ("I32", [3, 6], target[1:] + [5])})
common = ("--format", "ids", "--source", "a", "--target", "b", "--data-weighting", "w", "--batch-tokens", "64", "--seed", "5", "--quiet", "--lr", "0.01", "--schedule", "constant")
adam = (*common, "--adam-eps", "0.01")  # large, so that noise in a gradient of 0 does not become a step
run("cpu", "train", "--out", "first", "--steps", "20", *adam)
weights = ("--weights", "first/last.safetensors")
for device in ("cpu", "cuda"):
    run(device, "forward", *weights, "--input", "in", "--output", f"out.{device}", "--gradients", "--attention", "--label-smoothing", "0.1")
close("out.cpu", "out.cuda", 1e-4)

# Each kernel runs on the operands that the CPU's earlier kernels left.
alone = run("cuda", "selfcheck", "--kernels").splitlines()
assert alone[-1] == "everything holds" and int(alone[-2].split()[0]) > 20, alone[-3:]

# Training from the same initial weights; then one device continues where the other stopped.
for device in ("cpu", "cuda"):
    run(device, "train", "--out", f"train.{device}", "--steps", "6", *adam)
    run(device, "train", "--out", f"sum.{device}", "--steps", "3", "--accumulate", "2", *adam)
close("train.cpu/last.safetensors", "train.cuda/last.safetensors", 2e-3)
close("sum.cpu/last.safetensors", "sum.cuda/last.safetensors", 2e-3)
for first, second in (("cuda", "cuda"), ("cpu", "cuda"), ("cuda", "cpu")):
    out = f"{first}-{second}"
    run(first, "train", "--out", out, "--steps", "3", *adam)
    run(second, "train", "--out", out, "--steps", "6", "--resume", *adam)
    close(f"{out}/last.safetensors", "train.cpu/last.safetensors", 2e-3)
same("cuda-cuda/last.safetensors", "train.cuda/last.safetensors")

# An optimizer that takes its parameters one by one, in groups; its eps1 does what --adam-eps does above.
for device in ("cpu", "cuda"):
    run(device, "train", "--out", f"factored.{device}", "--steps", "4", *common, "--optimizer", "adafactor", "--adafactor-eps", "1e-4,1e-3",
        "--scale-parameter", "--ema", "0.6", "--freeze", "*norm*", "--rate", "*bias=0.5")
for file in ("last", "ema", "state/training"):
    close(f"factored.cpu/{file}.safetensors", f"factored.cuda/{file}.safetensors", 2e-3)

# Translations are those of the CPU; translations and scores have the same bytes in any batch.
for name, flags in (("greedy", ("--beam", "1")), ("beam", ("--beam", "4", "--n-best", "2")), ("sample", ("--sample", "--seed", "3"))):
    translate = ("translate", *weights, "--format", "ids", "--input", "a", "--max-length", "12", *flags, "--quiet")
    for device in ("cpu", "cuda"):
        run(device, *translate, "--output", f"{name}.{device}")
    same(f"{name}.cpu", f"{name}.cuda")
    for tokens in ("1", "30", "4096"):
        run("cuda", *translate, "--scores", "--batch-tokens", tokens, "--output", f"{name}.{tokens}")
        same(f"{name}.1", f"{name}.{tokens}")
for tokens in ("1", "4096"):
    open(f"scores.{tokens}", "w").write(run("cuda", "score", *weights, "--format", "ids", "--source", "a", "--target", "b", "--batch-tokens", tokens, "--quiet"))
same("scores.1", "scores.4096")

# The memory is as predicted, and kernels are timed.
predicted = json.loads(subprocess.run([translator, "info", "--json", "--batch-tokens", "64", "--length", "8", "--sentences", "4", "--beam", "2"],
                                      capture_output=True, text=True, check=True).stdout)["memory"]


def held(memory):
    return memory["arena_bytes"], sum(memory[part + "_bytes"] for part in ("parameters", "optimizer", "packed", "tables"))


measured = json.loads(run("cuda", "bench", "train", "--batch-tokens", "64", "--length", "8", "--steps", "2", "--json", "--profile"))
assert held(predicted["training on a GPU"]) == (measured["arena_bytes"], measured["state_bytes"]), (predicted["training on a GPU"], measured)
assert measured["device"] == "cuda" and measured["kernels"] and all(kernel["ms"] >= 0 for kernel in measured["kernels"])
measured = json.loads(run("cuda", "bench", "decode", "--sentences", "4", "--batch", "4", "--length", "8", "--beam", "2", "--steps", "1", "--json"))
assert held(predicted["decoding on a GPU"]) == (measured["arena_bytes"], measured["state_bytes"]), (predicted["decoding on a GPU"], measured)
print("a GPU does what the CPU does")
