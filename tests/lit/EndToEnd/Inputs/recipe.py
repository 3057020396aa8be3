"""recipe.py TRANSLATOR WORK_FOLDER: checks what a training run does besides training: it saves on request, keeps the best weights by any
metric, writes events for TensorBoard, mixes corpora, goes back if the loss is not finite, and finds the largest batches for a given memory. The folder
holds ids in `a` and `b`, and a larger corpus in `c` and `d`. Plain Python."""
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys

import tensors

translator, work = sys.argv[1:]


def path(*names):
    return os.path.join(work, *names)


def training(out, *more, steps, corpus="ab"):
    return [translator, "train", "--format", "ids", "--source", path(corpus[0]), "--target", path(corpus[1]), "--out", path(out), "--steps", str(steps),
            "--seed", "5", "--schedule", "constant", "--warmup", "0", "--lr", "0.01", *map(str, more)]


def call(command, status=0):
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == status, (command, result.returncode, result.stderr)
    return result.stderr


def resume(out, *more, status=0):
    return call([translator, "train", "--resume", "--out", path(out), *map(str, more)], status)


def contents(*names):
    return open(path(*names), "rb").read()


def records(out):
    return [json.loads(line) for line in open(path(out, "train.jsonl"))]


VALID = ["--valid-source", path("a"), "--valid-target", path("b")]

# SIGUSR1 saves between steps, and changes neither the training nor which files are kept.
STEADY = ["--batch-tokens", 100, "--save-every", 300, "--keep", 5, "--threads", 1]
call(training("steady", *STEADY, "--quiet", steps=700))
running = subprocess.Popen(training("asked", *STEADY, steps=700), stderr=subprocess.PIPE, text=True)
asked = None
for line in running.stderr:
    if "million parameters" in line: # the first step comes next
        while not os.path.exists(path("asked", "train.jsonl")) or os.path.getsize(path("asked", "train.jsonl")) == 0:
            pass
        running.send_signal(signal.SIGUSR1)
    if saved := re.search(r"saved at step (\d+), as requested by SIGUSR1", line):
        asked = int(saved[1])
        size = struct.unpack("<Q", contents("asked", "state", "training.safetensors")[:8])[0]
        header = json.loads(contents("asked", "state", "training.safetensors")[8 : 8 + size])
        assert json.loads(header["__metadata__"]["progress"])["step"] >= asked
        running.kill()
        break
running.wait()
assert asked and asked % 300, asked
resume("asked", "--quiet")
for name in ("last.safetensors", "step-300.safetensors", "step-600.safetensors", "step-700.safetensors"):
    assert contents("steady", name) == contents("asked", name), name
assert not os.path.exists(path("asked", f"step-{asked}.safetensors"))

# The events are the records of the log, even if a run was stopped between writing the two.
CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def fields(data):
    """Maps field numbers to values, from the protocol buffers wire format."""
    found, at = {}, 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    assert at == len(data)
    return found


def events(out):
    data, at, found = contents(out, "events.out.tfevents.xfc"), 0, []
    while at < len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        event = data[at + 12 : at + 12 + size]
        assert crc == masked(data[at : at + 8]) and struct.unpack_from("<I", data, at + 12 + size)[0] == masked(event)
        found.append(fields(event))
        at += 16 + size
    return found


def check_events(out):
    first, *rest = events(out)
    assert first[3] == [b"brain.Event:2"] and len(first[1]) == 1
    log = records(out)
    assert len(log) == len(rest), (len(log), len(rest))
    for record, event in zip(log, rest):
        values = {}
        for value in fields(event[5][0])[1]:
            tag = fields(value)
            values[tag[1][0].decode()] = struct.unpack("<f", tag[2][0])[0]
        numbers = {name: value for name, value in record.items() if isinstance(value, (int, float)) and name != "step"}
        assert event[2] == [record["step"]] and struct.unpack("<d", event[1][0])[0] > 1.6e9
        assert values == {name: struct.unpack("<f", struct.pack("<f", value))[0] for name, value in numbers.items()}, (values, numbers)
    return len(rest)


call(training("events", *VALID, "--log-tensorboard", "--batch-tokens", 200, "--valid-every", 10, "--save-every", 8, "--quiet", steps=20))
check_events("events")
frames = contents("events", "events.out.tfevents.xfc")
later = struct.pack("<Q", 3)
open(path("events", "events.out.tfevents.xfc"), "ab").write(later + struct.pack("<I", masked(later)) + b"\0\0\0" + b"torn")
resume("events", "--steps", 50, "--quiet")
assert check_events("events") == len(records("events")) > 7 and contents("events", "events.out.tfevents.xfc").startswith(frames)
open(path("events", "events.out.tfevents.xfc"), "wb").write(b"something else, of many bytes")
assert "not an event file written by train" in resume("events", "--steps", 60, "--quiet", status=1)

# The best weights by a metric other than the loss; early stopping counts by it, too.
call(training("chrf", *VALID, "--batch-tokens", 200, "--valid-every", 2, "--best", "chrf", "--early-stop", 4, "--quiet", steps=200))
best, since, at, smallest = -1, 0, None, []
for record in records("chrf"):
    if "chrf" not in record:
        continue
    assert since < 4
    assert record["best"] == (record["chrf"] > best), record
    smallest.append(record["valid_nll"])
    if record["best"]:
        best, since, at = record["chrf"], 0, record["step"]
    else:
        since += 1
assert since == 4 and records("chrf")[-1]["step"] < 200
size = struct.unpack("<Q", contents("chrf", "best.safetensors")[:8])[0]
assert json.loads(contents("chrf", "best.safetensors")[8 : 8 + size])["__metadata__"]["step"] == str(at)
assert any(b < a for a, b in zip(smallest[-4:], smallest[-3:])) # by the loss, it would not have stopped
assert "was begun with --best chrf; give the same" in resume("chrf", "--best", "loss", "--quiet", status=1)
assert "--best bleu compares translations; it needs --valid-source" in call(training("none", "--best", "bleu", steps=1), status=1)

# For TER, lower is better.
call(training("ter", *VALID, "--batch-tokens", 200, "--valid-every", 4, "--best", "ter", "--quiet", steps=20))
least = float("inf")
for record in records("ter"):
    if "ter" in record:
        assert record["best"] == (record["ter"] < least), record
        least = min(least, record["ter"])
assert least < float("inf")

# By BLEU, the best weights that are kept are those of the largest scores, of which the first counts if there are several.
call(training("bleu", *VALID, "--batch-tokens", 200, "--valid-every", 4, "--best", "bleu", "--keep-best", 2, "--threads", 1, "--quiet", steps=44))
scores = {record["step"]: record["bleu"] for record in records("bleu") if "bleu" in record}
ranked = sorted(scores, key=lambda step: (-scores[step], step))
assert len(set(scores.values())) > 3 and [record["step"] for record in records("bleu") if record.get("best")][-1] == ranked[0], scores
kept = {int(name[len("best-") : -len(".safetensors")]) for name in os.listdir(path("bleu")) if name.startswith("best-")}
losses = {record["step"]: record["valid_nll"] for record in records("bleu") if "bleu" in record}
assert kept == set(ranked[:2]) != set(sorted(losses, key=losses.get)[:2]), (kept, scores, losses)
assert contents("bleu", "best.safetensors") == contents("bleu", f"best-{ranked[0]}.safetensors")


# Several corpora, each with its own share of every epoch.
def mixed(out, *more, steps):
    return training(out, "--source", path("c"), "--target", path("d"), *more, "--batch-tokens", 400, "--quiet", steps=steps)


call(mixed("mixed", "--corpus-weight", 3, 1, "--threads", 1, steps=12))
call(mixed("mixed2", "--corpus-weight", 3, 1, "--threads", 2, steps=5))
resume("mixed2", "--steps", 12, "--quiet")
assert contents("mixed", "last.safetensors") == contents("mixed2", "last.safetensors")
call(mixed("joined", steps=12))
assert contents("mixed", "last.safetensors") != contents("joined", "last.safetensors")
assert "was begun with --corpus-weight 3 1 of corpora of 40 3000 pairs" in resume("mixed2", "--corpus-temperature", 2, "--steps", 13, status=1)

# With a rate that no halving helps, the error names a kernel and its place in model.json, and the saved state is kept.
diverging = training("diverged", "--batch-tokens", 200, "--on-nan", "halve", "--quiet", steps=20)
said = call(["1e30" if word == "0.01" else word for word in diverging], status=1)
assert re.search(r"error: step \d+: the loss is \S+; the first result that is not finite is \S+, of the kernel \S+ \(\S+ of model.json\), after the rate was halved ten times; what was saved at step 0 is intact", said), said
assert said.count("went back to step 0") == 10 and os.path.exists(path("diverged", "state", "training.safetensors"))

# A weight that is too large makes the result of its own step infinite, which is the first one, in whichever layer it is.
call(training("sound", "--batch-tokens", 200, "--quiet", steps=1))
for name, (kernel, place) in {"encoder.layers.1.ffn.out.weight": ("linear_", "encoder.layers.1.ffn.out"),
                              "decoder.layers.0.cross_attn.q.weight": ("linear_", "decoder.layers.0.cross_attn.q"),
                              "decoder.layers.1.ffn_norm.weight": ("", "decoder.layers.1.ffn_norm"),
                              "output.weight": ("", "output")}.items():
    weights = {key: ("F32", *value) for key, value in tensors.read(path("sound", "last.safetensors")).items()}
    kind, shape, numbers = weights[name]
    weights[name] = kind, shape, [3e38] * len(numbers)
    tensors.write(path("poisoned.safetensors"), weights)
    for out, accumulate in ((f"poisoned.{name}", 1), (f"poisoned2.{name}", 2)):
        said = call(training(out, "--init", path("poisoned.safetensors"), "--batch-tokens", 200, "--accumulate", accumulate, "--save-every", 1,
                             "--quiet", steps=3), status=1)
        found = re.search(r"error: step 1: the loss is \S+; the first result that is not finite is \S+, of the kernel (\S+) \((\S+) of model.json\)", said)
        assert found and found[1].startswith(kernel) and found[2] == place, (name, said)
        record = records(out)[-1]
        assert (record["step"], record["not_finite_step"], record["kernel"], record["location"]) == (1, 1, *found.groups()), record

# Flags that contradict each other are refused by name.
for flags, says in ((["--early-stop", 3], ["--early-stop", "--valid-source"]), (["--valid-every", 10], ["--valid-every", "--valid-source"]),
                    (["--keep-best", 2], ["--keep-best", "--valid-source"]),
                    (["--momentum", 0.9], ["--momentum", "--optimizer adam does not", "--optimizer sgd"]),
                    (["--optimizer", "sgd", "--betas", "0.9,0.98"], ["--betas", "--optimizer sgd does not", "--optimizer adam or adamw or lion"]),
                    (["--optimizer", "lion", "--adam-eps", 1e-8], ["--adam-eps", "--optimizer lion", "--optimizer adam or adamw"]),
                    *((["--optimizer", "adamw", *flag], [flag[0], "--optimizer adamw", "--optimizer adafactor"])
                      for flag in (["--adafactor-eps", "1e-30,1e-3"], ["--clip-threshold", 1], ["--decay-rate", -0.8], ["--scale-parameter"])),
                    (["--optimizer", "adafactor", "--betas", "0.9,0.98"], ["--betas", "--optimizer adafactor"]),
                    (["--restarts", 2], ["--restarts", "--schedule"])):
    said = call(training("refused", *flags, steps=1), status=2)
    assert all(word in said for word in says) and not os.path.exists(path("refused")), (flags, said)
# Those of a file count as well, except defaults, which config.json also has; the command line may choose another optimizer than the file.
json.dump({"optimizer": "adam", "momentum": 0.5}, open(path("contradiction.json"), "w"))
assert "--momentum: --optimizer adam does not use it" in call(training("refused", "--config", path("contradiction.json"), steps=1), status=2)
call(training("betas", "--optimizer", "adamw", "--betas", "0.8,0.9", "--adam-eps", "1e-8", "--quiet", steps=1))
resume("betas", "--steps", 2, "--quiet")
call(training("of-file", "--config", path("betas", "config.json"), "--optimizer", "sgd", "--quiet", steps=1))
assert "--momentum" in call(training("refused", "--config", path("betas", "config.json"), "--momentum", 0.1, steps=1), status=2)

# Rates, by the formulas of docs/runs.md: at the peak until the end, from there to 0 at the end, and twice to 0 with a restart.
def without(command, flag):
    """The command without a flag that has one value."""
    at = command.index(flag)
    return command[:at] + command[at + 2 :]


def rates(out, schedule, warmup, *more, steps=40):
    command = without(without(training(out, "--batch-tokens", 200, "--clip-norm", 0.1, *more, "--quiet", steps=steps), "--schedule"), "--warmup")
    call([*command, "--schedule", schedule, "--warmup", str(warmup)])
    return {record["step"]: record["lr"] for record in records(out)}


def close(found, expected):
    assert found.keys() == expected.keys() and all(abs(found[step] - expected[step]) < 1e-9 for step in expected), (found, expected)


def cosine(t):
    return 0.01 * (1 + math.cos(math.pi * t)) / 2


close(rates("constant", "constant", 0), {10: 0.01, 20: 0.01, 30: 0.01, 40: 0.01})
close(rates("warm", "constant", 25), {10: 0.004, 20: 0.008, 30: 0.01, 40: 0.01})
close(rates("cosine", "cosine", 0), {step: cosine(step / 40) for step in (10, 20, 30, 40)})
close(rates("restarted", "cosine", 0, "--restarts", 1), {10: cosine(0.5), 20: cosine(0), 30: cosine(0.5), 40: cosine(1)})
# After warm-up, from X at step 20 to 0 at the end; with a restart, the peak and the end come twice.
close(rates("cosine-warm", "cosine", 20), {10: 0.005, 20: cosine(0), 30: cosine(0.5), 40: cosine(1)})
close(rates("linear", "linear", 0), {10: 0.0075, 20: 0.005, 30: 0.0025, 40: 0})
close(rates("linear-warm", "linear", 20), {10: 0.005, 20: 0.01, 30: 0.005, 40: 0})
close(rates("linear-restarted", "linear", 20, "--restarts", 1, steps=60), {10: 0.005, 20: 0.01, 30: 0.005, 40: 0.01, 50: 0.005, 60: 0})
WIDTH = 24
close(rates("noam", "noam", 15), {step: 0.01 * WIDTH**-0.5 * min(step**-0.5, step * 15**-1.5) for step in (10, 20, 30, 40)})
close(rates("inverse-sqrt", "inverse-sqrt", 15), {step: 0.01 * min(step / 15, math.sqrt(15 / step)) for step in (10, 20, 30, 40)})


# The length of a run, by passes over the data or by time.
def limited(out, *more):
    call(without(training(out, "--batch-tokens", 200, *more, "--quiet", steps=1), "--steps"))
    last = records(out)[-1]
    return last["step"], last["epoch"], last["wall"]


one, three = limited("epoch", "--epochs", 1), limited("epochs", "--epochs", 3)
assert one[1] == 1 and three[1] == 3 and three[0] == 3 * one[0] > 3, (one, three)
step, _, seconds = limited("minutes", "--minutes", 0.02)
assert step > three[0] and 1 <= seconds < 30, (step, seconds)  # the last step's record may come a moment before the time is up

# The largest batches for a given memory.
def batches(out, memory, status=0):
    said = call(training(out, "--memory", memory, "--threads", 1, steps=1, corpus="cd"), status)
    return said if status else int(re.search(r"batches of (\d+) tokens \(--batch-tokens\)", said)[1])


def megabytes(out, tokens):
    said = call(training(out, "--batch-tokens", tokens, "--threads", 1, steps=1, corpus="cd"))
    return int(re.search(r"(\d+) MB of memory", said)[1])


small, large = batches("small", "5MB"), batches("large", "10MB")
assert megabytes("small2", small) <= 5 < megabytes("small3", small + small // 4 + 16) and megabytes("large2", large) <= 10 < megabytes("large3", large + large // 4)
assert contents("small", "last.safetensors") == contents("small2", "last.safetensors")
config = json.load(open(path("small", "config.json")))
assert config["batch-tokens"] == small and "memory" not in config
resume("small", "--steps", 2, "--quiet")
assert "a resumed run keeps its --batch-tokens" in resume("small", "--memory", "8MB", "--steps", 3, "--quiet", status=2)
assert "--memory: training needs" in batches("none", "1kB", status=1)
assert "expected a number and one of kB" in batches("none", "24", status=2)
assert not os.path.exists(path("none"))
