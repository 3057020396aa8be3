#!/usr/bin/env python3
"""Draws the BLEU of training runs against the minutes that they had trained.

usage: curves.py FILE.svg RUN...    (each RUN is the --out folder of train, and the last part of its path its name)
"""
import json
import os
import sys


def curve(run):
    """Minutes of training, and the BLEU of the validation then."""
    minutes, points = 0.0, []
    with open(os.path.join(run, "train.jsonl"), encoding="utf-8") as log:
        for record in map(json.loads, log):
            minutes = record.get("wall", minutes * 60) / 60
            if "bleu" in record:
                points.append((minutes, record["bleu"]))
    return points


def main():
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "xfc"
    path, *runs = sys.argv[1:]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        axes.plot(*zip(*curve(run)), "o-", markersize=3, label=os.path.basename(os.path.normpath(run)))
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("BLEU of the validation text")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
