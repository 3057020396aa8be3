"""check_ensemble.py TRANSLATOR FOLDER SOURCE TARGET DRIVER: what does not depend on how an ensemble averages. Plain Python.

FOLDER holds two trained models (run-smaller, run-other). An ensemble of a model with itself is the model; an ensemble does not depend on the
batch, the threads or the order of its models; `score` and attention average as the search does; a GPU, whose driver is in the folder DRIVER,
gives what the CPU gives, up to rounding; mistakes are refused.
"""
import json
import math
import os
import subprocess
import sys

translator, folder, source, target, driver = sys.argv[1:]
ONE, OTHER = (os.path.join(folder, name) for name in ("run-smaller", "run-other"))


def run(verb, models, *arguments, status=0):
    words = [word for model in models for word in ("--model", model)]
    done = subprocess.run([translator, verb, *words, "--format", "ids", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": driver})
    assert done.returncode == status, (verb, models, arguments, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def translate(models, *arguments):
    given = arguments if "--input" in arguments else (*arguments, "--input", source)
    return [json.loads(line)["hypotheses"] for line in run("translate", models, "--json", "--quiet", *given).splitlines()]


def score(models, *arguments):
    return json.loads(run("score", models, "--source", source, "--target", target, "--json", *arguments))["log_probabilities"]


# A step of an ensemble gives all log-probabilities, as the step of a model does where an option needs them.
ALL = ["--no-repeat-ngram", 1000]
for options in (["--beam", 1], ["--beam", 4, "--n-best", 4], ["--beam", 9, "--n-best", 2], ["--sample", "--n-best", 3], ["--beam", 3, "--alignments=soft", "--token-scores"]):
    alone, all_of = translate([ONE], *options), translate([ONE], *options, *ALL)
    for count, weights in ((2, []), (3, []), (3, ["--ensemble-weights", 0.3, 7, 1e-3])):
        itself = translate([ONE] * count, *options, *weights)
        assert itself == all_of, (options, weights)
        assert [[one["ids"] for one in line] for line in itself] == [[one["ids"] for one in line] for line in alone], (options, weights)
    both = translate([ONE, OTHER], *options)
    assert both != all_of and both != translate([OTHER], *options), options
    for more in (["--batch-tokens", 1], ["--threads", 3], ["--batch-sentences", 2]):
        assert translate([ONE, OTHER], *options, *more) == both, (options, more)
assert translate([ONE, OTHER], "--ensemble-weights", 3, 1, "--beam", 2) == translate([OTHER, ONE], "--ensemble-weights", 1, 3, "--beam", 2)

assert score([ONE]) == score([ONE, ONE, ONE])
ofOne, ofOther = (json.loads(run("score", [model], "--source", source, "--target", target, "--json", "--token-scores"))["token_log_probabilities"] for model in (ONE, OTHER))
expected = [sum(math.log((3 * math.exp(a) + math.exp(b)) / 4) for a, b in zip(*line, strict=True)) for line in zip(ofOne, ofOther, strict=True)]
assert all(abs(a - b) < 1e-9 for a, b in zip(score([ONE, OTHER], "--ensemble-weights", 3, 1), expected, strict=True))
rows = [[one["attention"] for one in translate(models, "--alignments=soft", "--forced-first", "4 5", "--max-length", 2)[0]][0] for models in ([ONE], [OTHER], [ONE, OTHER])]
assert all(abs((a + b) / 2 - both) < 1e-12 for row in zip(*rows, strict=True) for a, b, both in zip(*row, strict=True)) and rows[0] != rows[1]

few = os.path.join(folder, "few")
open(few, "w").writelines(open(source).readlines()[:6])
for options in (["--beam", 2, "--n-best", 2], ["--beam", 4, "--n-best", 2, "--beam-groups", 2, "--no-repeat-ngram", 2]):
    cpu, gpu = (translate([ONE, OTHER], *options, "--input", few, "--device", device) for device in ("cpu", "cuda"))
    assert [[one["ids"] for one in line] for line in cpu] == [[one["ids"] for one in line] for line in gpu], options
    assert all(abs(a["score"] - b["score"]) < 1e-4 for one, other in zip(cpu, gpu) for a, b in zip(one, other)), options

for arguments, said in ((("--ensemble-weights", 1), "--ensemble-weights: expected one number for each --model, of which there are 2, but 1 were given"),
                        (("--ensemble-weights", 1, 0), "--ensemble-weights")):
    assert said in run("translate", [ONE, OTHER], "--input", source, *arguments, status=1 if "expected" in said else 2), said
assert "nothing: no such folder or file" in run("translate", [ONE, os.path.join(folder, "nothing")], "--input", source, status=1)
print("ensembles average")
