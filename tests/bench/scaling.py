"""Measures how the time and memory of a training step grow with tokens, length, vocabulary and threads."""
import math
import statistics

from common import run_json, translator

SWEEPS = {
    "tokens": [512, 1024, 2048, 4096, 8192],
    "length": [8, 16, 32, 64, 128, 256, 512],
    "vocabulary": [2000, 4000, 8000, 16000, 32000],
}
QUICK = {"tokens": [256, 512], "length": [8, 32], "vocabulary": [1000, 2000]}


def measure(options):
    curves = []
    size = options.sizes[0]
    most = max(options.threads)
    sweeps = {**(QUICK if options.quick else SWEEPS), "threads": options.threads}
    for name, values in sweeps.items():
        options.log(f"scaling {size.name} with {name}")
        runs = {value: [] for value in values}
        for _ in range(options.rounds):
            for value in values:
                at = {"tokens": options.batch_tokens, "length": 32, "vocabulary": size.vocab, "threads": most, name: value}
                # A batch holds whole sentences.
                tokens = max(at["tokens"], at["length"])
                runs[value].append(run_json([translator(options, size, vocab=at["vocabulary"]), "bench", "train", "--batch-tokens", tokens,
                                             "--length", at["length"], "--threads", at["threads"], "--steps", options.steps or 5, "--json"]))
        curves.append({"size": size.name, "name": name, "values": values,
                       "ms": [statistics.median(run["step_ms_median"] for run in runs[value]) for value in values],
                       "mb": [max(run["peak_rss_mb"] for run in runs[value]) for value in values]})
    return curves


def slope(xs, ys):
    """The exponent of y ~ x^k, by least squares over logarithms."""
    return statistics.linear_regression([math.log(x) for x in xs], [math.log(y) for y in ys]).slope


def sentence(curve):
    xs, ms, mb, name = curve["values"], curve["ms"], curve["mb"], curve["name"]
    if name == "threads":
        gains = ", ".join(f"{ms[0] / time:.2f} times as fast with {count}" for count, time in zip(xs[1:], ms[1:]))
        return f"**threads**: a step takes {ms[0]:.0f} ms with {xs[0]} thread; {gains or 'no other number was run'}; memory {mb[0]:.0f} to {mb[-1]:.0f} MB."
    line = statistics.linear_regression(xs, mb)
    return (f"**{name}**: from {xs[0]} to {xs[-1]} a step goes from {ms[0]:.1f} to {ms[-1]:.1f} ms, as {name}^{slope(xs, ms):.2f} (over the last "
            f"doubling ^{slope(xs[-2:], ms[-2:]):.2f}); memory from {mb[0]:.0f} to {mb[-1]:.0f} MB, {line.intercept:.0f} MB and "
            f"{line.slope * 1e3:.2f} kB for each.")


def markdown(curves, machine):
    return "\n\n".join([f"One step of training of {curves[0]['size']}; where nothing else is said, sentences of 32 tokens and the most threads.",
                        *(f"- {sentence(curve)}" for curve in curves)])


def lines(curves):
    return [(f"{curve['size']}: {curve['name']}", curve["name"], curve["values"], {"ms a step": curve["ms"], "peak MB": curve["mb"]})
            for curve in curves]
