"""Compares single kernels with OpenBLAS, oneDNN and torch: xfc's as they run inside a training step, theirs alone on the same shapes."""
import collections
import json
import math
import re
import statistics

from common import python_peer, run_json, translator
from report import percent, table

LENGTH = 32
DROPOUT = 0.1
GEMMS = ("forward", "input_gradient", "weight_gradient")


def work_of(name, rows, length, size):
    """The work of a profiled kernel in terms of peer_kernels.py, and a product's epilogue; None for work that no library has as a single operation."""
    # The first matching prefix; dimensions in a kernel's name are outputs x inputs, or vocabulary x width.
    for prefix, kind, dimensions in (
        ("linear_cross_entropy_with_grad", "output_loss", None),
        ("linear_input_grad", "input_gradient", None),
        ("linear_weight_grad", "weight_gradient", None),
        ("linear", "forward", None),
        ("attention_grad", "attention_gradient", [rows // length, length, size.d_model, size.heads, DROPOUT]),
        ("attention", "attention", [rows // length, length, size.d_model, size.heads, DROPOUT]),
        ("norm_grad_with_parts", "norm_gradient", [rows, size.d_model]),
        ("sum_parts", "norm_gradient", [rows, size.d_model]),
        ("norm", "norm", [rows, size.d_model]),
        ("add_norm", "norm", [rows, size.d_model]),
        ("embedding_grad", "embedding_gradient", None),
    ):
        if found := re.match(prefix + r"_(\d+)(?:x(\d+))?", name):
            epilogue = re.sub(r"_\d+$", "", name[found.end():]).replace("_", " ").strip() if kind in GEMMS else ""
            return (kind, *(dimensions or (rows, *map(int, found.groups())))), epilogue
    return None


def ours_of(profile, rows, length, size):
    """Milliseconds, FLOPs and bytes of one piece of each kind of work and epilogue."""
    sums = collections.defaultdict(collections.Counter)
    for kernel in profile["kernels"]:
        # On a GPU a sum over many rows is started by one kernel and finished by another, which has the same name with "_reduction".
        name = kernel["kernel"].removesuffix("_reduction")
        work = work_of(name, rows, length, size)
        if kernel["location"] in ("update", "packing weights"):
            work = ("optimizer", profile["parameters"]), ""
        if not work:
            continue
        sums[work].update({"ms": kernel["ms"], "flops": kernel["flops"], "bytes": kernel["bytes"]})
        # Some work is split into several kernels: count the helper kernel with the main one, not as another piece.
        if name == kernel["kernel"] and not name.startswith("sum_parts"):
            sums[work]["calls"] += kernel["calls"]
    for work, entry in sums.items():
        entry["calls"] = 1 if work[0][0] == "optimizer" else entry["calls"]
        for key in ("ms", "flops", "bytes"):
            entry[key] /= entry["calls"]
    return sums


def measure(options):
    rows = []
    tokens = options.batch_tokens // LENGTH * LENGTH
    for size in options.sizes:
        path = translator(options, size)
        parameters = run_json([path, "info", "--json"])["parameters"]
        for threads in options.threads:
            options.log(f"kernels {size.name}, {threads} threads")
            ours, peers = collections.defaultdict(list), collections.defaultdict(lambda: collections.defaultdict(list))
            for _ in range(options.rounds):
                profile = run_json([path, "bench", "train", "--length", LENGTH, "--batch-tokens", tokens, "--steps", options.steps or size.steps,
                                    "--threads", threads, "--profile", "--json"])
                works = ours_of({**profile, "parameters": parameters}, tokens, LENGTH, size)
                for work, entry in works.items():
                    ours[work].append(entry)
                command, environment = python_peer("peer_kernels.py", threads, {"work": list(dict.fromkeys(work for work, _ in works))})
                for key, times in run_json(command, environment)["milliseconds"].items():
                    for library, time in times.items():
                        peers[tuple(json.loads(key))][library].append(time)
            listed = sum(entry["ms"] * entry["calls"] for entry in works.values()) / sum(kernel["ms"] for kernel in profile["kernels"])
            for (work, epilogue), entries in ours.items():
                middle = {key: statistics.median(entry[key] for entry in entries) for key in ("ms", "flops", "bytes")}
                rows.append({"size": size.name, "threads": threads, "kind": work[0], "shape": list(work[1:]), "epilogue": epilogue, "xfc": middle, "listed": listed,
                             "peers": {library: statistics.median(times) for library, times in peers[work].items()}})
    return rows


def speed_up(row):
    return min(row["peers"].values()) / row["xfc"]["ms"]


def markdown(rows, machine):
    lines = []
    for row in rows:
        peak, ours = machine["peak"][row["threads"]], row["xfc"]
        if row["kind"] in (*GEMMS, "attention", "attention_gradient", "output_loss"):
            reached = f"{percent(ours['flops'] / ours['ms'] * 1e-6 / peak['peak_gflops'])} of FMA"
        else:
            reached = f"{percent(ours['bytes'] / ours['ms'] * 1e-6 / peak['peak_copy_gb_per_second'])} of copying"
        name = row["kind"].replace("_", " ") + (f", {row['epilogue']}" if row["epilogue"] else "")
        lines.append([name, " x ".join(map(str, row["shape"])), row["size"], row["threads"], f"{ours['ms']:.3f}",
                      *(f"{row['peers'][library]:.3f}" if library in row["peers"] else "" for library in ("OpenBLAS", "oneDNN", "torch")),
                      f"{speed_up(row):.2f}", reached])
    sentences = []
    for kinds, epilogue, name in ((GEMMS, False, "matrix products"), (GEMMS, True, "matrix products with an epilogue"),
                                  (("attention",), False, "attention"), (("attention_gradient",), False, "attention's gradient")):
        ratios = [speed_up(row) for row in rows if row["kind"] in kinds and bool(row["epilogue"]) == epilogue]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            sentences.append(f"{name}: geometric mean {mean:.2f}, least {min(ratios):.2f}")
    return "\n\n".join([
        "Milliseconds of one call, and how many times faster than the fastest library. Ours are timed inside a step of training and include "
        "their epilogues (bias, activation, dropout, residual) and whatever the caches lost since; the libraries' run alone, again and again. "
        "Shapes: products are tokens x outputs x inputs; attention is sequences x length x width x heads x dropout, the mean of the model's own "
        "(causal ones among them) beside one that sees every key. Output loss is the projection, "
        "its cross-entropy and the gradient of its logits; the optimizer is clipping and Adam, of ours with what it repacks.",
        "Best library / xfc: " + "; ".join(sentences) + f". All kernels listed are {percent(min(row['listed'] for row in rows))} of a step or more.",
        table(["kernel", "shape", "size", "threads", "xfc ms", "OpenBLAS", "oneDNN", "torch", "best / xfc", "xfc of peak"], lines)])


def bars(rows):
    """The mean over shapes: a bar for each kind of kernel and number of threads."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    threads = sorted({row["threads"] for row in rows})

    def mean(kind, count):
        logs = [math.log(speed_up(row)) for row in rows if row["kind"] == kind and row["threads"] == count]
        return math.exp(statistics.mean(logs)) if logs else 0

    return ([kind.replace("_", " ") for kind in kinds], {f"{count} threads": [mean(kind, count) for kind in kinds] for count in threads},
            "times as fast as the fastest library")
