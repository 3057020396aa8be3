"""Training takes the same memory for corpora of two pools and of four, raw or prepared, unless text is kept in memory.

    training_memory.py TRANSLATOR VOCABULARY FOLDER

A training from prepared pairs goes on to the last pool: at most two are then in memory, one that is used, and the next one, which is planned
meanwhile. The others end after two steps, of the first pool.

Also shows the progress of `prepare` on a terminal.
"""
import os
import pty
import re
import subprocess
import sys

translator, vocabulary, folder = sys.argv[1:]
POOL = 64 * 8192  # pairs
ROOM = 20 << 10  # kB; a pool in memory takes 20 MB, and of a file the system also maps some pages around those of a pool


def path(name):
    return os.path.join(folder, name)


def peak(*words):
    """The most memory that the command holds, in kB."""
    process = subprocess.Popen([translator, *words, "--threads", "2", "--quiet"])
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, (words, status)
    return usage.ru_maxrss


def train(pools, out, *words, until=("--steps", "2")):
    return peak("train", *until, *words, "--out", path(f"{out}-{pools}"), "--batch-tokens", "16384")


for pools in (2, 4):
    for name, line in (("ids", "5 6"), ("text", "anna")):
        with open(path(f"{name}-{pools}"), "w") as file:
            file.write((line + "\n") * (pools * POOL))


def both(name, pools):
    return ["--source", path(f"{name}-{pools}"), "--target", path(f"{name}-{pools}")]


SMALL = ["--text-memory", "1MB"]
IDS, TEXT = ["--format", "ids"], ["--vocab", vocabulary]
CASES = {
    "prepare": lambda pools: peak("prepare", *IDS, *both("ids", pools), "--out", path(f"pairs-{pools}")),
    "prepared": lambda pools: train(pools, "prepared", *IDS, "--data", path(f"pairs-{pools}"), until=("--epochs", "1")),
    "raw": lambda pools: train(pools, "raw", *IDS, *both("ids", pools), *SMALL),
    "sampled": lambda pools: train(pools, "sampled", *TEXT, *both("text", pools), *SMALL, "--sentencepiece-alphas", "0.1"),
    "in memory": lambda pools: train(pools, "memory", *IDS, *both("ids", pools)),
}
for name, case in CASES.items():
    peaks = [case(pools) for pools in (2, 4)]
    print(f"{name}: {peaks[0]} and {peaks[1]} kB")
    assert (peaks[1] < peaks[0] + ROOM) == (name != "in memory"), f"{name}: {peaks}"

terminal, other = pty.openpty()
process = subprocess.Popen([translator, "prepare", *IDS, *both("ids", 2), "--out", path("shown")], stderr=other)
os.close(other)
shown = b""
try:
    while part := os.read(terminal, 1 << 16):
        shown += part
except OSError:  # the end of a terminal
    pass
assert process.wait() == 0
assert re.search(rb"\r\[=+ *\] +\d+%  \d+ pairs  ETA \d+:\d\d", shown), shown
