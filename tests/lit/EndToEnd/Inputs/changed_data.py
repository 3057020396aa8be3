"""changed_data.py TRANSLATOR WORK_FOLDER: what a run does when a file of pairs that it trains from is changed, cut off or replaced under it, and when
a run is resumed with other held-out text. The folder holds ids in `a` and `b`. Plain Python."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

translator, work = sys.argv[1:]


def path(*names):
    return os.path.join(work, *names)


def train(out, *more):
    return [translator, "train", "--format", "ids", "--out", path(out), "--batch-tokens", "200", "--threads", "1", "--quiet", *map(str, more)]


def call(command, status=0):
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == status, (command, result.returncode, result.stderr)
    return result.stderr


def begun(out, data):
    """A run of many epochs over the pairs that has logged its first steps."""
    process = subprocess.Popen(train(out, "--data", data, "--steps", 10**9, "--save-every", 10**6), stderr=subprocess.PIPE, text=True)
    log = path(out, "train.jsonl")
    while not os.path.exists(log) or not os.path.getsize(log):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    return process


def ended(process):
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


call([translator, "prepare", "--format", "ids", "--source", path("a"), "--target", path("b"), "--out", path("pairs"), "--quiet"])

# The same bytes are written again: nothing but the time tells.
data = shutil.copy(path("pairs"), path("rewritten"))
process = begun("run1", data)
with open(data, "r+b") as file:
    first = file.read(1)
    file.seek(0)
    file.write(first)
assert ended(process) == (1, f"error: {data}: was written to while in use; replace files by renaming new ones over them, and start again\n")

# It is cut off. What is read next is either missing, or checked because an epoch begins.
messages = []
for attempt in range(4):
    data = shutil.copy(path("pairs"), path(f"cut{attempt}"))
    process = begun(f"cut-run{attempt}", data)
    os.truncate(data, 0)
    status, said = ended(process)
    assert status == 1, (status, said)
    messages.append(re.fullmatch(re.escape(f"error: {data}") + r"(: was written to| was truncated) while in use; replace .*\n", said)[1])
assert " was truncated" in messages, messages

# It is replaced by a file of the same name, which the run does not read.
data = shutil.copy(path("pairs"), path("replaced"))
process = begun("run2", data)
with open(data + ".new", "wb") as file:
    file.write(b"something else")
os.replace(data + ".new", data)
size = os.path.getsize(path("run2", "train.jsonl"))
while os.path.getsize(path("run2", "train.jsonl")) < size + 20000: # a few epochs
    assert process.poll() is None, process.stderr.read()
    time.sleep(0.01)
process.send_signal(signal.SIGTERM)
assert ended(process) == (0, "")

# Held-out text is part of a run as well.
held = [shutil.copy(path("a"), path("va")), shutil.copy(path("b"), path("vb"))]
text = ["--source", path("a"), "--target", path("b"), "--valid-source", held[0], "--valid-target", held[1], "--valid-every", 4]
call(train("held", *text, "--steps", 4))
call(train("held", *text, "--steps", 8, "--resume"))
with open(held[1], "a+") as file:
    file.seek(0)
    lines = file.read().splitlines()
    file.truncate(0)
    file.write("\n".join(["4 5 6", *lines[1:]]) + "\n")
assert "held: the run to resume was begun with other held-out text" in call(train("held", *text, "--steps", 12, "--resume"), 1)
shutil.copy(path("b"), held[1])
call(train("held", *text, "--steps", 12, "--resume"))
