"""Compares a library with the executable of the same model, through the Python module.

usage: check_library.py FOLDER, which library.test has filled
"""
import ctypes
import json
import os
import subprocess
import sys
import threading
import time

import tensors
from xfc import library as xfc

folder = sys.argv[1]
os.chdir(folder)


def signals():
    """The signals that are handled and ignored according to the system, without those above 31, which the C library uses itself."""
    return [int(line.split()[1], 16) & 0x7FFFFFFF for line in open("/proc/self/status") if line.startswith(("SigCgt", "SigIgn"))]


def run(*command):
    return subprocess.run(["./translator", *command], check=True, capture_output=True, text=True).stdout


def fails(status, part, call, *arguments):
    try:
        call(*arguments)
    except xfc.Error as error:
        assert error.status == status and part in str(error), (error.status, str(error), part)
        return
    raise AssertionError(f"nothing failed where this was expected: {part}")


handled = signals()
printed = os.dup(1), os.dup(2)
sys.stderr = os.fdopen(os.dup(2), "w")  # for Python's own messages
silence = os.open("said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.dup2(silence, 1), os.dup2(silence, 2)
library = xfc.load("./libtiny.so")
lines, references = open("va").read().splitlines(), open("vb").read().splitlines()
model = xfc.Model(library, "run", "--threads", "2")
info = model.info()
assert (info.name, info.source_vocabulary, info.target_vocabulary, info.pad, info.eos) == (b"tiny", 60, 60, 0, 3)
assert 1e-310 * 0.5 != 0, "numbers below the normal ones are 0 in the caller's thread"

# Translations, scores and ids have the text and numbers that the executable prints.
beam = ["--beam", "2", "--min-length", "6"]  # without it, this model would write little
options = ["--beam", "3", "--min-length", "6", "--n-best", "2", "--length-penalty", "0.8"]
expected = run("translate", "--model", "run", "--input", "va", "--scores", *options).splitlines()


def printed_as(found):
    return [f"{line + 1}\t{text}\t{score:.9g}" for line, all in enumerate(found) for text, score, _ in all]


assert printed_as(model.translate(lines, *options)) == expected, (printed_as(model.translate(lines, *options)), expected)
sampled = ["--sample", "--min-length", "6", "--seed", "7", "--n-best", "2"]
assert printed_as(model.translate(lines, *sampled)) == run("translate", "--model", "run", "--input", "va", "--scores", *sampled).splitlines()
least_risk = ["--mbr", "chrf", "--samples", "9", "--seed", "7", "--n-best", "2", "--min-length", "6"]
expected = run("translate", "--model", "run", "--input", "va", "--scores", *least_risk).splitlines()
assert printed_as(model.translate(lines, *least_risk)) == expected
with model.search(lines, *least_risk) as search:
    search.advance(2)
    assert len(search.hypotheses(0)[1]) == 9, "samples that still grow"
    while search.advance():
        pass
    assert printed_as([search.hypotheses(i)[1] for i in range(len(lines))]) == expected

# A search step by step gives the same, whatever happens in between; hypotheses grow by one token per step.
whole = model.translate(lines, *beam)
first, second = model.search(lines, *beam), model.search(lines[:3], *beam)
steps, more = 0, True
while more:
    more = first.advance()
    steps += 1
    second.advance()
    if steps == 2:
        model.translate(lines[3:5])
        assert all(len(ids) == steps for _, _, ids in first.hypotheses(0)[1]), first.hypotheses(0)
while second.advance(5):
    pass
assert [first.hypotheses(i) for i in range(len(lines))] == [(True, one) for one in whole]
assert [second.hypotheses(i)[1] for i in range(3)] == whole[:3]
assert whole[-1] == [("", 0.0, [])], whole[-1]  # an empty line
fails(2, "no line with this number", second.hypotheses, 3)
first.close(), second.close()

# Token scores and attention, of whole searches and of what lives between steps.
told = ["--token-scores", "--alignments=soft", "--n-best", "2", *beam]
answers = [json.loads(line) for line in run("translate", "--model", "run", "--input", "va", "--json", *told).splitlines()]
found = model.translate(lines, *told)
for one, answer in zip(found, answers, strict=True):
    for hypothesis, wanted in zip(one, answer["hypotheses"] or [{"token_log_probabilities": [], "attention": []}], strict=True):
        assert hypothesis.token_log_probabilities == wanted["token_log_probabilities"] and hypothesis.attention == wanted["attention"], hypothesis
assert all(not one.token_log_probabilities and not one.attention for one in whole[0])
with model.search(lines[:2], *told) as search:
    search.advance(3)
    one = search.hypotheses(0)[1][0]
    assert len(one.token_log_probabilities) == len(one.attention) == len(one.ids) == 3
    while search.advance():
        pass
    assert search.hypotheses(0)[1] == found[0] and search.hypotheses(0)[1][0].attention == found[0][0].attention
replaced = model.translate(["su \u03be"], "--replace-unknowns", *beam, prefixes=["\u03c8"])
open("odd", "w").write("su \u03be\n"), open("odd.prefix", "w").write("\u03c8\n")
assert [replaced[0][0].text] == run("translate", "--model", "run", "--input", "odd", "--prefix", "odd.prefix", "--replace-unknowns", *beam).splitlines()
assert "\u2047" not in replaced[0][0].text and "\u2047" in model.translate(["su \u03be"], *beam, prefixes=["\u03c8"])[0][0].text
fails(1, "known: none, hard, soft", model.translate, ["a"], "--alignments=both")

# Ids, forced prefixes, scores.
assert [" ".join(map(str, model.encode(line))) for line in lines] == run("encode", "--model", "run", "--input", "va").splitlines()
assert model.decode(model.encode(lines[0], 1)) == lines[0]
forced = [reference[:4] for reference in references]
open("forced", "w").write("\n".join(forced) + "\n")
assert [all[0][0] for all in model.translate(lines, *beam, prefixes=forced)] == run(
    "translate", "--model", "run", "--input", "va", "--prefix", "forced", *beam).splitlines()
words = [sorted(set(reference.split()), key=len)[-2:] for reference in references]
wanted = [[pair, pair[0]] if i % 3 else None for i, pair in enumerate(words[:-1])] + [None]
open("wanted", "w").write("".join((f"{' || '.join(one[0])}\t{one[1]}" if one else "") + "\n" for one in wanted))
constrained = model.translate(lines, *beam, constraints=wanted)
assert [all[0][0] for all in constrained] == run(
    "translate", "--model", "run", "--input", "va", "--constraints", "wanted", *beam).splitlines()
with model.search(lines, *beam, constraints=wanted, prefixes=[None] * len(lines)) as search:
    while search.advance():
        pass
    assert [search.hypotheses(i)[1] for i in range(len(lines))] == constrained
for two in (lines[:2], [lines[0], ""]):
    fails(1, "constraints 2: constraint 1", lambda two=two: model.translate(two, constraints=[None, ["", "x"]]))
for wrong, kind in (("x", TypeError), (["a\tb"], ValueError), (["a || b"], ValueError), ([[]], ValueError), ([""], ValueError)):
    try:
        model.translate(lines[:1], constraints=[wrong])
        raise SystemExit(f"accepted {wrong}")
    except kind:
        pass
open("sa", "w").write("\n".join(lines[:-1]) + "\n"), open("sb", "w").write("\n".join(references[:-1]) + "\n")
scores = model.score(lines[:-1], references[:-1])
assert [f"{score:.9g}" for score in scores] == run("score", "--model", "run", "--source", "sa", "--target", "sb").splitlines()

# Logits of padded batches.
source, target = [[5, 6, 7, 3], [8, 3, 0, 0]], [[2, 9, 10], [2, 11, 0]]
flat = {"source": ("I32", [2, 4], sum(source, [])), "target": ("I32", [2, 3], sum(target, []))}
tensors.write("in.safetensors", flat)
run("forward", "--model", "run", "--input", "in.safetensors", "--output", "out.safetensors")
shape, logits = tensors.read("out.safetensors")["logits"]
assert shape == [2, 3, 60] and list(model.forward(source, target)) == list(logits)

# Several threads use one model, and several models.
with xfc.Model(library, "run", "--threads", "1") as again:
    found = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: (again if i % 2 else model).translate(lines, *beam)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[i] == whole for i in range(4))

# Handles that share their weights: what is called on one does not wait for the others, and each has messages of its own.
other_handle = model.share()
longest, together = 0.0, {}
long = threading.Thread(target=lambda: together.update({"long": model.translate(lines * 800, *beam)}))
began = time.monotonic()
long.start()
while long.is_alive():
    before = time.monotonic()
    assert other_handle.translate(lines[:1], *beam) == whole[:1]
    longest = max(longest, time.monotonic() - before)
took = time.monotonic() - began
assert together["long"] == whole * 800
assert longest < took / 2, f"a call took {longest} s beside one of {took} s"
fails(1, "--n-best is larger than --beam", other_handle.translate, ["a"], "--beam", "1", "--n-best", "2")
fails(1, "line 2: byte 3 is not valid UTF-8", model.translate, ["a", b"bc\xff"])
assert "--n-best" in library.xfc_message(other_handle.handle).decode()
other_handle.translate(["a " * 2000], "--beam", "1", "--max-length", "5")
assert len(other_handle.warnings()) == 1 and not model.warnings()
fails(1, "weights are shared with other handles", model.train)
with model.share() as third, third.search(lines, *beam) as search:
    other_handle.close()
    fails(1, "weights are shared with other handles", third.train)
    third.close()
    fails(1, "weights are shared with other handles", model.train)  # the search has the handle still
    while search.advance():
        pass
    assert [search.hypotheses(i)[1] for i in range(len(lines))] == whole
with model.train("--optimizer", "sgd"):
    fails(1, "the model is being trained, so it cannot be shared", model.share)

# An ensemble: the model at the path and those of --model.
run("train", "--source", "a", "--target", "b", "--vocab", "spm.model", "--out", "second", "--steps", "4", "--batch-tokens", "512", "--warmup", "2", "--quiet")
with xfc.Model(library, "run", "--model", "second", "--ensemble-weights", "2", "1") as both:
    models = ["--model", "run", "--model", "second", "--ensemble-weights", "2", "1"]
    expected = run("translate", *models, "--input", "va", "--scores", *options).splitlines()
    assert printed_as(both.translate(lines, *options)) == expected != printed_as(model.translate(lines, *options))
    with both.search(lines, *options) as search:
        while search.advance():
            pass
        assert printed_as([search.hypotheses(i)[1] for i in range(len(lines))]) == expected
    with both.share() as shared:
        assert printed_as(shared.translate(lines, *options)) == expected
    assert [f"{score:.9g}" for score in both.score(lines[:-1], references[:-1])] == run("score", *models, "--source", "sa", "--target", "sb").splitlines()
    with xfc.Model(library, "run", "--model", "second", "--ensemble-weights", "2", "1", "--ensemble-library", "./libtiny.so") as loaded:  # code of its own
        assert loaded.translate(lines, *options) == both.translate(lines, *options) and loaded.score(lines[:-1], references[:-1]) == both.score(lines[:-1], references[:-1])
    fails(1, "--model second: model 'tiny' has 30 source tokens, but model 'tiny' has 60; expected a model with the same vocabularies", xfc.Model, library, "run",
          "--model", "second", "--force-model", "--ensemble-library", "./libother.so")
    fails(1, "xfc_forward: the model is an ensemble of 2; open one of them alone", both.forward, source, target)
    fails(1, "xfc_training_start: the model is an ensemble of 2", both.train)
    fails(1, "xfc_save: the model is an ensemble of 2", both.save, "ensemble.safetensors")
fails(1, "the model is given twice: as a path, and by --weights", xfc.Model, library, "run", "--weights", "run/last.safetensors")

# What a smaller model drafts changes nothing; here it is another run, by the code of the library itself.
with xfc.Model(library, "run", "--draft", "second", "--draft-library", "./libtiny.so", "--draft-tokens", "3", "--threads", "2", "--workers", "2") as drafted:
    assert drafted.translate(lines, "--beam", "1") == model.translate(lines, "--beam", "1")
    with drafted.share() as shared:
        assert shared.translate(lines, "--beam", "1") == model.translate(lines, "--beam", "1")
    with drafted.search(lines, "--beam", "1") as search:
        while search.advance():
            pass
        assert [search.hypotheses(i)[1] for i in range(len(lines))] == model.translate(lines, "--beam", "1")

# A shortlist.
run("shortlist", "--model", "run", "--source", "a", "--target", "b", "--best", "2", "--output", "lexicon")
with xfc.Model(library, "run", "--shortlist", "lexicon", "--shortlist-first", "4") as listed:
    expected = run("translate", "--model", "run", "--shortlist", "lexicon", "--shortlist-first", "4", "--input", "va", "--scores", *options).splitlines()
    assert printed_as(listed.translate(lines, *options)) == expected != printed_as(model.translate(lines, *options))
    with listed.share() as shared:
        assert printed_as(shared.translate(lines, *options)) == expected

# A library of another model in this process, and training, which takes the steps of `train`, to the byte. The run has only one pair, so
# the order of its batches does not matter.
other = xfc.load("./libother.so")
pair = "5 6 7 8", "9 10 11 12 13"
open("pa", "w").write(pair[0] + "\n"), open("pb", "w").write(pair[1] + "\n")
recipe = ["--optimizer", "adamw", "--weight-decay", "0.01", "--label-smoothing", "0.2", "--clip-norm", "0.5"]
run("train", "--source", "pa", "--target", "pb", "--format", "ids", "--out", "one", "--steps", "3", "--schedule", "constant", "--warmup", "0",
    "--lr", "0.01", "--quiet", *recipe)
with xfc.Model(library, None, "--format", "ids") as fresh, xfc.Model(other, None, "--format", "ids") as unlike:
    assert (fresh.info().target_vocabulary, unlike.info().target_vocabulary) == (60, 30)
    # Without a token for padding, -1 stands for it, and nothing but the end of a line.
    alone, padded = unlike.forward([[7]], [[2, 4]]), unlike.forward([[5, 6, 8], [7, -1, -1]], [[2, 9, 10], [2, 4, -1]])
    assert unlike.info().pad == -1 and list(padded)[90:150] == list(alone) and set(list(padded)[150:]) == {0.0}
    fails(1, "'source'[1, 0] is -1, padding, but tokens or a label follow", unlike.forward, [[5, 6], [-1, 6]], [[2], [2]])
    fails(1, "'target': number 1 is -2, but the vocabulary has the ids 0 to 29, and -1 is padding", unlike.forward, [[5]], [[2, -2]])
    fails(1, "'30' is not a token id; expected integers from 0 to 29", unlike.translate, ["30"])
    with fresh.train(*recipe) as training:
        losses = [training.step([pair[0]], [pair[1]], 0.01) for _ in range(3)]
        fails(1, "being trained already", fresh.train)
        fails(1, "source 2: '60' is not a token id", training.step, ["5", "60"], ["5", "5"], 0.01)
        fails(1, "no pair is left to train on", training.step, ["5"], [""], 0.01)
        fails(1, "learning rate", training.step, ["5"], ["5"], float("nan"))
    assert losses[2].loss < losses[0].loss and [loss.step for loss in losses] == [1, 2, 3] and losses[0].labels == 6
    fresh.save("saved.safetensors")
    assert open("saved.safetensors", "rb").read() == open("one/last.safetensors", "rb").read()
    after = fresh.translate(["5 6 7 8"], *beam)
with xfc.Model(library, "saved.safetensors", "--format", "ids") as saved:
    assert saved.translate(["5 6 7 8"], *beam) == after

# A step whose loss is not finite, here because of a source token whose embedding overflows, is not taken: those after it are as if it had not
# been tried.
overflowing = tensors.read("saved.safetensors")
kind, shape, numbers = "F32", *overflowing["encoder.embed.weight"]
width = shape[1]
assert shape[0] == 60
numbers = [*numbers[:20 * width], *[3e38] * width, *numbers[21 * width:]]
tensors.write("overflowing.safetensors", {name: ("F32", *one) for name, one in overflowing.items()} | {"encoder.embed.weight": (kind, shape, numbers)})
for optimizer in ("adam", "adafactor", "lion", "sgd"):
    for tried in (False, True):
        with xfc.Model(library, "overflowing.safetensors", "--format", "ids") as broken, broken.train("--optimizer", optimizer) as training:
            losses = [training.step([pair[0]], [pair[1]], 0.01)]
            if tried:
                bad = ["5 20 6"], ["7 8"], 0.01
                fails(1, "step 2: the loss is NaN or infinite, so it was not taken, and the weights are those before it", training.step, *bad)
                broken.save("unchanged.safetensors")
                fails(1, "step 2: the loss is NaN or infinite", training.step, *bad)
                broken.save("unchanged-again.safetensors")
                assert open("unchanged.safetensors", "rb").read() == open("unchanged-again.safetensors", "rb").read()
            losses.append(training.step([pair[1]], [pair[0]], 0.01))
            assert [loss.step for loss in losses] == [1, 2]
            broken.save(f"tried-{tried}.safetensors")
    assert open("tried-True.safetensors", "rb").read() == open("tried-False.safetensors", "rb").read() != open("unchanged.safetensors", "rb").read()

# A packed executable can be loaded as a model, too.
subprocess.run(["./translator", "pack", "--model", "run", "-o", "packed", "--quiet"], check=True)
with xfc.Model(library, "packed") as packed:
    assert packed.translate(lines, *beam) == whole

# Errors have messages, and leave the model unchanged.
weights = open("run/last.safetensors", "rb").read()
open("cut.safetensors", "wb").write(weights[:-100])
fails(1, "nothing: no such folder or file", xfc.Model, library, "nothing")
fails(1, "cut.safetensors: ", xfc.Model, library, "cut.safetensors", "--vocab", "spm.model")
open("cut.model", "wb").write(open("spm.model", "rb").read()[:-50])
fails(1, "cut.model: ", xfc.Model, library, "run/last.safetensors", "--vocab", "cut.model")
fails(1, "translator: this executable carries no model", xfc.Model, library, "translator")
fails(1, "no vocabulary: give --vocab FILE", xfc.Model, library, "run/last.safetensors")
fails(1, "did you mean '--threads'?", xfc.Model, library, "run", "--thread", "1")
fails(1, "--threads", xfc.Model, library, "run", "--threads", "many")
fails(1, "these are weights of the model 'tiny'", xfc.Model, other, "run")
for beside in (["--draft", "run"], ["--rescore", "run"], ["--shortlist", "lexicon"], ["--ensemble-weights", "2"], ["--ensemble-library", "self"]):  # weights that are random
    fails(1, f"{beside[0]} goes with a trained model, but neither a path nor --model nor --weights is given", xfc.Model, library, None, "--format", "ids", *beside)
fails(1, "line 2: byte 3 is not valid UTF-8", model.translate, ["a", b"bc\xff"])
fails(1, "line 1: contains a newline", model.translate, ["a\nb"])
fails(2, "a line is a null pointer", model.translate, [None])
fails(1, "--document-context is of documents, which a library does not split", model.translate, ["a"], "--document-context", "2")
fails(1, "--n-best is larger than --beam", model.translate, ["a"], "--beam", "1", "--n-best", "2")
fails(1, "'ids': number 1 is 60, but the vocabulary has the ids 0 to 59", model.decode, [5, 60])
fails(1, "'target': number 0 is -1, but the vocabulary has the ids 0 to 59", model.forward, [[5, 3]], [[-1]])
fails(1, "source 1: the line is empty", model.score, [""], ["a"])
fails(1, "No such file or directory", model.save, "nowhere/file")
assert library.xfc_share(None, ctypes.byref(ctypes.c_void_p())) == 2 == library.xfc_share(model.handle, None)
assert library.xfc_translate(None, None, None, 0, None, None) == 2 and library.xfc_close(None) is None
assert library.xfc_message(None) == b"" and library.xfc_message(model.handle).decode().endswith("No such file or directory")
one = (ctypes.c_char_p * 1)(b"a")
assert library.xfc_translate(model.handle, one, None, ctypes.c_size_t(1 << 62), None, ctypes.byref(ctypes.c_void_p())) == 2
assert library.xfc_message(model.handle) == b"no array has this number of lines", library.xfc_message(model.handle)
with open("long", "w") as file:
    file.write("a " * 2000)
model.translate(["a " * 2000], "--beam", "1", "--max-length", "5")
assert len(model.warnings()) == 1 and model.warnings()[0].startswith("line 1: cut to the first "), model.warnings()
assert model.translate(lines, *beam) == whole
model.close()

os.dup2(printed[0], 1), os.dup2(printed[1], 2)
assert open("said").read() == "", "the library printed: " + open("said").read()
assert signals() == handled, (handled, signals())
