"""check_ensemble.py TRANSLATOR FOLDER SOURCE TARGET DRIVER: what does not depend on how an ensemble averages. Plain Python.

FOLDER holds two trained models of the translator (run-smaller, run-other) and a library of its model (libsmaller.so), and the same of another
architecture (recurrent, run-recurrent, librecurrent.so). An ensemble of a model with itself is the model, whichever code its members have; an ensemble
does not depend on the batch, the threads or the order of its models; `score` and attention average as the search does; a GPU, whose driver is in
the folder DRIVER, gives what the CPU gives, up to rounding; mistakes are refused.
"""
import json
import math
import os
import subprocess
import sys

translator, folder, source, target, driver = sys.argv[1:]
ONE, OTHER, RECURRENT = (os.path.join(folder, name) for name in ("run-smaller", "run-other", "run-recurrent"))
SAME, UNLIKE = ("--ensemble-library", os.path.join(folder, "libsmaller.so")), ("--ensemble-library", os.path.join(folder, "librecurrent.so"))
recurrent = os.path.join(folder, "recurrent")


def run(verb, models, *arguments, status=0, executable=translator):
    words = [word for model in models for word in ("--model", model)]
    done = subprocess.run([executable, verb, *words, "--format", "ids", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": driver})
    assert done.returncode == status, (verb, models, arguments, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def translate(models, *arguments, executable=translator):
    given = arguments if "--input" in arguments else (*arguments, "--input", source)
    return [json.loads(line)["hypotheses"] for line in run("translate", models, "--json", "--quiet", *given, executable=executable).splitlines()]


def scores(models, *arguments, executable=translator):
    return json.loads(run("score", models, "--source", source, "--target", target, "--json", "--token-scores", *arguments, executable=executable))


def score(models, *arguments, executable=translator):
    return scores(models, *arguments, executable=executable)["log_probabilities"]


def near(some, others):
    return all(abs(a - b) < 1e-9 for a, b in zip(some, others, strict=True))


# A step of an ensemble gives all log-probabilities, as the step of a model does where an option needs them.
ALL = ["--no-repeat-ngram", 1000]
for options in (["--beam", 1], ["--beam", 4, "--n-best", 4], ["--beam", 9, "--n-best", 2], ["--sample", "--n-best", 3], ["--beam", 3, "--alignments=soft", "--token-scores"]):
    alone, all_of = translate([ONE], *options), translate([ONE], *options, *ALL)
    for count, weights in ((2, []), (3, []), (3, ["--ensemble-weights", 0.3, 7, 1e-3])):
        itself = translate([ONE] * count, *options, *weights)
        assert itself == all_of, (options, weights)
        assert [[one["ids"] for one in line] for line in itself] == [[one["ids"] for one in line] for line in alone], (options, weights)
    assert translate([ONE, ONE], *SAME, *options) == translate([ONE, ONE, ONE], *SAME, "self", *options) == all_of, options
    assert translate([ONE, OTHER], *SAME, *options) == translate([ONE, OTHER], *options), options
    unlike = translate([ONE, RECURRENT], *UNLIKE, *options)
    for more in ([], ["--batch-tokens", 1]):  # also where a single sentence has to find room
        assert unlike == translate([RECURRENT, ONE], *SAME, *options, *more, executable=recurrent), (options, more)
    for models, library, other in (([ONE, OTHER], [], translate([OTHER], *options)),
                                   ([ONE, RECURRENT], UNLIKE, translate([RECURRENT], *options, executable=recurrent))):
        both = translate(models, *library, *options)
        assert both not in (all_of, other), options
        for more in (["--batch-tokens", 1], ["--threads", 3], ["--batch-sentences", 2], ["--workers", 2, "--threads", 2]):
            assert translate(models, *library, *options, *more) == both, (models, options, more)
assert translate([ONE, OTHER], "--ensemble-weights", 3, 1, "--beam", 2) == translate([OTHER, ONE], "--ensemble-weights", 1, 3, "--beam", 2)

assert score([ONE]) == score([ONE, ONE, ONE])
assert score([ONE]) == score([ONE, ONE], *SAME)
for other, library, executable in ((OTHER, [], translator), (RECURRENT, UNLIKE, recurrent)):
    ofOne, ofOther = scores([ONE])["token_log_probabilities"], scores([other], executable=executable)["token_log_probabilities"]
    expected = [sum(math.log((3 * math.exp(a) + math.exp(b)) / 4) for a, b in zip(*line, strict=True)) for line in zip(ofOne, ofOther, strict=True)]
    assert near(score([ONE, other], *library, "--ensemble-weights", 3, 1), expected) and not near(score([ONE]), expected), other
    rows = [[one["attention"] for one in translate(models, "--alignments=soft", "--forced-first", "4 5", "--max-length", 2, *given, executable=of)[0]][0]
            for models, given, of in (([ONE], [], translator), ([other], [], executable), ([ONE, other], library, translator))]
    assert all(abs((a + b) / 2 - both) < 1e-12 for row in zip(*rows, strict=True) for a, b, both in zip(*row, strict=True)) and rows[0] != rows[1], other
bleu = [run("evaluate", models, "--source", source, "--target", target, "--json", "--quiet", "--min-length", 4, *library) for models, library in (([ONE], []), ([ONE, ONE], SAME), ([ONE, RECURRENT], UNLIKE))]
assert bleu[0] == bleu[1] != bleu[2], bleu

few = os.path.join(folder, "few")
open(few, "w").writelines(open(source).readlines()[:6])
for options in (["--beam", 2, "--n-best", 2], ["--beam", 4, "--n-best", 2, "--beam-groups", 2, "--no-repeat-ngram", 2]):
    for models, library in (([ONE, OTHER], []), ([ONE, RECURRENT], UNLIKE)):
        cpu, gpu = (translate(models, *library, *options, "--input", few, "--device", device) for device in ("cpu", "cuda"))
        assert [[one["ids"] for one in line] for line in cpu] == [[one["ids"] for one in line] for line in gpu], (models, options)
        assert all(abs(a["score"] - b["score"]) < 1e-4 for one, other in zip(cpu, gpu) for a, b in zip(one, other)), (models, options)

for arguments, said in ((("--ensemble-weights", 1), "--ensemble-weights: expected one number for each --model, of which there are 2, but 1 were given"),
                        (("--ensemble-weights", 1, 0), "--ensemble-weights"),
                        ((*SAME, "self"), '--ensemble-library: expected one library for each further --model of an ensemble, of which there are 1, but 2 were given; "self" stands for'),
                        (("--ensemble-library", "none.so"), "none.so: cannot be loaded"),
                        (("--ensemble-library", few), "few: cannot be loaded"),
                        (("--ensemble-library", "/lib/x86_64-linux-gnu/libm.so.6"), "libm.so.6: has no code of a model; expected the libNAME.so that `xfc compile --emit lib`"),
                        (UNLIKE, "run-other/best.safetensors: these are weights of the model 'tiny'")):
    assert said in run("translate", [ONE, OTHER], "--input", source, *arguments, status=1 if "--ensemble-weights" not in said or "expected" in said else 2), said
assert "but " + UNLIKE[1] + " is of 'recurrent'" in run("translate", [ONE, OTHER], "--input", source, *UNLIKE, status=1)
assert "expected one library for each further --model of an ensemble, of which there are 0, but 1" in run("translate", [ONE], "--input", source, *SAME, status=1)
assert "--ensemble-library excludes --weights" in run("translate", [], "--weights", os.path.join(ONE, "last.safetensors"), "--input", source, *SAME, status=2)
for verb in ("translate", "score"):
    said = run(verb, [ONE, RECURRENT], *(["--input", source] if verb == "translate" else ["--source", source, "--target", target]), status=1)
    assert "run-recurrent/best.safetensors: these are weights of the model 'recurrent'" in said and "a library of their model goes beside this executable with --ensemble-library" in said, said
assert "--draft " + OTHER + ": model 'recurrent' keeps a state from token to token" in run("translate", [ONE, RECURRENT], *UNLIKE, "--draft", OTHER, "--beam", 1, "--input", source, status=1)
assert "--compute-type f64: model 'tiny' decodes in" in run("translate", [ONE, RECURRENT], *UNLIKE, "--compute-type", "f64", "--input", source, status=1)
assert "nothing: no such folder or file" in run("translate", [ONE, os.path.join(folder, "nothing")], "--input", source, status=1)
print("ensembles average")
