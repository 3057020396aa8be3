"""confined.py EXECUTABLE FOLDER: the commands that read untrusted text or files confine themselves before they read any.

Each command is given a FIFO, or a pipe, in place of a file that it reads. While it waits for its contents, it must have one filter of
system calls more than this process, and may not gain privileges."""
import os
import pathlib
import re
import subprocess
import sys
import time

executable, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
PATIENCE = 60  # seconds


def status(process, key):
    return int(re.search(rf"^{key}:\s*(\d+)$", pathlib.Path(f"/proc/{process}/status").read_text(), re.MULTILINE)[1])


CONFINED = 2, 1, 1


def state(process):
    """The mode of its filters, their number above this process's, and whether it may not gain privileges."""
    return status(process.pid, "Seccomp"), status(process.pid, "Seccomp_filters") - status("self", "Seccomp_filters"), status(process.pid, "NoNewPrivs")


def start(name, *arguments, **pipes):
    return subprocess.Popen([executable, name, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **pipes)


def wait(name, process, what, done):
    """Waits until `done` returns something but None, and returns that."""
    end = time.monotonic() + PATIENCE
    while (found := done()) is None:
        assert process.poll() is None, f"{name} ends early: {process.communicate()[1]}"
        assert time.monotonic() < end, f"{name} {what}"
        time.sleep(0.01)
    return found


def opened(fifo):
    """A descriptor to write to the FIFO, or None while no process has opened it to read."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def check(name, *arguments):
    """`arguments` name the FIFO, whose contents are a line of ids."""
    fifo = folder / "fifo"
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    process = start(name, *arguments)
    file = wait(name, process, "does not read", lambda: opened(fifo))
    assert state(process) == CONFINED, f"{name} is not confined"
    os.write(file, b"5 6 7\n")
    os.close(file)
    output, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"{name} ends with {process.returncode}: {error}"
    print(f"{name} is confined")


(folder / "ids").write_text("5 6 7\n")
model = ["--weights", "weights.safetensors", "--format", "ids"]
check("translate", *model, "--input", "fifo", "--output", "translation")
check("score", *model, "--source", "fifo", "--target", "ids")
check("evaluate", *model, "--source", "fifo", "--target", "ids")

# `forward` refuses a FIFO but reads a pipe at its standard input. Nothing is written to the pipe before it is confined.
process = start("forward", "--weights", "weights.safetensors", "--input", "/dev/stdin", "--output", "logits.safetensors", stdin=subprocess.PIPE)
wait("forward", process, "is not confined", lambda: True if state(process) == CONFINED else None)
error = process.communicate("5 6 7\n", timeout=PATIENCE)[1]
assert process.returncode == 1 and "/dev/stdin: " in error, error
print("forward is confined")
