"""compare_weights.py TOLERANCE A B [PREFIX]: both have the same tensors (only those whose names begin with PREFIX), with values within TOLERANCE,
relative to the largest value of all. Plain Python."""
import json
import struct
import sys


def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and name.startswith(prefix):
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            code, width = {"F32": ("f", 4), "F64": ("d", 8)}[entry["dtype"]]
            tensors[name] = struct.unpack(f"<{(end - begin) // width}{code}", data[begin:end])
    return tensors


prefix = sys.argv[4] if len(sys.argv) > 4 else ""
tolerance, (first, second) = float(sys.argv[1]), map(read, sys.argv[2:4])
assert first and first.keys() == second.keys(), first.keys() ^ second.keys()
largest = max(abs(x) for values in first.values() for x in values)
worst = 0
for name, a in first.items():
    error = max(abs(x - y) for x, y in zip(a, second[name], strict=True)) / largest
    assert error <= tolerance, f"{name}: differs by {error:.1e} of the largest weight"
    worst = max(worst, error)
print(f"{len(first)} tensors agree within {worst:.1e}")
