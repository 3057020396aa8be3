"""Trains with --sentencepiece-alphas and compares the weights of the runs to the byte.

    sampling.py TRANSLATOR FOLDER VOCABULARY [LAUNCHER]

The folder holds the text in `a` and `b`, and the vocabulary. With an MPI launcher, only two processes are compared with one.
"""
import json
import os
import subprocess
import sys

translator, folder, vocabulary, *launcher = sys.argv[1:]
STEPS = 9 # an epoch has about 5, so that runs stop in the middle of epochs


def path(*names):
    return os.path.join(folder, *names)


def train(out, *more, steps=STEPS, launch=(), status=0):
    """The weights at the end, or the message if the run is refused."""
    out = vocabulary + "-" + out
    resumed = "--resume" in more
    text = [] if "--data" in more else ["--source", path("a"), "--target", path("b")]
    begin = [] if resumed else [*text, "--vocab", path(vocabulary), "--batch-tokens", 1024, "--warmup", 5]
    limit = [] if "--epochs" in more else ["--steps", steps]
    command = [*launch, translator, "train", "--out", path(out), *limit, "--quiet", *begin, *more]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert result.returncode == status, (command, result.stderr)
    return result.stderr if status else open(path(out, "last.safetensors"), "rb").read()


def records(out):
    return [json.loads(line) for line in open(path(vocabulary + "-" + out, "train.jsonl"))]


def alphas(*numbers):
    return ["--sentencepiece-alphas", *numbers]


if launcher:
    # Within one machine Open MPI needs no network; some containers forbid a process to read another's memory.
    os.environ.update(OMPI_MCA_btl="self,vader", OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    accumulated = train("accumulated", *alphas(0.2), "--accumulate", 2, "--threads", 1)
    assert train("ranks", *alphas(0.2), "--threads", 1, launch=[launcher[0], "-n", "2"]) == accumulated
    assert train("ranks-large", *alphas(0.2), "--threads", 1, "--text-memory", "1kB", launch=[launcher[0], "-n", "2"]) == accumulated
    sys.exit()

sampled = train("one", *alphas(0.2), "--threads", 1)
assert records("one")[-1]["epoch"] > 1
assert train("two", *alphas(0.2, 0.2), "--threads", 2) == sampled
for stop in (3, 7): # in the first epoch, and in the second
    train(f"stopped{stop}", *alphas(0.2), "--threads", 1, steps=stop)
    assert train(f"stopped{stop}", "--resume", "--threads", 2) == sampled

# Text that is too large for memory, and prepared pairs that keep their text, give the same.
train("large", *alphas(0.2), "--text-memory", "1kB", steps=3)
assert os.path.exists(path(vocabulary + "-large", "text-1.pairs"))
made = os.stat(path(vocabulary + "-large", "text-1.pairs")).st_ino
assert train("large", "--resume") == sampled
assert os.stat(path(vocabulary + "-large", "text-1.pairs")).st_ino == made, "the file was made again"
subprocess.run([translator, "prepare", "--source", path("a"), "--target", path("b"), "--vocab", path(vocabulary), "--keep-text",
                "--out", path(vocabulary + "-pairs"), "--quiet"], check=True)
assert train("kept", "--data", path(vocabulary + "-pairs"), *alphas(0.2)) == sampled

# It changes the result, and so do the seed and the side.
plain = train("plain")
assert train("zero", *alphas(0)) == plain
runs = [sampled, plain, train("source", *alphas(0.2, 0)), train("target", *alphas(0, 0.2)), train("weak", *alphas(0.01))]
assert len(set(runs)) == len(runs)

# The seed by itself changes the segmentations, not only the order of the pairs: an epoch has another number of tokens.
tokens = {}
for seed in (1, 2):
    for out, more in ((f"whole{seed}", []), (f"sampled{seed}", alphas(0.2))):
        train(out, *more, "--seed", seed, "--epochs", 1)
        tokens[out] = sum(record["tokens"] for record in records(out))
assert tokens["whole1"] == tokens["whole2"] and tokens["sampled1"] != tokens["sampled2"], tokens

# A run keeps its alphas.
assert "was begun with --sentencepiece-alphas 0.2" in train("stopped3", "--resume", *alphas(0.1), steps=STEPS + 1, status=1)
assert "was begun with no --sentencepiece-alphas" in train("plain", "--resume", *alphas(0.1), steps=STEPS + 1, status=1)

# With a rate at which no weight changes, the loss of the training differs, and that of the validation does not.
VALID = ["--schedule", "constant", "--lr", "1e-30", "--valid-source", path("a"), "--valid-target", path("b"), "--valid-every", 2]
train("frozen", *VALID, steps=2)
train("frozen-sampled", *VALID, *alphas(0.2), steps=2)
for key in ("valid_loss", "loss"):
    losses = [[record[key] for record in records(out) if key in record] for out in ("frozen", "frozen-sampled")]
    assert losses[0] and (losses[0] == losses[1]) == (key == "valid_loss"), (key, losses)
