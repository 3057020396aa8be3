"""budget.py SECONDS MEGABYTES COMMAND...: fails if the best of five runs takes more time, or any of them more resident memory.

The seconds hold for a machine of which each of two cores compresses the text below at NOMINAL megabytes per second. A slower machine, or
one that other tests keep busy, gets proportionally more. The speed is measured before and after each run.
"""
import concurrent.futures
import resource
import subprocess
import sys
import time
import zlib

NOMINAL = 10  # one core of 2.5 GHz
THREADS = 2  # as many as the compiler has there; compressing does not hold the interpreter's lock
text = b" ".join(b"%d" % (i * 2654435761 % 2**32) for i in range(200000))


def slowness():
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(zlib.compress, [text] * THREADS))
    return max(1.0, (time.monotonic() - begin) * NOMINAL / (len(text) / 1e6))


seconds, megabytes, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
best = float("inf")
before = slowness()
for _ in range(5):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    taken = time.monotonic() - begin
    after = slowness()
    print(f"{taken:.3f} s, on a machine {(before + after) / 2:.2f} times slower than nominal")
    best, before = min(best, taken / ((before + after) / 2)), after
    if best <= seconds:
        break
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"{best:.3f} s of {seconds}, {peak:.0f} MB of {megabytes:.0f}")
sys.exit(best > seconds or peak > megabytes)
