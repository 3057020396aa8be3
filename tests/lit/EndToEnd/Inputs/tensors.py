"""Reads and writes safetensors in plain Python: names to (shape, numbers)."""
import array
import json
import struct

CODES = {"F32": "f", "F64": "d", "I32": "i"}


def write(path, tensors):
    """`tensors`: names to (type, shape, numbers)."""
    header, body = {}, b""
    for name, (kind, shape, numbers) in tensors.items():
        data = array.array(CODES[kind], numbers).tobytes()
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = entry["shape"], array.array(CODES[entry["dtype"]], data[begin:end]).tolist()
    return tensors


def differences(first, second):
    """For each tensor of two files, the largest difference over its largest value, or over a thousandth of the largest of all where
    that is more: of what is 0 but for rounding, nothing is asked."""
    a, b = read(first), read(second)
    assert a and a.keys() == b.keys(), a.keys() ^ b.keys()
    floor = max(max(map(abs, values), default=0) for _, values in a.values()) * 1e-3 or 1
    return {
        name: max((abs(i - j) for i, j in zip(x, b[name][1], strict=True)), default=0) / max(floor, max(map(abs, x), default=0)) for name, (_, x) in a.items()
    }
