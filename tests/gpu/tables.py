"""tables.py RESULTS.jsonl...: makes Markdown tables of what verify.py recorded, in one run or in several; a later line replaces an earlier one
of the same measurement. verify.py prints its rows by the same functions. Plain Python.

A line is one raw measurement, under "record": machine, check, profile (the kernels of some training steps),
library (a library's time for one piece of work), speed (training or decoding, ours or a library's), startup, note, failure."""
import collections
import json
import math
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "bench")]  # pack.sh puts all files into one folder
import kernels as profiles
from common import SIZES

# The targeted speed relative to the fastest library; for products and attention the geometric mean.
AIMS = {"products": 0.92, "output loss": 0.92, "attention": 0.85, "attention gradient": 0.75, "training": 1.3, "decoding": 1.3}

HEADS = {
    "correctness": ("model", "image", "check", "answer"),
    "products": ("model", "image", "kernel", "shape", "xfc ms", "library ms", "library / xfc"),
    "attention": ("model", "image", "kernel", "shape", "xfc ms", "library ms", "library / xfc"),
    "training": ("model", "image", "batches", "tokens a batch", "xfc tokens/s", "ms a step", "GB", "torch.compile tokens/s", "xfc / torch"),
    "decoding": ("model", "image", "sentences", "beam", "xfc tokens/s", "ms a step", "library tokens/s", "xfc / library"),
    "startup": ("model", "image", "code", "first token ms, best", "median"),
    "step": ("kernel", "calls", "ms a step", "share", "TFLOP/s", "GB/s"),
}
TITLES = {
    "correctness": "Beside the CPU",
    "products": "Products and output losses beside torch",
    "attention": "Attention beside torch",
    "training": "Training beside torch.compile",
    "decoding": "Decoding beside a library",
    "startup": "From the start of the process to the first token",
}


def line(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def head(name):
    return line(HEADS[name]) + "\n|" + "---|" * len(HEADS[name])


def mark(ratio, aim):
    return f"{ratio:.2f}" + ("" if ratio >= aim else f" (aim {aim})")


# ---- single kernels


def pieces(profile):
    """The work in a profile that is compared with a library: {(work, epilogue): milliseconds, FLOPs, bytes, calls}."""
    tokens, length = profile["tokens"], profile["length"]
    sums = profiles.ours_of({"kernels": profile["kernels"], "parameters": 0}, tokens // length * length, length, SIZES[profile["size"]])
    wanted = (*profiles.GEMMS, "output_loss") if profile["section"] == "products" else ("attention", "attention_gradient")
    return {key: entry for key, entry in sums.items() if key[0][0] in wanted}


def aim_of(section, kind):
    return kind.replace("_", " ") if section == "attention" or kind == "output_loss" else section


def ratio_of(entry, library):
    times = library["milliseconds"] if library else {}
    return min(times.values()) / entry["ms"] if times else None


def kernel_row(profile, key, entry, library):
    work, epilogue = key
    name = work[0].replace("_", " ") + (f", {words}" if (words := epilogue.replace("bf16", "").strip()) else "")
    ratio = ratio_of(entry, library)
    times = [f"{name} {time:.4f}" for name, time in library["milliseconds"].items()] if library else []
    times += [f"{name}: {why}" for name, why in library.get("refused", {}).items()] if library else []
    return line((profile["model"], profile["image"], name, " x ".join(map(str, work[1:])), f"{entry['ms']:.4f} ({entry['flops'] / entry['ms'] * 1e-9:.0f} TFLOP/s)",
                 ", ".join(times), mark(ratio, AIMS[aim_of(profile["section"], work[0])]) if ratio else ""))


def library_times(records):
    return {tuple(record["work"]): record for record in records if record["record"] == "library"}


def step_table(profile):
    """Where the time of a step goes: sums kernels of the same name, and a product with its reduction."""
    sums = collections.defaultdict(collections.Counter)
    for kernel in profile["kernels"]:
        name = kernel["kernel"].removesuffix("_reduction")
        sums[name].update({"calls": 0 if name != kernel["kernel"] else kernel["calls"], "ms": kernel["ms"], "flops": kernel["flops"], "bytes": kernel["bytes"]})
    total = sum(entry["ms"] for entry in sums.values())
    rows = [line((name, f"{entry['calls']:.0f}", f"{entry['ms']:.3f}", f"{100 * entry['ms'] / total:.1f} %", f"{entry['flops'] / max(entry['ms'], 1e-9) * 1e-9:.1f}",
                  f"{entry['bytes'] / max(entry['ms'], 1e-9) * 1e-6:.0f}")) for name, entry in sorted(sums.items(), key=lambda item: -item[1]["ms"])]
    return f"### A step of {profile['model']}, {profile['tokens']} tokens, {profile['image']}: {total:.2f} ms in kernels\n\n" + "\n".join([head("step"), *rows])


# ---- whole programs


def same_work(record):
    return record["section"], record["size"], tuple(record["work"])


def library_speeds(records):
    return {same_work(record): record for record in records if record["record"] == "speed" and record["by"] != "xfc"}


def speed_ratio(record, library):
    if not library or not record.get("tokens_per_second") or not library.get("tokens_per_second"):
        return None
    return record["tokens_per_second"] / library["tokens_per_second"]


def speed_row(record, library):
    ratio = speed_ratio(record, library)
    theirs = f"{library['by']} {library['tokens_per_second']:.0f}" if library else ""
    cells = [record["model"], record["image"], *record["work"], f"{record['tokens_per_second']:.0f}", f"{record['step_ms_median']:.3f}"]
    if record["section"] == "training":
        cells.append(f"{(record['arena_bytes'] + record['state_bytes']) / 1e9:.2f}")
    return line((*cells, theirs, mark(ratio, AIMS[record["section"]]) if ratio else ""))


def check_row(record):
    return line((record["model"], record["image"], record["check"], ("" if record["holds"] else "FAILED: ") + record["answer"]))


def startup_row(record):
    return line((record["model"], record["image"], record["gpu"], f"{record['first_token_ms']:.0f}", f"{record['first_token_ms_median']:.0f}"))


# ---- all of it


def section_rows(section, records):
    """The rows of a section, and its ratios, grouped by their aim."""
    rows, ratios = [], collections.defaultdict(list)
    own = [record for record in records if record.get("section") == section]
    if section in ("products", "attention"):
        libraries = library_times(records)
        for profile in (record for record in own if record["record"] == "profile"):
            for key, entry in pieces(profile).items():
                library = libraries.get(key[0])
                rows.append(kernel_row(profile, key, entry, library))
                if ratio := ratio_of(entry, library):
                    ratios[aim_of(section, key[0][0])].append(ratio)
    elif section in ("training", "decoding"):
        libraries = library_speeds(records)
        for record in own:
            if record["record"] == "speed" and record["by"] == "xfc":
                library = libraries.get(same_work(record))
                rows.append(speed_row(record, library))
                if ratio := speed_ratio(record, library):
                    ratios[section].append(ratio)
    else:
        wanted, row = {"correctness": ("check", check_row), "startup": ("startup", startup_row)}[section]
        rows = [row(record) for record in own if record["record"] == wanted]
    return rows, ratios


def verdicts(section, records):
    return [f"{what.capitalize()}: geometric mean {mark(math.exp(sum(map(math.log, ratios)) / len(ratios)), AIMS[what])}, least {min(ratios):.2f}, of {len(ratios)}."
            for what, ratios in section_rows(section, records)[1].items()]


def machine_line(record):
    return f"{record['date']}; {record['gpu']}; {record['cores']} CPU cores. {record['about']}"


def identity(record):
    """Identifies the measurement of a line: a later line with the same identity replaces it."""
    said = [record["text"]] if record["record"] in ("note", "failure") else []
    return json.dumps([record.get(key) for key in ("record", "section", "model", "image", "check", "size", "tokens", "length", "work", "by")] + said)


def render(records):
    records = list({identity(record): record for record in records}.values())
    parts = [machine_line(record) for record in records if record["record"] == "machine"]
    for section, title in TITLES.items():
        rows, _ = section_rows(section, records)
        if not rows:
            continue
        parts += [f"## {title}", "\n".join([head(section), *rows])]
        parts += verdicts(section, records)
        if section == "products":
            largest = {}
            for profile in (record for record in records if record["record"] == "profile" and record["section"] == section):
                key = profile["model"], profile["image"]
                if key not in largest or profile["tokens"] > largest[key]["tokens"]:
                    largest[key] = profile
            parts += [step_table(profile) for profile in largest.values()]
    said = [record["text"] for record in records if record["record"] in ("note", "failure")]
    return "\n\n".join([*parts, *(["\n".join(f"- {text}" for text in said)] if said else [])])


def read(path):
    """The records of a file; skips a last line that was truncated when its run was interrupted."""
    records = []
    with open(path) as file:
        for number, text in enumerate(file, 1):
            try:
                records.append(json.loads(text))
            except ValueError:
                print(f"{path}, line {number}: not a whole JSON object; left out", file=sys.stderr)
    return records


def main(paths):
    if not paths:
        sys.exit("usage: tables.py RESULTS.jsonl...")
    try:
        print(render([record for path in paths for record in read(path)]))
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}; give the results.jsonl that verify.py wrote")


if __name__ == "__main__":
    main(sys.argv[1:])
