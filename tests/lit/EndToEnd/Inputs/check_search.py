"""Checks `translate` against `score`, which computes whole sentences at once, without a cache: check_search.py
TRANSLATOR WEIGHTS VOCABULARY WORK_FOLDER [START]. Plain Python.

A beam wider than the number of possible sequences must list them all in the order of their scores. Sampling, prefixes, lengths,
alignments and packed executables are checked on the way.
"""
import itertools
import json
import math
import os
import subprocess
import sys

import id_lines

translator, weights, vocabulary, work, *start = sys.argv[1:]
PAD, START, EOS = 0, int(start[0]) if start else 2, 3
tokens = [t for t in range(int(vocabulary)) if t not in (PAD, START, EOS)]
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def call(*arguments, executable=translator, text=None):
    result = subprocess.run([executable, *map(str, arguments)], input=text, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{arguments}: exit status {result.returncode}\n{result.stderr}")
    return result.stdout


def translate(sources, *arguments):
    out = call("translate", "--weights", weights, "--format", "ids", "--input", id_lines.write(work, "source", sources), "--json", *arguments)
    return [json.loads(line)["hypotheses"] for line in out.splitlines()]


def token_scores(sources, targets):
    out = call("score", "--weights", weights, "--format", "ids", "--source", id_lines.write(work, "score.source", sources),
               "--target", id_lines.write(work, "score.target", targets), "--token-scores", "--json")
    return json.loads(out)["token_log_probabilities"]


def score(sources, targets):
    out = call("score", "--weights", weights, "--format", "ids", "--source", id_lines.write(work, "score.source", sources),
               "--target", id_lines.write(work, "score.target", targets))
    return [float(line) for line in out.splitlines()]


def near(a, b):
    return abs(a - b) <= 2e-5 * max(1, abs(b))


sources = [[4, 5, 6, EOS], [7, EOS], [5, 5, 4, 8, 6, 7, EOS], [4]]
penalty = 0.6
for shortest, longest in ((0, 2), (2, 3)):
    sequences = [list(s) for n in range(shortest, longest + 1) for s in itertools.product(tokens, repeat=n)]
    found = translate(sources, "--beam", 1000, "--n-best", 1000, "--min-length", shortest, "--max-length", longest,
                      "--length-penalty", penalty)
    for source, hypotheses in zip(sources, found, strict=True):
        known = dict(zip(map(tuple, sequences), score([source] * len(sequences), sequences), strict=True))
        expect(len(hypotheses) == len(known), f"{source}: {len(hypotheses)} sequences, expected {len(known)}")
        expect({tuple(h["ids"]) for h in hypotheses} == set(known), f"{source}: other sequences")
        for h in hypotheses:
            n, p = len(h["ids"]) + 1, known[tuple(h["ids"])]
            expect(near(h["log_probability"], p), f"{source} {h['ids']}: {h['log_probability']}, score says {p}")
            expect(near(h["score"], h["log_probability"] / ((5 + n) / 6) ** penalty), f"{source} {h['ids']}: penalty")
        scores = [h["score"] for h in hypotheses]
        expect(scores == sorted(scores, reverse=True), f"{source}: not in order")
        if shortest == 0:
            total = sum(math.exp(p) for p in score([source] * (len(tokens) + 1), [[]] + [[t] for t in tokens]))
            expect(total < 1, f"{source}: probabilities sum to {total}")

# A narrow beam: log-probabilities of long translations, after many reorderings of the cache.
found = translate(sources, "--beam", 4, "--n-best", 4, "--max-length", 15)
flat = [(s, h) for s, hs in zip(sources, found) for h in hs]
for (source, h), p in zip(flat, score([s for s, _ in flat], [h["ids"] for _, h in flat]), strict=True):
    expect(near(h["log_probability"], p), f"beam 4: {source} {h['ids']}: {h['log_probability']}, score says {p}")

# Those of tokens are what the search has recorded of each, and add up; those that were cut off have none of eos.
for options in ([], ["--at-max-length", "cut"], ["--sample", "--seed", 5]):
    found = translate(sources, "--beam", 4, "--n-best", 4, "--max-length", 15, "--token-scores", *options)
    flat = [(s, h) for s, hs in zip(sources, found) for h in hs]
    for (source, h), all_of in zip(flat, token_scores([s for s, _ in flat], [h["ids"] for _, h in flat]), strict=True):
        own = h["token_log_probabilities"]
        cut = "cut" in options and len(h["ids"]) == 15
        expect(len(own) == len(h["ids"]) + (not cut) and h["tokens"] == list(map(str, h["ids"])), f"{options}: {h}")
        expect(all(near(a, b) for a, b in zip(own, all_of)), f"{options}: {source} {h['ids']}: {own}, score says {all_of}")
        expect(abs(sum(own) - h["log_probability"]) < 1e-12, f"{options}: {h}")

# Samples depend on the seed, but not on the batch.
sampling = ["--sample", "--n-best", 5, "--top-k", 6, "--temperature", 1.5, "--max-length", 10]
found = translate(sources, *sampling)
expect(found == translate(sources, *sampling, "--batch-tokens", 1), "samples depend on the batch")
expect(found != translate(sources, *sampling, "--seed", 2), "samples do not depend on the seed")
flat = [(s, h) for s, hs in zip(sources, found) for h in hs]
for (source, h), p in zip(flat, score([s for s, _ in flat], [h["ids"] for _, h in flat]), strict=True):
    expect(near(h["log_probability"], p), f"sample: {source} {h['ids']}: {h['log_probability']}, score says {p}")

prefixes = [[6, 6], [], [8], [5, 4, 5]]
for prefix, hypotheses in zip(prefixes, translate(sources, "--prefix", id_lines.write(work, "prefix", prefixes)), strict=True):
    expect(hypotheses[0]["ids"][: len(prefix)] == prefix, f"prefix {prefix}: {hypotheses[0]['ids']}")

# Alignments cover the tokens of the translation; the attention of a sentence can be drawn.
svg = os.path.join(work, "attention.svg")
for source, hypotheses in zip(sources, translate(sources, "--alignments", "--attention-svg", svg, "--min-length", 3), strict=True):
    pairs = hypotheses[0]["alignment"]
    expect([j for _, j in pairs] == list(range(len(hypotheses[0]["ids"]))), f"alignment {pairs}")
    expect(all(0 <= i < len(source) for i, _ in pairs), f"alignment {pairs}")
expect(open(svg).read().lstrip().startswith("<svg"), "no drawing")
hard, soft = (translate(sources, flag, "--n-best", 2, "--min-length", 3) for flag in ("--alignments", "--alignments=soft"))
for source, links, rows in zip(sources, hard, soft, strict=True):
    for one, other in zip(links, rows, strict=True):
        expect(one["ids"] == other["ids"] and len(other["attention"]) == len(one["ids"]) + 1, f"attention {other}")
        expect(all(len(row) == len(source) and abs(sum(row) - 1) < 1e-5 for row in other["attention"]), f"attention {other}")
        expect(one["alignment"] == [[row.index(max(row)), j] for j, row in enumerate(other["attention"][:-1])], f"alignment {one}")

# Empty lines stay empty lines; standard input and output; a packed executable needs no files.
text = "4 5 3\n\n7 3\n"
plain = call("translate", "--weights", weights, "--format", "ids", "--quiet", text=text)
expect(len(plain.split("\n")) == 4 and plain.split("\n")[1] == "", f"empty lines: {plain!r}")
packed = os.path.join(work, "packed")
call("pack", "--weights", weights, "-o", packed, "--quiet")
expect(call("translate", "--format", "ids", executable=packed, text=text) == plain, "the packed executable differs")
output = os.path.join(work, "output")
call("translate", "--weights", weights, "--format", "ids", "--output", output, text=text)
expect(open(output).read() == plain, "--output differs from standard output")

if failures:
    sys.exit(f"{len(failures)} failures:\n  " + "\n  ".join(failures[:20]))
print("translate and score agree")
