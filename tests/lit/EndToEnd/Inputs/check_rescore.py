"""check_rescore.py EXECUTABLE FOLDER: a model with the vocabulary from right to left is one that was trained with reversed ids, and rescoring adds what `score` says of the reversed ids.

FOLDER holds a run, a run that writes from the end (from-end), its vocabularies (spm.model, reversed.model) and lines (a, b). Plain Python."""
import json
import os
import subprocess
import sys

executable, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
os.chdir(folder)


def run(verb, *options):
    done = subprocess.run([executable, verb, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ids_of(*options):
    return [line.split() for line in run("encode", *options).splitlines()]


def write(name, lines):
    with open(name, "w") as file:
        file.writelines(" ".join(map(str, line)) + "\n" for line in lines)


# Training: the ids of the target, reversed, give the same losses; and text comes back in its order.
forward, backward = ids_of("--vocab", "spm.model", "--target", "--input", "b"), ids_of("--model", "from-end", "--target", "--input", "b")
assert [line[::-1] for line in forward] == backward and forward != backward
sources = ids_of("--vocab", "spm.model", "--input", "a")
write("sources", sources)
write("reversed", backward)
run("train", "--format", "ids", "--source", "sources", "--target", "reversed", "--out", "of-ids", "--steps", "60", "--batch-tokens", "512", "--warmup", "40", "--seed", "2", "--quiet")
losses = [[json.loads(line).get("loss") for line in open(f"{name}/train.jsonl")] for name in ("from-end", "of-ids")]
losses = [[loss for loss in each if loss is not None] for each in losses]
assert losses[0] == losses[1] and len(losses[0]) > 1, losses
validated = [json.loads(line) for line in open("from-end/train.jsonl") if "chrf" in line]
assert validated, "no validation"
given = open("a").read().splitlines()[:40]
write("some", [[line] for line in given])
for one in map(json.loads, run("translate", "--model", "from-end", "--input", "some", "--json", "--n-best", "2").splitlines()):
    for hypothesis in one["hypotheses"]:
        write("ids", [hypothesis["ids"][::-1]])
        assert run("decode", "--vocab", "spm.model", "--input", "ids") == hypothesis["text"] + "\n", hypothesis

# Rescoring: by the scores of the ids, in the order of the model that rescores.
found = [json.loads(line) for line in run("translate", "--model", "run", "--input", "some", "--json", "--beam", "6", "--n-best", "6", "--length-penalty", "0.7").splitlines()]
pairs = [(line, hypothesis) for line, one in enumerate(found) for hypothesis in one["hypotheses"]]
write("sources", [sources[line] for line, _ in pairs])
count = changed = 0
for rescorer, weight, backwards in (("from-end", 0.8, True), ("run", 2.5, False), ("from-end", 0, True)):
    write("targets", [hypothesis["ids"][::-1] if backwards else hypothesis["ids"] for _, hypothesis in pairs])
    scores = list(map(float, run("score", "--weights", f"{rescorer}/last.safetensors", "--format", "ids", "--source", "sources", "--target", "targets").split()))
    assert len(scores) == len(pairs)
    expected = [[] for _ in found]
    for (line, hypothesis), score in zip(pairs, scores):
        length = len(hypothesis["ids"]) + 1
        expected[line].append((hypothesis["log_probability"] + weight * score, length, score, hypothesis))
    answer = run("translate", "--model", "run", "--input", "some", "--json", "--beam", "6", "--n-best", "3", "--length-penalty", "0.7", "--rescore", rescorer, "--rescore-weight", str(weight))
    for one, before, rescored in zip(found, expected, map(json.loads, answer.splitlines()), strict=True):
        before = sorted(((sum_ / ((5 + length) / 6) ** 0.7, score, hypothesis) for sum_, length, score, hypothesis in before), key=lambda each: -each[0])
        assert len(rescored["hypotheses"]) == 3
        for (score, other, hypothesis), now in zip(before, rescored["hypotheses"]):
            assert abs(now["score"] - score) < 1e-5 and abs(now["rescore_log_probability"] - other) < 1e-4, (now, score, other)
            assert now["log_probability"] == hypothesis["log_probability"] and now["ids"] == hypothesis["ids"], (now, hypothesis)
            count += 1
        assert rescored["translation"] == rescored["hypotheses"][0]["text"]
        changed += rescored["translation"] != one["translation"]
        if weight == 0:
            assert [each["ids"] for each in rescored["hypotheses"]] == [each["ids"] for each in one["hypotheses"][:3]]
# What is told does not depend on the other lines.
alone = ["translate", "--model", "run", "--json", "--beam", "6", "--rescore", "from-end", "--input"]
write("one", [[given[7]]])
strip = lambda text, line: [{**json.loads(each), "line": 0} for each in text.splitlines()][line]
assert strip(run(*alone, "one"), 0) == strip(run(*alone, "some"), 7)
print(f"{count} translations rescored, {changed} lines with another best one")
