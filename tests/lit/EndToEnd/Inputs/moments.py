# Compares runs whose moments are in f32 and in bf16.
# Usage: moments.py losses RUN RUN, moments.py equal STATE STATE, moments.py states STATE STATE, moments.py memory F32 BF16, or
# moments.py converted STATE FILE, which writes the state with moments in the other type.
import array
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


def widened(bits):
    return array.array("I", [number << 16 for number in bits])


def narrowed(bits):  # to the nearest, ties to even
    return array.array("H", [(number + 0x7FFF + (number >> 16 & 1)) >> 16 for number in bits])


def convert(file, to):
    entries, data = header(file), tensors(file)
    metadata = {key: text for key, text in entries.pop("__metadata__").items() if key != "checksum" and not key.startswith("crc32c.")}
    parts, end = [], 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        part = data[slice(*entry["data_offsets"])]
        if name.startswith("moment"):
            wide = entry["dtype"] == "F32"
            part = (narrowed(array.array("I", part)) if wide else widened(array.array("H", part))).tobytes()
            entry["dtype"] = "BF16" if wide else "F32"
        entry["data_offsets"] = [end, end + len(part)]
        end += len(part)
        parts.append(part)
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    text += b" " * (-len(text) % 64)
    with open(to, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


kind, first, second = sys.argv[1:]
if kind == "losses":
    one, other = last_loss(first), last_loss(second)
    assert abs(one - other) < 0.02 * one, (one, other)
elif kind == "converted":
    convert(first, second)
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
