"""Reads and writes safetensors in plain Python: names to (shape, numbers).

usage: tensors.py EXPECTED FOUND TOLERANCE: prints how much two files differ; exit status 1 if that is more than TOLERANCE."""
import array
import json
import math
import operator
import struct
import sys

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
    data = memoryview(open(path, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(bytes(data[8 : 8 + size])).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = entry["shape"], array.array(CODES[entry["dtype"]], data[begin:end].tobytes())
    return tensors


def largest(numbers):
    return max(map(abs, numbers), default=0)


def floor_of(tensors):
    return max(largest(values) for _, values in tensors.values()) * 1e-3 or 1


def differences(first, second):
    """For each tensor of two files, the largest difference relative to its largest value, or to a thousandth of the largest of all if
    that is more, so that noise in a tensor of zeros does not count. The difference is infinite if any number is not finite."""
    a, b = read(first), read(second)
    assert a and a.keys() == b.keys(), a.keys() ^ b.keys()
    floor = floor_of(a)
    errors = {}
    for name, (_, x) in a.items():
        y = b[name][1]
        assert len(x) == len(y), f"{name}: {len(x)} numbers, and {len(y)}"
        finite = all(map(math.isfinite, x)) and all(map(math.isfinite, y))
        errors[name] = max(map(abs, map(operator.sub, x, y)), default=0) / max(floor, largest(x)) if finite else math.inf
    return errors


def distances(first, second):
    """For each tensor of two files, the norm of the difference relative to the tensor's own norm, or to that of a tensor with a thousandth of
    the largest root mean square of all if that is more. It is infinite if any number is not finite. Unlike the largest difference, it stays
    small if rounding turns a relu on or off, which changes the gradients of one unit's weights."""
    a, b = read(first), read(second)
    assert a and a.keys() == b.keys(), a.keys() ^ b.keys()
    norms = {name: math.dist(x, array.array(x.typecode, bytes(x.itemsize * len(x)))) for name, (_, x) in a.items()}
    floor = max(norms[name] / math.sqrt(len(x) or 1) for name, (_, x) in a.items()) * 1e-3 or 1
    errors = {}
    for name, (_, x) in a.items():
        y = b[name][1]
        assert len(x) == len(y), f"{name}: {len(x)} numbers, and {len(y)}"
        apart = math.dist(x, y)
        errors[name] = apart / max(norms[name], floor * math.sqrt(len(x) or 1)) if math.isfinite(apart) else math.inf
    return errors


def largest_difference(first, second, name):
    """Describes the element of a tensor that differs most: its index and both numbers."""
    (shape, x), (_, y) = (read(path)[name] for path in (first, second))
    at = max(range(len(x)), key=lambda i: abs(x[i] - y[i]) if math.isfinite(y[i]) else math.inf)
    index, rest = [], at
    for extent in reversed(shape):
        index.insert(0, rest % extent)
        rest //= extent
    return f"{name}{index} is {y[at]:.6g}, expected {x[at]:.6g}"


def main(first, second, tolerance):
    name, error = max(distances(first, second).items(), key=lambda item: item[1])
    if not error <= float(tolerance):
        sys.exit(f"{name} differs by {error:.1e} of its norm, more than {float(tolerance):.1e}; {largest_difference(first, second, name)}")
    print(f"at most {error:.1e} of a tensor's norm ({name})")


if __name__ == "__main__":
    main(*sys.argv[1:])
