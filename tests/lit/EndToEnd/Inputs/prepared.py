"""Reads files of prepared pairs in plain Python, as docs/runs.md describes them; and changes what they hold, with correct checksums.

usage: prepared.py FILE CHANGED token|nan|negative|sum: writes a copy in which the distribution of the last label is wrong."""
import array
import struct
import sys

HEADER, ENTRY, FOOTER = 16, 16, 128


def crc32c(data, start=0):
    crc = start ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def numbers(code, data, at, count):
    return array.array(code, data[at : at + 4 * count].tobytes()), at + 4 * count


def read(path):
    """A list of (source, target with start and eos, weights, distributions): for each label, a list of (token, probability)."""
    data = memoryview(open(path, "rb").read())
    assert data[:8] == data[-8:] == b"xfcpairs"
    version, weighting, tokens = struct.unpack("<IHH", data[8:16])
    assert version == (3 if tokens else 2 if weighting else 1), (version, weighting, tokens)
    (pairs,) = struct.unpack("<q", data[-FOOTER : -FOOTER + 8])
    blocks = (pairs + 8191) // 8192
    table, begin, result = len(data) - FOOTER - ENTRY * blocks, HEADER, []
    for block in range(blocks):
        end, checksum, _ = struct.unpack("<QII", data[table + ENTRY * block : table + ENTRY * (block + 1)])
        count = min(8192, pairs - 8192 * block)
        ends, at = numbers("I", data, begin, 2 * count)
        ids, at = numbers("i", data, at, ends[-1])
        weights, at = numbers("f", data, at, (0, count, len(ids))[weighting])
        label_ends, at = numbers("I", data, at, count if tokens else 0)
        labels = label_ends[-1] if tokens else 0
        chosen = numbers("i", data, at, 2 * labels * tokens)[0][::2]
        probabilities, at = numbers("f", data, at, 2 * labels * tokens)
        probabilities = probabilities[1::2]
        assert at == end, (at, end)
        for i in range(count):
            first, middle, last = 0 if i == 0 else ends[2 * i - 1], ends[2 * i], ends[2 * i + 1]
            own = range(label_ends[i - 1] if i else 0, label_ends[i]) if tokens else ()
            result.append((ids[first:middle].tolist(), ids[middle:last].tolist(), {0: [], 1: weights[i : i + 1], 2: weights[middle + 1 : last]}[weighting],
                           [[(chosen[j * tokens + k], probabilities[j * tokens + k]) for k in range(tokens)] for j in own]))
        begin = end
    assert begin == table
    return result


def change(path, out, what):
    """For a file of one block."""
    data = bytearray(open(path, "rb").read())
    table = len(data) - FOOTER - ENTRY
    if what == "token":
        struct.pack_into("<i", data, table - 8, 1 << 20)
    else:
        struct.pack_into("<f", data, table - 4, {"nan": float("nan"), "negative": -0.25, "sum": 1.5}[what])
    struct.pack_into("<I", data, table + 8, crc32c(data[HEADER:table]))
    struct.pack_into("<I", data, len(data) - 16, crc32c(data[table : table + ENTRY]))
    struct.pack_into("<I", data, len(data) - 12, crc32c(data[-FOOTER:-12], crc32c(data[:HEADER])))
    with open(out, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    change(*sys.argv[1:])
