"""finetune.py TRANSLATOR WORK_FOLDER: checks training from given weights, groups of parameters, and averages of weights. The folder
holds ids in `a` and `b`. Plain Python."""
import array
import fnmatch
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

translator, work = sys.argv[1:]


def path(*names):
    return os.path.join(work, *names)


def call(*arguments, fails=None):
    result = subprocess.run([translator, *map(str, arguments)], capture_output=True, text=True)
    if fails is not None:
        assert result.returncode == 1 and re.search(fails, result.stderr), (arguments, result.returncode, result.stderr)
    else:
        assert result.returncode == 0, (arguments, result.stderr)
    return result.stderr


def train(out, *more, steps, fails=None):
    return call("train", "--format", "ids", "--source", path("a"), "--target", path("b"), "--out", path(out), "--steps", steps, "--batch-tokens", 200,
                "--seed", 5, "--schedule", "constant", "--warmup", 0, "--clip-norm", 0, *more, fails=fails)


def weights(out, name="last.safetensors"):
    return {key: numbers for key, (_, numbers) in tensors.read(path(out, name)).items()}


def same(a, b):
    return a.tobytes() == b.tobytes()


# Groups, in one step of plain gradient descent; its gradient is known from the step without groups.
RATE = 0.5
SGD = ["--optimizer", "sgd", "--momentum", 0, "--lr", RATE, "--quiet"]
GROUPS = ["--freeze", "encoder.embed.*", "*.self_attn.q.*", "--rate", "*.bias=3", "--rate", "decoder.layers.1.*=0.5", "--decay", "*.ffn.*=0.25"]
train("start", *SGD, steps=0)
train("plain", *SGD, steps=1)
train("groups", *SGD, *GROUPS, steps=1)
start, plain, groups = weights("start"), weights("plain"), weights("groups")
counted, squares = {}, 0
for name, before in start.items():
    frozen = any(fnmatch.fnmatch(name, pattern) for pattern in ("encoder.embed.*", "*.self_attn.q.*"))
    rate = 0.5 if name.startswith("decoder.layers.1.") else 3 if name.endswith(".bias") else 1
    decay = 0.25 if ".ffn." in name else 0
    kind = "frozen" if frozen else f"{rate} {decay}"
    counted[kind] = counted.get(kind, 0) + 1
    if frozen:
        assert same(groups[name], before), name
        continue
    if kind == "1 0":
        assert same(groups[name], plain[name]), name
    for w, p, g in zip(before, plain[name], groups[name], strict=True):
        gradient = (w - p) / RATE
        squares += gradient * gradient
        assert abs(g - (w - RATE * rate * (gradient + decay * w))) < 1e-6 * max(1, abs(w)), (name, w, p, g)
assert sorted(counted) == ["0.5 0", "0.5 0.25", "1 0", "1 0.25", "3 0", "3 0.25", "frozen"], counted
norm = json.loads(open(path("groups", "train.jsonl")).read().splitlines()[0])["gnorm"]
assert abs(norm - math.sqrt(squares)) < 1e-4 * norm, (norm, math.sqrt(squares))

# A run gives the same however often it stops, with any number of threads, and keeps its groups: what the optimizer packs for the next
# step is what the next process packs.
ADAM = ["--lr", 0.01, "--weight-decay", 0.1, "--quiet", *GROUPS]
train("whole", *ADAM, "--threads", 1, steps=7)
train("halves", *ADAM, "--threads", 2, steps=4)
call("train", "--resume", "--out", path("halves"), "--steps", 7, "--threads", 3, "--quiet")
whole, halves = weights("whole", "state/training.safetensors"), weights("halves", "state/training.safetensors")
assert all(same(numbers, halves[name]) for name, numbers in whole.items())
assert any(any(numbers) for name, numbers in whole.items() if name.startswith("moment1.")) and not any(whole["moment1.encoder.embed.weight"])
shutil.copytree(path("halves"), path("other"))
call("train", "--resume", "--out", path("other"), "--steps", 9, "--freeze", "*.bias", "--quiet",
     fails=r"was begun with --freeze 'encoder\.embed\.\*' --freeze '\*\.self_attn\.q\.\*' --rate '\*\.bias=3' --rate 'decoder\.layers\.1\.\*=0\.5' --decay '\*\.ffn\.\*=0\.25'; give the same")
shutil.copytree(path("start"), path("other2"))
call("train", "--resume", "--out", path("other2"), "--steps", 9, "--freeze", "*.bias", "--quiet", fails="was begun with no --freeze, --rate or --decay; give the same")
train("none", "--freeze", "encodr.*", steps=1, fails=r"--freeze: no parameter of the model matches 'encodr\.\*'; did you mean 'encoder\.\*'\?")
train("none", "--rate", "*.bais=2", steps=1, fails=r"--rate: no parameter of the model matches '\*\.bais'; did you mean '\*\.bias'\?")
train("none", "--freeze", "*", steps=1, fails="--freeze: nothing is left to train")

# Weights from another file, as far as they fit.
said = train("all", "--init", path("plain"), "--lr", 0.1, steps=0)
assert re.search(r"plain/best\.safetensors: loaded (\d+) of \1 parameters: .*encoder\.layers\.\*\.ffn\.in\.weight \(2\)", said), said
assert all(same(numbers, plain[name]) for name, numbers in weights("all").items())
found = tensors.read(path("plain", "last.safetensors"))
stored = {name: ("F32", shape, list(numbers)) for name, (shape, numbers) in found.items()}
kind, shape, numbers = stored.pop("encoder.embed.weight")
stored["encoder.embed.weight"] = (kind, [shape[0] - 1, shape[1]], numbers[shape[1]:])
del stored["decoder.norm.bias"]
stored["head.weight"] = ("F32", [2], [1, 2])
tensors.write(path("some.safetensors"), stored)
said = train("some", "--init", path("some.safetensors"), "--lr", 0.1, steps=0)
assert f"loaded {len(found) - 2} of {len(found)} parameters" in said, said
assert "not in it, and initialized at random: decoder.norm.bias\n" in said and "in it, but not parameters of this model: head.weight\n" in said, said
assert f"of another shape or type, and initialized at random: encoder.embed.weight [{shape[0] - 1}, {shape[1]}] (here [{shape[0]}, {shape[1]}])\n" in said, said
for name, numbers in weights("some").items():
    assert same(numbers, (start if name in ("encoder.embed.weight", "decoder.norm.bias") else plain)[name]), name
# The optimizer starts afresh, and a resumed run no longer needs the file of weights.
train("tuned", "--init", path("some.safetensors"), "--lr", 0.1, "--quiet", steps=3)
train("tuned2", "--init", path("some.safetensors"), "--lr", 0.1, "--quiet", steps=2)
os.rename(path("some.safetensors"), path("gone.safetensors"))
call("train", "--resume", "--out", path("tuned2"), "--steps", 3, "--quiet")
assert all(same(numbers, weights("tuned2")[name]) for name, numbers in weights("tuned").items())
tensors.write(path("foreign.safetensors"), {"shared.weight": ("F32", [1, 2], [1, 2])})
train("none", "--init", path("foreign.safetensors"), steps=1, fails=r"no tensor in it fits the model 'tiny', whose parameters are like .*; the file has 'shared\.weight' \[1, 2\]")
tensors.write(path("nan.safetensors"), {"decoder.norm.bias": ("F32", list(found["decoder.norm.bias"][0]), [math.nan] * len(plain["decoder.norm.bias"]))})
train("none2", "--init", path("nan.safetensors"), steps=1, fails="'decoder.norm.bias' holds NaN or infinity")
train("none3", "--init", path("nowhere"), steps=1, fails="nowhere: cannot open")

# Averages, summed in the order in which the files are named.
train("kept", "--lr", 0.05, "--quiet", "--save-every", 2, "--keep", 3, steps=8)
kept = [weights("kept", f"step-{step}.safetensors") for step in (4, 6, 8)]


def mean(files):
    return {name: array.array("f", [sum(values) / len(files) for values in zip(*(file[name] for file in files))]) for name in files[0]}


said = call("average", path("kept"), "-o", path("mean.safetensors"), "--threads", 2)
assert re.search(r"mean\.safetensors: the mean of 3 files, from \S*step-4\.safetensors to \S*step-8\.safetensors", said), said
assert all(same(numbers, mean(kept)[name]) for name, numbers in weights("", "mean.safetensors").items())
call("average", path("kept"), path("plain", "last.safetensors"), "--last", 1, "-o", path("two.safetensors"), "--quiet")
assert all(same(numbers, mean([kept[2], plain])[name]) for name, numbers in weights("", "two.safetensors").items())
call("score", "--weights", path("mean.safetensors"), "--source", path("a"), "--target", path("b"), "--format", "ids")
call("average", path("start"), "-o", path("none.safetensors"), fails="start: holds no step-N.safetensors to average; train with --keep K, or name files of weights")
call("average", path("gone.safetensors"), path("plain", "last.safetensors"), "-o", path("none.safetensors"), fails="gone.safetensors: 'encoder.embed.weight' has shape")
data = open(path("plain", "last.safetensors"), "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + size])
meta = {key: text for key, text in header["__metadata__"].items() if not key.startswith(("checksum", "crc32c"))}
meta["model_hash"], meta["description"] = "0" * 64, meta["description"].replace('"heads":4', '"heads":2')
header["__metadata__"] = meta
text = json.dumps(header).encode()
open(path("foreign.safetensors"), "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size :])
call("average", path("plain", "last.safetensors"), path("foreign.safetensors"), "-o", path("none.safetensors"), fails="foreign.safetensors: these are weights of the model 'tiny'")
for name in ("none", "none.safetensors"):
    assert not os.path.exists(path(name)), name
