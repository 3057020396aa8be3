#!/usr/bin/env python3
"""Runs a command unless it has succeeded before and nothing has changed since of what it depends on.

usage: unchanged.py RECORD PATH... -- COMMAND...
       unchanged.py --test FOLDER PATH... -- EXECUTABLE ARGUMENT...

A record keeps a sum of the command, of all files in the PATHs, and of what the machine contributes: the libraries that executables among
them load, the features of the CPU, the version of clang, and the environment variables XFC_*. If it is that of a success, the command is
not run. The exit status is 77 then, which ctest shows as skipped, or 0 with --test, which keeps a record for each test in FOLDER.
XFC_UNCHANGED=run runs commands in any case.
"""
import hashlib
import os
import sys
import time

# Variables that say how tests are run, but not what they find.
NOT_INPUTS = {"XFC_UNCHANGED", "XFC_TURNS", "XFC_TEST_PYTHON", "XFC_REQUIRE_MPI"}


def sum_of(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def run(*command):
    """What a command writes, or nothing if there is none of its name."""
    import subprocess  # slow to load, and not needed where nothing has changed
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


def files_of(path):
    """A file, or all in a folder, but for what Python keeps of modules."""
    if not os.path.isdir(path):
        return [path] if os.path.exists(path) else []
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) if "__pycache__" not in folder for name in names)


def stamp(file):
    state = os.stat(file)
    return f"{file} {state.st_size} {state.st_mtime_ns}"


def is_as_stamped(text):
    file = text.rsplit(" ", 2)[0]
    return os.path.exists(file) and stamp(file) == text


def read(file):
    with open(file, "rb") as opened:
        return opened.read()


def write(file, text):
    """Writes a file as a whole, since tests run beside each other."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    new = f"{file}.{os.getpid()}"
    with open(new, "w") as opened:
        opened.write(text)
    os.replace(new, file)


def libraries_of(file):
    """The stamps of the shared libraries that an executable loads."""
    words = map(str.split, run("ldd", file).splitlines())
    return [stamp(line[2]) for line in words if len(line) > 2 and line[1] == "=>" and os.path.exists(line[2])]


def sum_of_paths(paths, sums=None):
    """The sum of what files contain, and of the libraries of executables. `sums` is a folder that keeps it for as long as there are the same
    files, of the same sizes and times, or None."""
    files = [file for path in paths for file in files_of(path)]
    kept = os.path.join(sums, sum_of(*files)[:32]) if sums and files else None
    if kept and os.path.exists(kept):
        stamps, known = read(kept).decode().rsplit("\n", 1)
        if all(map(is_as_stamped, stamps.split("\n"))):
            return known
    stamps, parts = [], []
    for file in files:
        stamps.append(stamp(file))  # before it is read, so that a change in between is seen the next time
        content = read(file)
        libraries = libraries_of(file) if content.startswith(b"\x7fELF") else []
        parts += [file, hashlib.sha256(content).hexdigest(), *libraries]
        stamps += libraries
    result = sum_of(*parts)
    if kept:
        write(kept, "\n".join([*stamps, result]))
    return result


def machine():
    with open("/proc/cpuinfo") as info:
        features = next((line for line in info if line.startswith("flags")), "")
    return sum_of(features, *sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("XFC_") and name not in NOT_INPUTS))


class Record:
    """What is known of a test: whether it has succeeded with inputs of this sum."""

    def __init__(self, file, inputs):
        self.file, self.sum = file, sum_of(inputs, machine())

    def succeeded(self):
        """When it did, or None."""
        if os.environ.get("XFC_UNCHANGED") == "run" or not os.path.exists(self.file):
            return None
        known, _, when = read(self.file).decode().partition("\n")
        return when.strip() if known == self.sum else None

    def forget(self):
        if os.path.exists(self.file):
            os.remove(self.file)

    def keep(self):
        write(self.file, f"{self.sum}\n{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n")


def unchanged_since(when):
    return f"unchanged: nothing that this depends on has changed since it passed on {when}; XFC_UNCHANGED=run runs it"


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--")
    (where, *paths), command = arguments[:at], arguments[at + 1:]
    each = where == "--test"
    if each:
        if "--gtest_list_tests" in command:
            os.execv(command[0], command)
        folder, *paths = paths
        record = Record(os.path.join(folder, sum_of(*command)[:32]), sum_of(*command, sum_of_paths([command[0], *paths], os.path.join(folder, "sums"))))
    else:
        record = Record(where, sum_of(*command, run("clang++-22", "--version"), sum_of_paths(paths)))
    if when := record.succeeded():
        print(unchanged_since(when))
        return 0 if each else 77
    record.forget()
    status = os.spawnvp(os.P_WAIT, command[0], command)
    if status == 0:
        record.keep()
    return status if status >= 0 else 128 - status  # as a shell says that a signal ended it


if __name__ == "__main__":
    sys.exit(main())
