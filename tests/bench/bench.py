#!/usr/bin/env python3
"""Benchmarks of xfc beside its peers, interleaved in one run: report.md, a plot a section, and results.json under --output.

A peer that fails to run fails the benchmark. Needs the packages of requirements.txt; tests/bench/run.sh installs them.
"""
import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time

import bleu
import decode
import imported
import kernels
import ranks
import scaling
import startup
import train
from common import ROOT, SIZES, TYPES, BenchError, machine, multiplies_bf16, translator
from report import plot_bars, plot_curves

SECTIONS = {"train": (train, "Training"), "decode": (decode, "Decoding"), "kernels": (kernels, "Kernels"), "startup": (startup, "Start-up"),
            "scaling": (scaling, "How cost grows"), "ranks": (ranks, "Several processes"), "imported": (imported, "Imported models"),
            "bleu": (bleu, "Time to a BLEU")}


def parse():
    def several(known):
        def parse_list(text):
            names = text.split(",")
            for name in names:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}")
            return names
        return parse_list

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=several(SECTIONS), default=list(SECTIONS), help=f"sections: {','.join(SECTIONS)} (all)")
    parser.add_argument("--sizes", type=several(SIZES), help=f"of {','.join(SIZES)} (tiny,small,base)")
    parser.add_argument("--types", type=several(TYPES), help=f"of {','.join(TYPES)}, which of them training and decoding have (all; bfloat16 only if "
                                                             "the machine has instructions for it, and not with --quick)")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2], help="numbers of threads (1,2)")
    parser.add_argument("--rounds", type=int, help="turns of each program (3)")
    parser.add_argument("--steps", type=int, help="timed steps of training in a turn (by size)")
    parser.add_argument("--batch-tokens", type=int, help="most tokens a side in a batch (2048)")
    parser.add_argument("--source", help="text, plain or gzip, for real lengths; without it only fixed lengths are run")
    parser.add_argument("--target", help="its translation, line by line")
    for task in bleu.TASKS:
        parser.add_argument(f"--{task.option}", nargs=4, metavar=("SOURCE", "TARGET", "VALID_SOURCE", "VALID_TARGET"),
                            help=f"bleu: text and held-out text, of which size {task.size} trains on {task.pairs or 'all'} pairs to BLEU {task.bleu:g}")
    parser.add_argument("--bleu", type=float, help="bleu: the one to reach, in place of these")
    parser.add_argument("--bleu-minutes", type=float, default=20, help="bleu: most minutes of training for each program (20)")
    parser.add_argument("--variant", choices=("eager", "sdpa"), default="sdpa", help="bleu: the form of torch (sdpa)")
    parser.add_argument("--xfc", default=os.path.join(ROOT, "build", "bin", "xfc"), help="the compiler")
    parser.add_argument("--output", default=os.path.join(ROOT, "build", "bench"), help="folder for the report (build/bench)")
    parser.add_argument("--quick", action="store_true", help="one short turn of tiny with one thread, to see that all of it works; "
                                                             "leaves out decoding peers and plots whose packages are missing, and torch.compile")
    options = parser.parse_args()
    if bool(options.source) != bool(options.target):
        parser.error("--source and --target go together")
    if options.quick:
        options.threads, options.rounds, options.steps = options.threads[:1], options.rounds or 1, options.steps or 2
    options.rounds = options.rounds or 3
    options.batch_tokens = options.batch_tokens or (512 if options.quick else 2048)
    options.sizes = [SIZES[name] for name in options.sizes or (["tiny"] if options.quick else ["tiny", "small", "base"])]
    options.types = options.types or [name for name in TYPES if name != "bfloat16" or (multiplies_bf16() and not options.quick)]
    options.log = lambda text: print(text, file=sys.stderr, flush=True)
    if not options.quick and not importlib.util.find_spec("matplotlib"):
        parser.error("matplotlib is missing, which draws the results; run.sh installs it")
    options.compiled = set()
    return options


def draw(name, section, data, folder):
    path = os.path.join(folder, f"{name}.svg")
    if not data:
        return ""
    if hasattr(section, "bars"):
        plot_bars(path, SECTIONS[name][1], *section.bars(data))
    elif hasattr(section, "lines"):
        plot_curves(path, section.lines(data))
    else:
        return ""
    return f"\n\n![{SECTIONS[name][1]}]({name}.svg)"


def main():
    options = parse()
    os.makedirs(options.output, exist_ok=True)
    can_draw = importlib.util.find_spec("matplotlib")
    with tempfile.TemporaryDirectory(dir=options.output) as options.work:
        about = machine(translator(options, options.sizes[0]), options.threads)
        peaks = "; ".join(f"{count} threads: {peak['peak_gflops']:.0f} GFLOP/s, {peak['peak_bf16_gflops']:.0f} in bf16, "
                          f"{peak['peak_int8_gops']:.0f} in int8, reads {peak['peak_read_gb_per_second']:.1f} GB/s, copies "
                          f"{peak['peak_copy_gb_per_second']:.1f} GB/s" for count, peak in about["peak"].items())
        parts = [f"# xfc beside its peers\n\n{time.strftime('%Y-%m-%d')}, {about['cpu']}, {about['processors']} processors, "
                 f"{' '.join(about['instruction_sets'])}. Measured peaks: {peaks}. {options.rounds} turns of each program, interleaved; "
                 "one of a peer more than 15 % slower than the fastest."]
        results = {"machine": about, "rounds": options.rounds}
        for name in options.only:
            section, title = SECTIONS[name]
            results[name] = section.measure(options)
            parts.append(f"## {title}\n\n{section.markdown(results[name], about)}"
                         + (draw(name, section, results[name], options.output) if can_draw else ""))
            # After each section, so that a later failure does not lose results.
            with open(os.path.join(options.output, "results.json"), "w") as file:
                json.dump(results, file, indent=1)
            with open(os.path.join(options.output, "report.md"), "w") as file:
                file.write("\n\n".join(parts) + "\n")
    print(os.path.join(options.output, "report.md"))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"error: {error}")
