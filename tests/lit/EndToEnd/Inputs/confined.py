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


def check(name, *arguments, expected):
    """`arguments` name the FIFO, whose contents are a line of ids."""
    fifo = folder / "fifo"
    fifo.unlink(missing_ok=True)
    os.mkfifo(fifo)
    process = subprocess.Popen([executable, name, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + PATIENCE
    while True:  # until the command has opened the FIFO
        try:
            file = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            assert process.poll() is None, f"{name} ends early: {process.communicate()[1]}"
            assert time.monotonic() < end, f"{name} does not read"
            time.sleep(0.01)
    assert state(process) == CONFINED, f"{name} is not confined"
    os.write(file, b"5 6 7\n")
    os.close(file)
    output, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == expected, f"{name} ends with {process.returncode}: {error}"
    print(f"{name} is confined")


(folder / "ids").write_text("5 6 7\n")
model = ["--weights", "weights.safetensors", "--format", "ids"]
check("translate", *model, "--input", "fifo", "--output", "translation", expected=0)
check("score", *model, "--source", "fifo", "--target", "ids", expected=0)
check("evaluate", *model, "--source", "fifo", "--target", "ids", expected=0)

# `forward` reads a whole file, and takes none from a FIFO, but from a pipe at its standard input.
process = subprocess.Popen([executable, "forward", "--weights", "weights.safetensors", "--input", "/dev/stdin", "--output", "logits.safetensors"],
                           cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
end = time.monotonic() + PATIENCE
while state(process) != CONFINED:
    assert process.poll() is None and time.monotonic() < end, f"forward is not confined: {state(process)}"
    time.sleep(0.01)
error = process.communicate("5 6 7\n", timeout=PATIENCE)[1]
assert process.returncode == 1 and "/dev/stdin: " in error, error
print("forward is confined")
