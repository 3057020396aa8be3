"""check_rescore.py EXECUTABLE FOLDER: a model with the vocabulary from right to left is one that was trained with reversed ids, and rescoring adds what `score` says of the reversed ids.

A server and the library answer what `translate` answers, to the byte. FOLDER holds a run, a run that writes from the end (from-end), its
vocabularies (spm.model, reversed.model), lines (a, b) and the library of the executable's model (libtiny.so). Plain Python."""
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

from xfc import library as xfc

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

# A server, which reads two models, also after it has loaded them again.
KINDS = [{"beam": 6, "n_best": 3, "rescore_weight": 0.8}, {"beam": 6, "token_scores": True, "alignments": "hard"}, {"sample": True, "n_best": 4, "seed": 5},
         {"beam": 4, "coverage_penalty": 0.5, "n_best": 2}, {"beam": 1}, {"beam": 4, "n_best": 2, "protect": "[ab]da"}]


def translate(kind):
    options = [f"--{name.replace('_', '-')}={json.dumps(value).strip(chr(34))}" for name, value in kind.items()]
    return [json.loads(line) for line in run("translate", "--model", "run", "--rescore", "from-end", "--input", "some", "--json", *options).splitlines()]


wanted = [translate(kind) for kind in KINDS]
assert all("rescore_log_probability" in hypothesis for answer in wanted for line in answer for hypothesis in line["hypotheses"])
process = subprocess.Popen([executable, "serve", "--port", "0", "--model", "run", "--rescore", "from-end"], stderr=subprocess.PIPE, text=True,
                           preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
try:
    address = process.stderr.readline().split()[-1]

    def ask(path, fields):
        request = urllib.request.Request(address + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        try:
            return json.loads(urllib.request.urlopen(request, timeout=60).read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def check_server():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # whatever else is asked meanwhile
            jobs = [(pool.submit(ask, "/v1/translate", {"q": given[line:line + 5], **kind}), answer[line:line + 5])
                    for line in range(0, len(given), 5) for kind, answer in zip(KINDS, wanted) if not kind.get("sample")]
            jobs += [(pool.submit(ask, "/v1/translate", {"q": given, **kind}), answer) for kind, answer in zip(KINDS, wanted)]
            for job, answer in jobs:
                found = job.result()
                assert [{"line": 0, "source": 0, **one} for one in found["translations"]] == [{**one, "line": 0, "source": 0} for one in answer], (found, answer)
        plain = [json.loads(line)["translation"] for line in run("translate", "--model", "run", "--rescore", "from-end", "--input", "some", "--json").splitlines()]
        assert ask("/translate", {"q": given, "source": "en", "target": "fr"})["translatedText"] == plain
        several = ask("/translate", {"q": given[:3], "source": "en", "target": "fr", "alternatives": 2})
        assert several["translatedText"] == plain[:3] and any(several["alternatives"]), several
        assert ask("/v1/translate", {"q": "anna", "mbr": "chrf"}) == (400, "rescore excludes mbr, whose translations are chosen by their utility")

    check_server()
    process.send_signal(signal.SIGHUP)
    assert "loaded any again" in process.stderr.readline()
    check_server()
finally:
    process.terminate()
    process.wait()

# The library.
library = xfc.load("./libtiny.so")
with xfc.Model(library, "run", "--rescore", "from-end") as model, xfc.Model(library, "run") as alone:
    for kind, answer in zip(KINDS, wanted):
        options = [f"--{name.replace('_', '-')}={json.dumps(value).strip(chr(34))}" for name, value in kind.items()]
        whole = model.translate(given, *options)
        with model.search(given, *options) as search:
            while search.advance():
                pass
            stepped = [search.hypotheses(line)[1] for line in range(len(given))]
        for found in (whole, stepped):
            assert [[[one.text, one.score, one.ids, one.rescore_log_probability] for one in line] for line in found] == [
                [[one[name] for name in ("text", "score", "ids", "rescore_log_probability")] for one in line["hypotheses"]] for line in answer], kind
    assert alone.translate(given[:1])[0][0].rescore_log_probability is None
    for one, message in ((model, "--rescore excludes --mbr"), (alone, "--rescore-weight is what")):
        try:
            one.translate(given[:1], *(["--mbr", "chrf"] if one is model else ["--rescore-weight", "2"]))
            raise SystemExit("accepted")
        except xfc.Error as error:
            assert str(error).startswith(message), error
print(f"{count} translations rescored, {changed} lines with another best one, and the same by a server and a library")
