"""break_weights.py {nan,drop} IN OUT: puts a NaN into encoder.embed.weight, or leaves the tensor out. Plain Python."""
import json
import struct
import sys

how, source, target = sys.argv[1:]
data = open(source, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8 : 8 + size]), bytearray(data[8 + size :])
header.pop("__metadata__", None)  # its checksums would no longer match
name = "encoder.embed.weight"
begin = header[name]["data_offsets"][0]
if how == "nan":
    body[begin : begin + 4] = struct.pack("<f", float("nan"))
else:
    # The tensor is kept under another name, so that the file itself stays valid.
    header["foreign.weight"] = header.pop(name)
text = json.dumps(header).encode()
open(target, "wb").write(struct.pack("<Q", len(text)) + text + body)
