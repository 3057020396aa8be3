"""Helpers of the scripts that check imports and exports: they read the arguments XFC WORK_FOLDER [DRIVERS], run commands, and collect failures."""
import os
import shutil
import subprocess
import sys

xfc, work, *drivers = sys.argv[1:]
failures = []


def path(*names):
    return os.path.join(work, *names)


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{command}: exit status {result.returncode}\n{result.stderr}")
    return result


def same_on_gpu(translator, weights, folder, pad):
    """The executable does on a GPU what it does on the CPU. DRIVERS holds the PTX interpreter's libcuda.so.1."""
    run(sys.executable, os.path.join(os.path.dirname(__file__), "compare_devices.py"), translator, weights, *drivers, folder, pad)


def expect(holds, what):
    if not holds:
        failures.append(what)


def refused(what, source, *parts):
    """Import fails with exit status 1 and one line that has these parts, and leaves nothing behind."""
    before = set(os.listdir(work))
    result = subprocess.run([xfc, "import", source, "-o", path("refused")], capture_output=True, text=True)
    expect(result.returncode == 1 and result.stderr.count("\n") == 1 and all(part in result.stderr for part in parts),
           f"{what}: exit status {result.returncode}, {result.stderr!r}, not {parts}")
    left = set(os.listdir(work)) - before
    expect(not left, f"{what}: leaves {left}")
    for name in left:
        shutil.rmtree(path(name))


def check_cut(folder, lists=()):
    """Of each file of a folder nothing is left, or half, or all but its last byte: the import refuses the file by its name, unless only blanks
    are lost. What is left of the `lists`, which are lists of lines, may be a list, too."""
    refusals = 0
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        with open(file, "rb") as whole:
            contents = whole.read()
        for size in (0, len(contents) // 2, len(contents) - 1):
            with open(file, "wb") as cut:
                cut.write(contents[:size])
            imported = subprocess.run([xfc, "import", folder, "-o", path("cut")], capture_output=True).returncode == 0
            shutil.rmtree(path("cut"), ignore_errors=True)
            if contents[size:].strip() and not (imported and name in lists):
                refused(f"{name}, {size} of {len(contents)} bytes", folder, f"error: {file}:")
                refusals += 1
            else:
                expect(imported, f"{name}, {size} of {len(contents)} bytes: is refused")
        with open(file, "wb") as whole:
            whole.write(contents)
    run(xfc, "import", folder, "-o", path("cut"))
    shutil.rmtree(path("cut"))
    print(f"{folder}: {refusals} files that are cut off are refused")
