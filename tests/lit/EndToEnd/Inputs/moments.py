# Compares runs whose moments are in f32 and in bf16.
# Usage: moments.py losses RUN RUN, moments.py equal STATE STATE, moments.py states STATE STATE, moments.py memory F32 BF16
import json
import os
import struct
import subprocess
import sys


def last_loss(run):
    with open(os.path.join(run, "train.jsonl")) as lines:
        return [record["loss"] for record in map(json.loads, lines) if "loss" in record and "step" in record][-1]


def header(file):
    with open(file, "rb") as data:
        size, = struct.unpack("<Q", data.read(8))
        return json.loads(data.read(size))


def tensors(file):
    with open(file, "rb") as data:
        size, = struct.unpack("<Q", data.read(8))
        data.seek(8 + size)
        return data.read()


def memory(executable):
    info = subprocess.run([executable, "info", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(info)["memory"]["training"]["optimizer_bytes"]


kind, first, second = sys.argv[1:]
if kind == "losses":
    one, other = last_loss(first), last_loss(second)
    assert abs(one - other) < 0.02 * one, (one, other)
elif kind == "equal":  # but for the times in the files' metadata
    assert tensors(first) == tensors(second)
elif kind == "states":
    wide, narrow = header(first), header(second)
    names = [name for name in wide if name.startswith("moment")]
    assert names
    for name in names:
        assert (wide[name]["dtype"], narrow[name]["dtype"]) == ("F32", "BF16"), name
        assert wide[name]["shape"] == narrow[name]["shape"], name
    weights = [name for name in wide if name.startswith("weights.")]
    assert weights and all(narrow[name]["dtype"] == "F32" for name in weights)
else:
    assert memory(first) == 2 * memory(second), (memory(first), memory(second))
