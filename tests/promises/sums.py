"""sums.py XFC [--threads N] [--cpu LIST]: trains a tiny model in f32, and prints the SHA-256 of its checkpoint, of logits and of a text.

The data are made here, from fixed numbers, so the sums are the same on every machine where docs/promises.md says so; they are
published there. Plain Python."""
import argparse
import hashlib
import json
import pathlib
import random
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = 60


def lines(seed, count):
    """Of random ids; random() is the same in all versions of Python."""
    chance = random.Random(seed)
    return [[4 + int(chance.random() * (WORDS - 4)) for _ in range(1 + int(chance.random() * 12))] for _ in range(count)]


def safetensors(tensors):
    """The bytes of a file of int32 tensors [1, tokens]."""
    header, data = {}, b""
    for name, ids in tensors.items():
        header[name] = {"dtype": "I32", "shape": [1, len(ids)], "data_offsets": [len(data), len(data) + 4 * len(ids)]}
        data += struct.pack(f"<{len(ids)}i", *ids)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("xfc", help="the compiler")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--cpu", default="native", help="as for xfc compile")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def run(*command):
            subprocess.run([str(word) for word in command], cwd=folder, check=True, stderr=subprocess.DEVNULL)

        for side, seed in (("source", 1), ("target", 2)):
            (folder / side).write_text("".join(" ".join(map(str, ids)) + "\n" for ids in lines(seed, 200)))
        (folder / "batch.safetensors").write_bytes(safetensors({"source": lines(3, 1)[0], "target": [2, *lines(4, 1)[0]]}))
        run(pathlib.Path(arguments.xfc).resolve(), "compile", ROOT / "models/tiny.json", "-o", "tiny", "--cpu", arguments.cpu,
            "--set", f"source_vocab={WORDS}", "--set", f"target_vocab={WORDS}")
        model = ["--weights", "run/last.safetensors", "--threads", arguments.threads]
        run("./tiny", "train", "--format", "ids", "--source", "source", "--target", "target", "--out", "run", "--steps", "40", "--batch-tokens", "256",
            "--seed", "1", "--threads", arguments.threads, "--quiet")
        run("./tiny", "forward", *model, "--input", "batch.safetensors", "--output", "logits.safetensors")
        run("./tiny", "translate", *model, "--format", "ids", "--beam", "4", "--scores", "--input", "source", "--output", "translations")
        for what, file in (("checkpoint", "run/last.safetensors"), ("logits", "logits.safetensors"), ("translations", "translations")):
            print(f"{what}: sha256 {hashlib.sha256((folder / file).read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
