#!/usr/bin/env python3
"""What --recompute saves and costs: trains models of several sizes with and without it, interleaved, and prints a Markdown table of
the arena, the peak of the process, and the time of a step.

Usage: recompute.py [--xfc XFC] [--sizes small,base] [--batch-tokens 2048] [--threads 2] [--steps 3] [--rounds 3]
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

from common import ROOT, SIZES, run_json

LEVELS = {"everything kept": [], "--recompute": ["--recompute"], "--recompute=most": ["--recompute=most"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xfc", default=os.path.join(ROOT, "build", "bin", "xfc"))
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--batch-tokens", default="2048")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--steps", default="3")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    batch = ["--batch-tokens", options.batch_tokens, "--length", "32", "--threads", options.threads, "--json"]
    model = os.path.join(ROOT, "models", "small.json")
    print("| | | GFLOP a step | arena, MB | peak of the process, MB | ms a step | time |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sizes.split(","):
            settings = SIZES[name].settings()
            plans, runs = {}, {level: [] for level in LEVELS}
            for level, flags in LEVELS.items():
                subprocess.run([options.xfc, "compile", model, *settings, *flags, "--mode", "train", "-o", f"{folder}/{level}"], check=True,
                               stderr=subprocess.DEVNULL)
                report = subprocess.run([options.xfc, "inspect", model, *settings, *flags, *batch], check=True, capture_output=True, text=True)
                plans[level] = json.loads(report.stdout)["training step"]
            for _ in range(options.rounds):
                for level in LEVELS:
                    runs[level].append(run_json([f"{folder}/{level}", "bench", "train", "--steps", options.steps, *batch]))
            for level, plan in plans.items():
                if any(run["arena_bytes"] != plan["arena_bytes"] for run in runs[level]):
                    raise SystemExit(f"{name}, {level}: the arena is not what inspect predicted")
                # One ratio per round, since the machine's speed varies between rounds.
                ratio = statistics.median(a["step_ms_min"] / b["step_ms_min"] for a, b in zip(runs[level], runs["everything kept"]))
                print(f"| {name} | {level} | {plan['flops_per_token'] * plan['tokens'] / 1e9:.0f} | {plan['arena_bytes'] / 1e6:.0f} | "
                      f"{max(run['peak_rss_mb'] for run in runs[level]):.0f} | {min(run['step_ms_min'] for run in runs[level]):.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
