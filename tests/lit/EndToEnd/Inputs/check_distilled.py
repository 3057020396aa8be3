"""check_distilled.py SOURCE NBEST TABLE RUN: the table has each translation of the N-best list beside its source, with its share of the
probabilities of the line; the run that learned from it translates the validation text better at its end."""
import collections
import json
import math
import os
import sys

source, nbest, table, run = sys.argv[1:]
lines = open(source).read().splitlines()
groups = collections.defaultdict(list)
for row in open(nbest).read().splitlines():
    number, translation, score = row.split("\t")
    groups[int(number)].append((translation, float(score)))
rows = [row.split("\t") for row in open(table).read().splitlines()]
expected = []
for number, found in sorted(groups.items()):
    total = math.fsum(math.exp(score) for _, score in found)
    expected += [(lines[number - 1], translation, math.exp(score) / total) for translation, score in found]
assert len(groups) == len(lines) and len(rows) == len(expected) > 2 * len(lines), (len(groups), len(rows), len(expected))
for (text, translation, weight), (ours, theirs, share) in zip(rows, expected, strict=True):
    assert (text, translation) == (ours, theirs) and abs(float(weight) - share) < 1e-5, (text, translation, weight, share)
assert len({weight for _, _, weight in rows}) > len(lines), "the weights say nothing"

losses = [json.loads(line)["valid_nll"] for line in open(os.path.join(run, "train.jsonl")) if "valid_nll" in line]
assert len(losses) == 2 and losses[1] < losses[0] - 0.1, losses
print("distilled")
