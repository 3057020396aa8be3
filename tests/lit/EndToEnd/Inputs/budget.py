"""budget.py SECONDS MEGABYTES COMMAND...: fails if the best of three runs takes more time, or any more resident memory."""
import resource
import subprocess
import sys
import time

seconds, megabytes, command = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
best = float("inf")
for _ in range(3):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    best = min(best, time.monotonic() - begin)
    if best <= seconds:
        break
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"{best:.3f} s of {seconds}, {peak:.0f} MB of {megabytes:.0f}")
sys.exit(best > seconds or peak > megabytes)
