"""Measures what several processes cost: trains with 2 to 8 ranks of one thread on this machine, takes the exchanges of gradients from the timeline,
and computes from that how long a step would take with up to 1,024 ranks on a network.

The model. For a gradient of P bytes and K ranks, a rank sends 2 (K - 1) messages of P / K bytes in a step, and receives as many: a share to each
rank that sums it, and its own sum to each rank. On a network, where every rank has a link of its own that sends and receives at B bytes a second,
they take 2 (K - 1) (LATENCY + P / (K B)); nothing is assumed to overlap. On one machine, all K (K - 1) messages of either kind are copied by the
same memory, so they take 2 (K - 1) P / M in all, where M is fitted to the runs with 2 ranks and checked with the others."""
import json
import os
import random
import shutil
import statistics
import subprocess

from common import WORDS, BenchError, translator
from report import percent, table

LAUNCHERS = ("mpiexec.mpich", "mpiexec")
COUNTS = [2, 4, 8]
ESTIMATED = [2, 8, 64, 256, 1024]
LATENCY = 5e-6                 # seconds per message
LINKS = {"10 Gb/s": 1.25e9, "100 Gb/s": 12.5e9, "400 Gb/s": 50e9}
STEP = 1.0                     # seconds a rank computes per step: --accumulate makes it as long as one likes
# Open MPI refuses to run as root or to start more processes than there are cores unless it is told to.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def launcher():
    return next(filter(None, map(shutil.which, LAUNCHERS)), None)


def text(options, size):
    """Sentences of 31 random words, as ids; the same for both sides."""
    path = os.path.join(options.work, f"{size.name}.ids")
    if not os.path.exists(path):
        rng = random.Random(1)
        with open(path, "w") as file:
            for _ in range(4000):
                file.write(" ".join(str(rng.randrange(WORDS, size.vocab)) for _ in range(31)) + "\n")
    return path


def run(options, size, count, steps):
    """The exchanges of gradients of one step: how many, the bytes a rank sent and received in them, and the seconds they took."""
    folder, trace = os.path.join(options.work, f"{size.name}-{count}-ranks"), os.path.join(options.work, "trace.json")
    shutil.rmtree(folder, ignore_errors=True)
    command = [launcher(), "-n", count, translator(options, size), "train", "--format", "ids", "--source", text(options, size), "--target", text(options, size),
               "--out", folder, "--threads", 1, "--batch-tokens", options.batch_tokens, "--steps", steps + 1, "--save-every", steps + 1,
               "--trace", trace, "--trace-steps", f"2:{steps + 1}", "--quiet"]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})
    if result.returncode:
        raise BenchError(f"{' '.join(map(str, command))}\nended with status {result.returncode}:\n{result.stderr[-3000:]}")
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    # All ranks make the same exchanges in the same order. The rank that comes last waits for nobody, so its time is that of the transfer alone.
    ranks = [[event for event in events if event.get("cat") == "exchange" and event["pid"] == rank] for rank in range(count)]
    shares = [together for together in zip(*ranks) if together[0]["args"].get("bytes", 0) > 1e5]
    return {"exchanges": len(shares) / steps, "bytes": sum(together[0]["args"]["bytes"] for together in shares) / steps,
            "seconds": sum(min(event["dur"] for event in together) for together in shares) / steps / 1e6}


def measure(options):
    rows = []
    if not launcher():
        options.log("ranks: no MPI launcher is installed")
        return rows
    for size in options.sizes:
        parameters = json.loads(subprocess.run([translator(options, size), "info", "--json"], capture_output=True, text=True, check=True).stdout)["parameters"]
        for count in COUNTS[:1] if options.quick else COUNTS:
            options.log(f"ranks {size.name}, {count}")
            runs = [run(options, size, count, options.steps or size.steps) for _ in range(options.rounds)]
            rows.append({"size": size.name, "gradient": 4 * parameters, "ranks": count, "exchanges": runs[0]["exchanges"], "bytes": runs[0]["bytes"],
                         "seconds": statistics.median(each["seconds"] for each in runs)})
    return rows


def onNetwork(gradient, count, link):
    return 2 * (count - 1) * (LATENCY + gradient / count / link)


def markdown(rows, machine):
    if not rows:
        return "No MPI launcher is installed."
    measured, estimated = [], []
    for row in rows:
        gradient, count = row["gradient"], row["ranks"]
        if count == 2:
            speed = 2 * gradient / row["seconds"]
            estimated += [[row["size"], f"{gradient / 1e6:.0f}", link, *(f"{1e3 * onNetwork(gradient, k, LINKS[link]):.0f} ms, "
                           f"{percent(STEP / (STEP + onNetwork(gradient, k, LINKS[link])))}" for k in ESTIMATED)] for link in LINKS]
        said = 2 * (count - 1) / count * gradient * 2  # sent and received
        measured.append([row["size"], f"{gradient / 1e6:.1f}", count, f"{row['exchanges']:.0f}", f"{row['bytes'] / 1e6:.1f}", f"{said / 1e6:.1f}",
                         f"{1e3 * row['seconds']:.1f}", f"{1e3 * 2 * (count - 1) * gradient / speed:.1f}"])
    return "\n\n".join([
        "Ranks of one thread on this machine. A rank's bytes per step, sent and received, as traced and as computed; the time of the exchanges, measured "
        "and as computed from the run with 2 ranks.",
        table(["size", "gradient, MB", "ranks", "exchanges", "MB", "computed", "ms", "computed"], measured),
        f"Estimated, not measured: the time that the exchanges take on a network with {1e6 * LATENCY:.0f} us per message, and the speed per rank, relative "
        f"to that of a rank that trains alone, if a rank computes for {STEP:.0f} s per step (batches times --accumulate) and nothing overlaps.",
        table(["size", "gradient, MB", "link", *(f"{count} ranks" for count in ESTIMATED)], estimated)])
