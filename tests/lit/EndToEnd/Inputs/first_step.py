"""The time from the start of a training to its first step, from 10^4, 10^6 and 10^7 prepared pairs.

    first_step.py TRANSLATOR FOLDER

The shortest of several runs counts, because other work on the machine only ever adds time.
"""
import os
import shutil
import subprocess
import sys
import time

translator, folder = sys.argv[1:]
os.chdir(folder)
for pairs in (10**4, 10**6):
    with open("ids", "w") as file:
        file.write("5 6 7\n8 9\n" * (pairs // 2))
    subprocess.run([translator, "prepare", "--format", "ids", "--source", "ids", "--target", "ids", "--out", f"pairs-{pairs}", "--quiet"], check=True)
DATA = {10**4: ["pairs-10000"], 10**6: ["pairs-1000000"], 10**7: 10 * ["pairs-1000000"]}


def measure(pairs):
    """The time of a training of one step, and that of its processor cores, on which other work has little effect."""
    shutil.rmtree("run", ignore_errors=True)
    began = time.monotonic()
    process = subprocess.Popen([translator, "train", "--format", "ids", "--data", *DATA[pairs], "--out", "run", "--steps", "1", "--batch-tokens", "256",
                                "--threads", "1", "--quiet"])
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    assert status == 0 and os.path.getsize("run/train.jsonl") > 0
    return took, usage.ru_utime + usage.ru_stime


times = {pairs: [] for pairs in DATA}
for turn in range(10):
    for pairs in DATA:
        times[pairs].append(measure(pairs))
    wall = {pairs: min(took for took, _ in all) for pairs, all in times.items()}
    cores = {pairs: min(used for _, used in all) for pairs, all in times.items()}
    # Half a million pairs are put in order first, so that 10^6 pairs take longer than 10^4. To do so for all of 10^7 is ten times as much work
    # as for 10^6.
    fine = max(wall.values()) < 2 and cores[10**6] < 10 * cores[10**4] and cores[10**7] < 4 * cores[10**6]
    if fine and turn >= 2:
        break
print(", ".join(f"{pairs} pairs: {wall[pairs]:.2f} s, of which a core computes {cores[pairs]:.2f} s" for pairs in DATA))
assert fine
