"""growth.py [--lines FILE] SIZE... -- COMMAND...: fails if the peak memory of a command grows faster than a size.

@ in the command stands for the size, of which each is twice the one before; with --lines, the command reads so many lines of a file. What
memory gains from one size to the next is proportional to size^p, whatever else the command takes, so p is the slope of a line through the
gains, on logarithmic scales: 1 if memory is linear, 2 if it is quadratic. Gains of less than FLOOR are noise.
"""
import math
import os
import subprocess
import sys

FLOOR = 4e6  # bytes
MOST = 1.5


def peak(command, text):
    """Peak resident bytes of a command that reads this text."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(text)
    process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss * 1024


words = sys.argv[1:]
lines = open(words[1], "rb").readlines() if words[0] == "--lines" else []
split = words.index("--")
sizes, command = [int(word) for word in words[2 if lines else 0:split]], words[split + 1:]
assert all(later == 2 * size for size, later in zip(sizes, sizes[1:])) and (not lines or len(lines) >= sizes[-1])
peaks = [peak([word.replace("@", str(size)) for word in command], b"".join(lines[:size])) for size in sizes]
gains = [math.log2(max(FLOOR, later - earlier)) for earlier, later in zip(peaks, peaks[1:])]
middle, mean = (len(gains) - 1) / 2, sum(gains) / len(gains)
slope = sum((i - middle) * (gain - mean) for i, gain in enumerate(gains)) / sum((i - middle) ** 2 for i in range(len(gains)))
print(", ".join(f"{size}: {taken / 1e6:.0f} MB" for size, taken in zip(sizes, peaks)) + f"; grows with the power {slope:.2f}")
sys.exit(slope > MOST)
