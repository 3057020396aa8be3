"""Shared by all benchmarks: sizes, contestants that take turns in separate processes, medians, and the machine's peaks."""
import dataclasses
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
PAD, BOS, EOS, WORDS = 0, 2, 3, 4  # token ids as in models/*.json; ids from WORDS on are words


@dataclasses.dataclass(frozen=True)
class Size:
    name: str
    d_model: int
    heads: int
    layers: int
    d_ff: int
    vocab: int
    steps: int  # timed training steps per run
    positions: int = 512

    def settings(self):
        """The arguments of `xfc compile --set`; the file is small.json for every size."""
        values = {"source_vocab": self.vocab, "target_vocab": self.vocab, "d_model": self.d_model, "heads": self.heads,
                  "encoder_layers": self.layers, "decoder_layers": self.layers, "d_ff": self.d_ff}
        return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]

    # Weights that are read for a target token, for a source token, and for either as the memory of cross-attention.
    def decoder_weights(self):
        return self.layers * (6 * self.d_model**2 + 2 * self.d_model * self.d_ff) + self.d_model * self.vocab

    def encoder_weights(self):
        return self.layers * (4 * self.d_model**2 + 2 * self.d_model * self.d_ff)

    def memory_weights(self):
        return self.layers * 2 * self.d_model**2

    def forward_flops(self, source, target, hypotheses=1):
        """The model's operations for one sentence: matrix products, and attention scores and their use (causal ones count half)."""
        matrices = 2 * (source * (self.encoder_weights() + self.memory_weights()) + hypotheses * target * self.decoder_weights())
        pairs = source * source + hypotheses * (target * (target + 1) / 2 + target * source)
        return matrices + 4 * self.layers * self.d_model * pairs

    def training_flops(self, source, target):
        return 3 * self.forward_flops(source, target)


SIZES = {size.name: size for size in (
    Size("tiny", 128, 4, 2, 512, 4000, steps=20),
    Size("small", 256, 4, 3, 1024, 8000, steps=10),
    Size("base", 512, 8, 6, 2048, 16000, steps=4),
    Size("big", 1024, 16, 6, 4096, 32000, steps=2),
)}


class BenchError(Exception):
    """An error message for the user: what is wrong and what to do."""


def run_json(command, environment=None):
    """Runs a process that prints one JSON object as its last line; a failure fails the benchmark."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **(environment or {})})
    try:
        if result.returncode == 0:
            return json.loads(result.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        pass
    raise BenchError(f"{' '.join(str(word) for word in command)}\nended with status {result.returncode}:\n"
                     f"{(result.stderr or result.stdout)[-3000:]}")


@dataclasses.dataclass
class Contestant:
    """A named program; if it has several modes, the first round finds the fastest and the others are dropped."""
    name: str
    modes: dict  # mode: (command, environment)


def python_peer(script, threads, specification):
    """The command and environment of a peer: a script in this folder, given its job as JSON."""
    environment = {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                   "TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_CACHE_DIR": os.path.join(ROOT, "build", "bench", "inductor")}
    return [sys.executable, os.path.join(HERE, script), json.dumps({"threads": threads, **specification})], environment


def take_turns(contestants, rounds, log):
    """Runs all contestants in turn: a, b, c, a, b, c ... Returns for each name the median of `tokens_per_second`, its spread, and the peak memory.
    A peer that is clearly slower than the fastest in the first round gets no more rounds."""
    runs = {contestant.name: [] for contestant in contestants}
    chosen = {}
    for number in range(rounds):
        if number == 1:
            first = {name: results[0]["tokens_per_second"] for name, results in runs.items() if name != "xfc"}
            contestants = [c for c in contestants if c.name == "xfc" or first[c.name] > 0.85 * max(first.values())]
        for contestant in contestants:
            modes = contestant.modes if number == 0 else {chosen[contestant.name]: contestant.modes[chosen[contestant.name]]}
            results = {}
            for mode, (command, environment) in modes.items():
                results[mode] = run_json(command, environment)
                log(f"  {contestant.name}{mode and f' ({mode})'}: {results[mode]['tokens_per_second']:.0f} tokens/s")
            chosen[contestant.name] = max(results, key=lambda mode: results[mode]["tokens_per_second"])
            if number == 0 and len(modes) > 1 and rounds > 1:
                log(f"  {contestant.name}: goes on with {chosen[contestant.name]}")
            runs[contestant.name].append(results[chosen[contestant.name]])
    summary = {}
    for name, results in runs.items():
        rates = [result["tokens_per_second"] for result in results]
        middle = statistics.median(rates)
        summary[name] = {"mode": chosen[name], "tokens_per_second": middle, "spread": (max(rates) - min(rates)) / middle,
                         "peak_rss_mb": max(result["peak_rss_mb"] for result in results),
                         "cpu": results[0].get("cpu", ""), "type": results[0].get("type", ""), "runs": results}
    return summary


def fastest_peer(results):
    """The name and results of the fastest peer; None if there is none."""
    others = {name: result for name, result in results.items() if name != "xfc"}
    name = max(others, key=lambda other: others[other]["tokens_per_second"], default=None)
    return name, others.get(name)


def relative(rows, names):
    """For a plot: the speed of each name in each row, relative to the row's fastest peer."""
    def speed(row, name):
        return row["results"][name]["tokens_per_second"] if name in row["results"] else 0

    return {name: [speed(row, name) / speed(row, fastest_peer(row["results"])[0] or "xfc") for row in rows] for name in names}


def peak_megabytes():
    """The peak memory of this process image; getrusage's figure includes that of the process that started it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6


def translator(options, size, dtype="f32", **overrides):
    """Compiles the model of this size; all benchmarks of one run use the same executable for a type."""
    size = dataclasses.replace(size, **overrides)
    path = os.path.join(options.work, f"{size.name}-{size.vocab}-{dtype}")
    if path not in options.compiled:
        result = subprocess.run([options.xfc, "compile", os.path.join(ROOT, "models", "small.json"), "-o", path, "--dtype", dtype, *size.settings()],
                                capture_output=True, text=True)
        if result.returncode != 0:
            raise BenchError(f"{options.xfc} compile failed for {size.name}:\n{result.stderr}")
        options.compiled.add(path)
    return path


# The types of products: the benchmarks' names, xfc's, and the machine's peak for them, in 1e9 operations a second.
TYPES = {"float32": ("f32", "peak_gflops"), "bfloat16": ("bf16", "peak_bf16_gflops"), "int8": ("int8", "peak_int8_gops")}


def multiplies_bf16(flags=None):
    """Whether this machine has instructions for products in bf16; without them no program gains by the type."""
    if flags is None:
        with open("/proc/cpuinfo") as info:
            flags = next((line.split() for line in info if line.startswith("flags")), [])
    return bool({"avx512_bf16", "amx_bf16"} & set(flags))


def machine(path, threads):
    """Measured peaks for each number of threads, the highest of three measurements, and the CPU's name."""
    def peak(count):
        runs = [run_json([path, "bench", "peak", "--json", "--threads", count]) for _ in range(3)]
        return {key: max(run[key] for run in runs) for key in runs[0] if key.startswith("peak")}

    with open("/proc/cpuinfo") as info:
        lines = dict(line.split(":", 1) for line in info.read().split("\n\n")[0].splitlines() if ":" in line)
    names = {key.strip(): value.strip() for key, value in lines.items()}
    sets = [name for name in ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_bf16", "amx_int8")
            if name in names.get("flags", "").split()]
    return {"cpu": names.get("model name", "unknown"), "processors": os.cpu_count(), "instruction_sets": sets,
            "peak": {count: peak(count) for count in threads}}
