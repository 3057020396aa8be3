"""decoding.py: what bounds a decoding step of a GPU, as a graph and as a persistent kernel, from the plan alone: a Markdown table. Part of estimate.py.

The model. A step has few rows, so most of its kernels are a chain of waits: for the launch or the instruction before, then for memory, block of
K by block of K. A launch takes, after its gap or its wait, the longest of
- trips: the blocks of K of a tile, the parts of keys that warps take in turn, three of merge_candidates (which lists are best, then these,
  store), or two of any other kernel (load, store), each a trip to memory;
- memory: its weight and its keys and values, at the speed of a copy;
- L2: what a block reads, at the bytes per clock that a processor gets from the L2 cache, once for each block that it takes.
In a graph, weights come from memory. In a persistent step they have been fetched, and so have keys and values if the instruction before leaves
processors for it: the memory's time is that of all of them in parallel to everything else, and a trip is one to the L2 cache. An instruction
begins when those that it waits for have ended; what is counted is the longest such chain. Blocks that share a processor (a graph) take as long as one; those of a persistent kernel run one after the other."""
import dataclasses
import itertools
import math
import re
import subprocess
import sys

from h200 import CLOCK, MEMORY, PROCESSORS

# Seconds. A launch that waits for the one before in a graph (Hazy Research, "Look Ma, No Bubbles", 2025-05, on an H100); a wait for a counter: as
# the prototype of gpu-h100.md was estimated, and what its waits for operands were seen to take at most. Trips to memory and to the L2 cache.
GAP, WAIT, SLOW_WAIT = 1.3e-6, 1.1e-6, 4e-6
TRIP, L2_TRIP = 0.8e-6, 0.3e-6
L2_BYTES = 64  # a clock and processor
# ms of a step by number of sentences, as a graph of the kernels that gpu-h200.md measured, and what this model said of these kernels: products had
# tiles of 64 columns alone, and candidates 32 slabs.
MEASURED = {1: (0.653, 0.575), 64: (0.819, 0.581)}
CANDIDATES_TILE = 128  # columns of linear_candidates in bf16 (gpu.md)
FETCHED_KEYS = 16 << 20  # bytes of an attention's keys and values that are fetched at most (Persistent.cpp)


@dataclasses.dataclass
class Step:
    """A launch: its kernel, for these counts, and what it reads and waits for."""
    kernel: str
    blocks: int
    weight: int
    keys: int  # and values; bytes
    trips: int  # of a block, one after the other
    block: float  # bytes that a block reads
    after: list
    fetched: bool = False  # the keys and values, before they are read in a persistent step

    def in_graph(self):
        """The time without the gap."""
        return max(self.trips * TRIP, (self.weight + self.keys) / MEMORY, self.block / L2_BYTES / CLOCK)

    def persistent(self):
        """The time without the wait."""
        from_memory = 0 if self.fetched else self.keys
        each = max(self.trips * (TRIP if from_memory else L2_TRIP), self.block / L2_BYTES / CLOCK)
        return max(math.ceil(self.blocks / PROCESSORS) * each, from_memory / MEMORY)


def evaluate(size, counts):
    """Bytes of each kind of a size as a plan prints it: "64 + 2048 target + 4 target sequences"."""
    found = {}
    for term in size.split(" + "):
        number, *words = term.split()
        kind = words[0] if words else ""
        found[kind] = found.get(kind, 0) + int(number) * (counts[kind] if kind else 1)
    return found


def kernels_of(plan):
    kernels = {}
    for name, text in re.findall(r"^kernel @(\w+) \{(.*)\}$", plan, re.M):
        unit, per, times = re.search(r"partition = (\w+) per (\d+) times (\d+)", text).groups()
        small = re.search(r"small = @(\w+), small_rows = (\d+)", text)
        scratch = re.search(r"scratch = (\d+)", text)
        kernels[name] = (unit, int(per), int(times), int(scratch[1]) if scratch else 0, (small[1], int(small[2])) if small else None)
    return kernels


def step_of(line, kernels, counts):
    name, domain, rest = re.match(r"  launch @(\w+) over ([\w ]+?) at \[.*?\] \{(.*?)\}", line).groups()
    rows = counts[domain.split()[0]]
    original = name
    while kernels[name][4] and rows <= kernels[name][4][1]:
        name = kernels[name][4][0]
    unit, per, times, scratch, _ = kernels[name]
    blocks = (1 if unit == "one" else math.ceil(rows / per)) * times
    traffic = evaluate(re.search(r"traffic = ([^,}]*)", rest)[1], counts)
    weight = re.search(r"weight = \d+ of (\d+) bytes", rest)
    after = re.search(r"after = \[([\d, ]*)\]", rest)
    step = Step(name, blocks, int(weight[1]) if weight else 0, 0, 2, 0, [int(i) for i in after[1].split(",")] if after else [])
    if product := re.match(r"linear_(?:candidates_|to_cache_)?(\d+)x(\d+)", original):
        out, inner = map(int, product.groups())
        columns = math.ceil(out / times)
        # Two slots of rows and columns, in bf16. Candidates have the logits of a slab beside them, in f32.
        if "candidates" in original:
            logits = per * (columns + 8) * 4
            step.trips = math.ceil(columns / CANDIDATES_TILE) * math.ceil(inner / ((scratch - logits) // (2 * 2 * (per + CANDIDATES_TILE))))
        else:
            step.trips = math.ceil(inner / (scratch // (2 * 2 * (per + columns))))
        step.block = (min(rows, per) * 4 + columns * 2) * inner
    elif original.startswith("merge_candidates"):
        step.trips = 3  # the first of each list, then the best lists
    elif keys := re.search(r"keys (\w+)", domain):
        step.keys = traffic.get(keys[1], 0)
        # Four warps take a part of 16 keys each.
        step.trips = 1 + math.ceil(counts["keys"] / 64)
        step.block = step.keys / blocks
    return step


def steps_of(options, arch, sentences):
    """The launches of a greedy step of so many sentences, as many target tokens into them as their sources have."""
    counts = {"target": sentences, "source": sentences * options.decode_length, "cache": sentences * options.decode_length, "keys": options.decode_length}
    done = subprocess.run([options.xfc, "inspect", options.model, "--target", "cuda", "--cuda-arch", arch, "--dtype", "bf16", "--plan"],
                          capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"estimate.py: {done.stderr.strip()}")
    kernels = kernels_of(done.stdout)
    program = re.search(r"^program @decode_candidates .*?^\}", done.stdout, re.M | re.S)[0]
    steps = [step_of(line, kernels, counts) for line in program.splitlines() if line.startswith("  launch ")]
    for before, step in itertools.pairwise(steps):
        step.fetched = before.blocks < PROCESSORS and step.keys <= FETCHED_KEYS
    return steps


def chain(steps, wait):
    """The end of the last instruction, and how many waits lead to it."""
    ends = []
    for step in steps:
        begin, waits = max((ends[i] for i in step.after), default=(0, 0))
        ends.append((begin + wait + step.persistent(), waits + 1))
    return max(ends)


HEADER = "| kernel | launches | blocks | weight, KB | keys and values, KB | trips | us each in a graph | us each, persistent |"


TITLE = "## Decoding steps"


def report(options, arch="sm_90a"):
    """The lines of the report's last section."""
    lines = [
        TITLE, "",
        f"A greedy step, {arch}, bf16, with {options.decode_length} source tokens and as many target tokens for each sentence, by the model in the head of `tests/gpu/decoding.py`.",
        f"Assumed: {GAP * 1e6:.1f} us from launch to launch in a graph, {WAIT * 1e6:.1f} us (or {SLOW_WAIT * 1e6:.0f}) from an instruction to one that waits for it, "
        f"{TRIP * 1e6:.1f} us for a trip to memory, {L2_TRIP * 1e6:.1f} to the L2 cache,",
        f"{MEMORY / 1e12:.1f} TB/s of memory. **None of it was timed.**", ""
    ]
    for sentences in MEASURED:
        lines += section(options, arch, sentences)
    return lines


def section(options, arch, sentences):
    steps = steps_of(options, arch, sentences)
    kinds = {}
    for step in steps:
        kinds.setdefault((step.kernel, step.blocks, step.weight, step.keys, step.trips), []).append(step)
    graph = sum(GAP + step.in_graph() for step in steps)
    measured, modelled = MEASURED[sentences]
    weights = sum(step.weight for step in steps)
    read = (weights + sum(step.keys for step in steps)) / MEMORY
    (fast, waits), (slow, _) = chain(steps, WAIT), chain(steps, SLOW_WAIT)
    rows = [
        f"| {kernel} | {len(same)} | {blocks} | {weight / 1e3:.0f} | {keys / 1e3:.0f} | {trips} | {same[0].in_graph() * 1e6:.1f} | {same[0].persistent() * 1e6:.1f} |"
        for (kernel, blocks, weight, keys, trips), same in kinds.items()
    ]
    return [
        f"### {sentences} sentence{'s' if sentences > 1 else ''}", "",
        f"{len(steps)} launches, {weights / 1e6:.0f} MB of weights, which take {read * 1e6:.0f} us to read with keys and values. As a graph **{graph * 1e3:.3f} ms**, of which",
        f"{len(steps) * GAP * 1e3:.3f} are gaps. As a persistent kernel **{max(fast, read) * 1e3:.3f} ms**, a chain of {waits} waits of {WAIT * 1e6:.1f} us; "
        f"{max(slow, read) * 1e3:.3f} if a wait takes {SLOW_WAIT * 1e6:.0f}.",
        f"The graph that was measured (gpu-h200.md), with wider tiles and slabs, took {measured:.3f} ms, of which the model said {modelled:.3f}.", "", HEADER, "|---|---:|---:|---:|---:|---:|---:|---:|", *rows, ""
    ]
