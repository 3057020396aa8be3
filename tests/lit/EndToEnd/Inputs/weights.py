"""weights.py TRANSLATOR WORK_FOLDER: trains with weights, and compares with runs that must be the same, or twice as much, or as good as without
the sentences whose weight is 0. Plain Python."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors

translator, work = sys.argv[1:]
LINES = 60
rng = random.Random(5)


def path(*names):
    return os.path.join(work, *names)


def write(name, lines):
    with open(path(name), "w") as file:
        file.writelines(line + "\n" for line in lines)


def ids(count):
    return " ".join(str(rng.randrange(4, 40)) for _ in range(count))


def call(*words):
    done = subprocess.run([translator, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stderr


def train(out, data, rate, *more, steps=8, tokens=150):
    """A run of SGD: its steps are proportional to rates and gradients."""
    return call("train", *data, "--format", "ids", "--out", path(out), "--steps", steps, "--lr", rate, "--optimizer", "sgd", "--clip-norm", 0, "--schedule",
                "constant", "--warmup", 0, "--seed", 5, "--batch-tokens", tokens, *more)


def contents(*names):
    return open(path(*names), "rb").read()


def records(out):
    lines = [json.loads(line) for line in open(path(out, "train.jsonl"))]
    return [{key: value for key, value in line.items() if key not in ("wps", "ups", "wall")} for line in lines]


def same(one, other, state=True):
    assert contents(one, "last.safetensors") == contents(other, "last.safetensors"), f"{one} and {other} differ"
    if state:
        assert tensors.read(path(one, "state", "training.safetensors")) == tensors.read(path(other, "state", "training.safetensors"))
        assert records(one) == records(other), (records(one), records(other))


lengths = [rng.randrange(1, 12) for _ in range(LINES)]
targets = [ids(length) for length in lengths]
write("a", [ids(rng.randrange(1, 12)) for _ in lengths])
write("b", targets)
write("ones", ["1"] * LINES)
write("twos", ["2"] * LINES)
weights = [f"{rng.random() * 2:.4}" for _ in lengths]
write("w", weights)
text = ("--source", path("a"), "--target", path("b"))
weighted = (*text, "--data-weighting", path("w"))

# Weights of 1 change nothing. Weights of 2 are twice the rate, to the byte, and twice the loss.
train("none", text, 0.125)
train("ones-run", (*text, "--data-weighting", path("ones")), 0.125)
same("none", "ones-run")
train("twos-run", (*text, "--data-weighting", path("twos")), 0.0625)
same("none", "twos-run", state=False)
for once, twice in zip(records("none"), records("twos-run"), strict=True):
    assert once["nll"] == twice["nll"] and twice["loss"] == 2 * once["loss"] and twice["gnorm"] == 2 * once["gnorm"], (once, twice)

# Other weights give something else, which is the same for every way to give them, number of threads, and place of a resume.
said = train("whole", weighted, 0.125, "--threads", 1)
assert f"{LINES} weighted pairs, " in said, said
assert contents("whole", "last.safetensors") != contents("none", "last.safetensors")
train("threads", weighted, 0.125, "--threads", 3)
same("whole", "threads")
train("parts", weighted, 0.125, steps=3)
call("train", "--resume", "--out", path("parts"), "--steps", 8)
same("whole", "parts", state=False)
write("table", map("\t".join, zip(open(path("a")).read().splitlines(), targets, weights)))
train("tabled", ("--tsv", path("table"), "--tsv-weighting"), 0.125)
same("whole", "tabled")
train("tabled-parts", ("--tsv", path("table"), "--tsv-weighting"), 0.125, steps=3)
call("train", "--resume", "--out", path("tabled-parts"), "--steps", 8)
same("whole", "tabled-parts", state=False)
call("prepare", *weighted, "--format", "ids", "--out", path("pairs"))
train("prepared", ("--data", path("pairs")), 0.125)
same("whole", "prepared")
write("words", [" ".join([weight] * (length + 1)) for weight, length in zip(weights, lengths)])  # and one for eos
each_word = (*text, "--data-weighting", path("words"), "--data-weighting-type", "word")
train("words-run", each_word, 0.125)
same("whole", "words-run")
train("words-parts", each_word, 0.125, steps=3)
call("train", "--resume", "--out", path("words-parts"), "--steps", 8)
same("whole", "words-parts", state=False)
call("prepare", *each_word, "--format", "ids", "--out", path("word-pairs"))
train("words-prepared", ("--data", path("word-pairs")), 0.125)
same("whole", "words-prepared")
write("first", ["1" + " 0" * length for length in lengths])
train("first-run", (*text, "--data-weighting", path("first"), "--data-weighting-type", "word"), 0.125)
assert contents("first-run", "last.safetensors") != contents("whole", "last.safetensors")
train("filtered", (*weighted, "--filter-length", "3:"), 0.125)
call("prepare", *weighted, "--filter-length", "3:", "--format", "ids", "--out", path("fewer"))
train("fewer-run", ("--data", path("fewer")), 0.125)
same("filtered", "fewer-run")

# A configuration's weights belong to its text: other text that is given beside it has none.
call("train", "--config", path("words-run", "config.json"), *text, "--out", path("other-text"))
same("none", "other-text")
call("train", "--config", path("tabled", "config.json"), *text, "--out", path("no-table"))
same("none", "no-table")

# Corpora that are mixed have their own weights.
mixed = ("--source", path("a"), path("a"), "--target", path("b"), path("b"), "--corpus-weight", 3, 1)
train("mixed", (*mixed, "--data-weighting", path("w"), path("ones")), 0.125)
train("mixed-other", (*mixed, "--data-weighting", path("ones"), path("w")), 0.125)
call("prepare", *text, "--format", "ids", "--out", path("unweighted"))
train("mixed-prepared", ("--data", path("pairs"), path("unweighted"), "--corpus-weight", 3, 1), 0.125)
same("mixed", "mixed-prepared")
assert contents("mixed", "last.safetensors") != contents("mixed-other", "last.safetensors")

# As many labels of sentences with a weight of 0 halve the steps, for they are counted as labels, and do nothing else. The sums of more rows may be
# rounded otherwise.
write("more-a", open(path("a")).read().splitlines() + [ids(rng.randrange(1, 12)) for _ in lengths])
write("more-b", targets + [ids(length) for length in lengths])
write("half", ["1"] * LINES + ["0"] * LINES)
train("less", text, 0.125, tokens=4096)
train("more", ("--source", path("more-a"), "--target", path("more-b"), "--data-weighting", path("half")), 0.25, tokens=4096)
for name, error in tensors.differences(path("less", "last.safetensors"), path("more", "last.safetensors")).items():
    assert error < 1e-4, f"{name} differs by {error:.1e} of its largest value"
train("all", ("--source", path("more-a"), "--target", path("more-b")), 0.25, tokens=4096)
assert max(tensors.differences(path("less", "last.safetensors"), path("all", "last.safetensors")).values()) > 1e-2
print("weights do what they say")
