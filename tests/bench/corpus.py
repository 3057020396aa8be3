"""Text for the benchmarks: a part of given files, and a vocabulary of it."""
import gzip
import os
import subprocess

from common import BenchError


def open_text(path):
    return gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")


def read_lines(path, most=None):
    with open_text(path) as lines:
        return [line.rstrip("\n") for line, _ in zip(lines, range(most))] if most else [line.rstrip("\n") for line in lines]


def copies(options, name, paths, most=None):
    """The first lines of files, all by default, as plain files of the work folder."""
    files = [os.path.join(options.work, f"{name}.{side}") for side in ("source", "target")]
    for path, file in zip(paths, files):
        with open(file, "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in read_lines(path, most))
    return files


def vocabulary(options, name, files, size):
    """A vocabulary of this many pieces, for both sides."""
    model = os.path.join(options.work, f"{name}-{size}.model")
    made = subprocess.run([options.xfc, "vocab", "--input", *files, "--size", str(size), "-o", model], capture_output=True, text=True)
    if made.returncode != 0:
        raise BenchError(f"{options.xfc} vocab failed:\n{made.stderr}")
    return model
