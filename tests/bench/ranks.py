"""Measures what several processes cost: trains with 2 to 8 ranks of one thread on this machine, takes the exchanges from the timeline, and computes
from that how long a step would take with up to 1,024 ranks on a network.

The model. For a gradient of P bytes and K ranks, a rank sends K - 1 messages of P / K bytes, cut into buckets, while the backward pass runs: a share
to each rank that sums it. After the update, it sends K - 1 more: its own parameters to each rank. It receives as many. On a network, where every rank
has a link of its own that sends and receives at B bytes a second, the latter take (K - 1) (LATENCY + P / (K B)), and nothing overlaps with them. Of the
former, what does not fit into the backward pass remains, but at least the last bucket. On one machine, all K (K - 1) messages of either kind are copied
by the same memory, so those after the update take (K - 1) P / M in all, where M is fitted to the runs with 2 ranks and checked with the others."""
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
STEP = 1.0                     # seconds a rank computes per step
BACKWARD = 0.6                 # of a step
BUCKET = 4 << 20               # bytes
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
    """Of one step: the bytes a rank sent and received, and the seconds it waited for gradients and then took to gather the parameters."""
    folder, trace = os.path.join(options.work, f"{size.name}-{count}-ranks"), os.path.join(options.work, "trace.json")
    shutil.rmtree(folder, ignore_errors=True)
    command = [launcher(), "-n", count, translator(options, size), "train", "--format", "ids", "--source", text(options, size), "--target", text(options, size),
               "--out", folder, "--threads", 1, "--batch-tokens", options.batch_tokens, "--steps", steps + 1, "--save-every", steps + 2,
               "--trace", trace, "--trace-steps", f"2:{steps + 1}", "--quiet"]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})
    if result.returncode:
        raise BenchError(f"{' '.join(map(str, command))}\nended with status {result.returncode}:\n{result.stderr[-3000:]}")
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    mine = [event for event in events if event["pid"] == 0 and event.get("cat") == "exchange"]

    def seconds(name):
        # All ranks do the same in the same order. The rank that comes last waits for nobody, so its time is that of the transfer alone.
        ranks = [[event["dur"] for event in events if event.get("cat") == "ranks" and event["name"] == name and event["pid"] == rank] for rank in range(count)]
        return sum(min(together) for together in zip(*ranks)) / steps / 1e6

    return {"bytes": sum(event["args"].get("bytes", 0) for event in mine) / steps, "waiting": seconds("add gradients"),
            "gathering": seconds("gather parameters")}


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
            rows.append({"size": size.name, "gradient": 4 * parameters, "ranks": count, "bytes": runs[0]["bytes"],
                         **{key: statistics.median(each[key] for each in runs) for key in ("waiting", "gathering")}})
    return rows


def onNetwork(gradient, count, link):
    """The seconds of a step in which a rank waits for others."""
    gathering = (count - 1) * (LATENCY + gradient / count / link)
    buckets = -(-gradient // BUCKET)
    summing = (count - 1) * (buckets * LATENCY + gradient / count / link)
    return gathering + max(summing - BACKWARD * STEP, summing / buckets)


def markdown(rows, machine):
    if not rows:
        return "No MPI launcher is installed."
    measured, estimated = [], []
    for row in rows:
        gradient, count = row["gradient"], row["ranks"]
        if count == 2:
            speed = gradient / row["gathering"]
            estimated += [[row["size"], f"{gradient / 1e6:.0f}", link, *(f"{1e3 * onNetwork(gradient, k, LINKS[link]):.0f} ms, "
                           f"{percent(STEP / (STEP + onNetwork(gradient, k, LINKS[link])))}" for k in ESTIMATED)] for link in LINKS]
        said = 2 * (count - 1) / count * gradient * 2  # sent and received
        measured.append([row["size"], f"{gradient / 1e6:.1f}", count, f"{row['bytes'] / 1e6:.1f}", f"{said / 1e6:.1f}", f"{1e3 * row['waiting']:.1f}",
                         f"{1e3 * row['gathering']:.1f}", f"{1e3 * (count - 1) * gradient / speed:.1f}"])
    return "\n\n".join([
        "Ranks of one thread on this machine. A rank's bytes per step, sent and received, as traced and as computed; the time it waits for gradients after "
        "the backward pass; and the time in which it gathers the parameters, measured and as computed from the run with 2 ranks.",
        table(["size", "gradient, MB", "ranks", "MB", "computed", "waiting, ms", "gathering, ms", "computed"], measured),
        f"Estimated, not measured: the time that a rank waits on a network with {1e6 * LATENCY:.0f} us per message, and the speed per rank, relative "
        f"to that of a rank that trains alone, if a rank computes for {STEP:.0f} s per step, of which the backward pass takes {percent(BACKWARD)}.",
        table(["size", "gradient, MB", "link", *(f"{count} ranks" for count in ESTIMATED)], estimated)])
