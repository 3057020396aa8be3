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


def first_difference(first, second, name, tolerance):
    """Describes the first element of a tensor that differs by more than the tolerance: its index and both numbers."""
    a, b = read(first), read(second)
    shape, x = a[name]
    y = b[name][1]
    allowed = tolerance * max(floor_of(a), largest(x))
    at = next(i for i, (i_x, i_y) in enumerate(zip(x, y)) if not abs(i_x - i_y) <= allowed)
    index, rest = [], at
    for extent in reversed(shape):
        index.insert(0, rest % extent)
        rest //= extent
    count = sum(not abs(i - j) <= allowed for i, j in zip(x, y))
    return f"{name}{index} is {y[at]:.6g}, expected {x[at]:.6g}, the first of {count} elements of {len(x)} that differ by more than {allowed:.1e}"


def main(first, second, tolerance):
    name, error = max(differences(first, second).items(), key=lambda item: item[1])
    if not error <= float(tolerance):
        sys.exit(first_difference(first, second, name, float(tolerance)))
    print(f"at most {error:.1e} of a tensor's largest value ({name})")


if __name__ == "__main__":
    main(*sys.argv[1:])
