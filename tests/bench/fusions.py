#!/usr/bin/env python3
"""What each fusion is worth: trains a model with every fusion, without each one, and without any, interleaved, and prints a
Markdown table of tokens/s, kernel launches and memory traffic of a step, and the arena.

Usage: fusions.py [XFC] [MODEL.json] [--rounds N]     defaults: build/bin/xfc models/small.json, 3 rounds
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

FUSIONS = ["fuse-attention", "fuse-add-norm", "fuse-cross-entropy", "fuse-candidates", "merge-projections", "fuse-loss-gradient", "fuse-optimizer", "fuse-packing", "fuse-norm-grad", "fuse-epilogue", "fuse-cache-write"]
BATCH = ["--batch-tokens", "2048", "--length", "32", "--threads", "2"]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("xfc", nargs="?", default=os.path.join(root, "build/bin/xfc"))
    parser.add_argument("model", nargs="?", default=os.path.join(root, "models/small.json"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    variants = {"everything fused": []}
    variants.update({f"without {name}": [f"--no-fuse={name}"] for name in FUSIONS})
    variants["nothing fused"] = ["--no-fuse"]
    with tempfile.TemporaryDirectory() as folder:
        plans, speeds = {}, {name: [] for name in variants}
        for number, (name, flags) in enumerate(variants.items()):
            output(options.xfc, "compile", options.model, "-o", f"{folder}/{number}", *flags)
            plans[name] = json.loads(output(options.xfc, "inspect", options.model, "--json", *BATCH, *flags))["training step"]
        for _ in range(options.rounds):
            for number, name in enumerate(variants):
                result = json.loads(output(f"{folder}/{number}", "bench", "train", "--steps", "3", "--json", *BATCH))
                speeds[name].append(result["tokens_per_second"])
        whole = statistics.median(speeds["everything fused"])
        print(f"{os.path.basename(options.model)}, {' '.join(BATCH)}, {result['cpu']}\n")
        print("| | tokens/s | fused is faster by | launches | traffic, MB a step | arena, MB |\n|---|---|---|---|---|---|")
        for name, plan in plans.items():
            speed = statistics.median(speeds[name])
            print(f"| {name} | {speed:.0f} | {whole / speed:.2f} | {plan['kernels']} | "
                  f"{plan['bytes_per_token'] * plan['tokens'] / 1e6:.0f} | {plan['arena_bytes'] / 1e6:.0f} |")


if __name__ == "__main__":
    main()
