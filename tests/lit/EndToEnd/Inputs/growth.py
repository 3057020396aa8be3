"""growth.py [--constant] [--announced] [--lines FILE] SIZE... -- COMMAND...: fails if what a command takes grows faster than a size.

@ in the command stands for the size, of which each is twice the one before; with --lines, the command reads so many lines of a file.
Measured are the peak memory of a process and the processors' time of all. What these gain from one size to the next is proportional to
size^p, whatever else the command takes, so p is the slope of a line through the gains, on logarithmic scales: 1 if they are linear, 2 if
quadratic. With --constant, memory must not grow at all; with --announced, no more than the memory that the command announces.
"""
import math
import os
import re
import subprocess
import sys

MEASURES = {"MB": (lambda used: used.ru_maxrss * 1024 / 1e6, 4),  # smaller gains are noise
            "s": (lambda used: used.ru_utime + used.ru_stime, 0.5)}
MOST = 1.5


def run(command, text):
    """What the command took that reads this text, and the MB that it announced."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.stdin.write(text)
    process.stdin.close()
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: {os.waitstatus_to_exitcode(status)}: {said}")
    announced = re.search(r"(\d+) MB of memory", said)
    return used, int(announced[1]) if announced else 0


def slope(gains):
    middle, mean = (len(gains) - 1) / 2, sum(gains) / len(gains)
    return sum((i - middle) * (gain - mean) for i, gain in enumerate(gains)) / sum((i - middle) ** 2 for i in range(len(gains)))


words = sys.argv[1:]
constant = words[0] == "--constant"
words = words[constant:]
checked = words[0] == "--announced"
words = words[checked:]
lines = open(words[1], "rb").readlines() if words[0] == "--lines" else []
split = words.index("--")
sizes, command = [int(word) for word in words[2 if lines else 0:split]], words[split + 1:]
assert all(later == 2 * size for size, later in zip(sizes, sizes[1:])) and (not lines or len(lines) >= sizes[-1])
taken, announced = zip(*[run([word.replace("@", str(size)) for word in command], b"".join(lines[:size])) for size in sizes])
failed = False
for unit, (measure, noise) in MEASURES.items():
    amounts = [measure(used) for used in taken]
    power = slope([math.log2(max(noise, later - earlier)) for earlier, later in zip(amounts, amounts[1:])])
    print(", ".join(f"{size}: {amount:.1f} {unit}" for size, amount in zip(sizes, amounts)) + f"; grows with the power {power:.2f}")
    failed |= max(amounts) - amounts[0] > noise if constant and unit == "MB" else power > MOST
if checked:
    first, last = (MEASURES["MB"][0](taken[i]) for i in (0, -1))
    print(f"announced: {announced}")
    failed |= last - first > announced[-1] - announced[0] + 1  # announced in whole MB
sys.exit(failed)
