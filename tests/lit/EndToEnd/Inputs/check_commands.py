"""check_commands.py TRANSLATOR WORK_FOLDER: checks score, Ctrl-C, progress, and bench on the command line. The folder holds ids in
`a` and `b`, and an empty folder `tmp`. Plain Python."""
import json
import math
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

translator, work = sys.argv[1:]
START, EOS = 2, 3
STEPS = 300
failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)


def path(name):
    return os.path.join(work, name)


def call(*arguments, **options):
    result = subprocess.run([translator, *map(str, arguments)], capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{arguments}: exit status {result.returncode}\n{result.stderr}")
    return result


def training(out, *more, steps=STEPS):
    return ["train", "--format", "ids", "--source", path("a"), "--target", path("b"), "--out", path(out), "--steps", str(steps),
            "--batch-tokens", "256", "--seed", "4", *more]


def through_terminal(*arguments, status=0, **environment):
    """What a command writes to standard error if that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([translator, *map(str, arguments)], stderr=theirs, stdout=subprocess.PIPE, env={**os.environ, **environment})
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # on Linux: the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    process.stdout.read()
    expect(process.wait() == status, f"{arguments}: exit status {process.returncode} on a terminal")
    return text.decode()


def check_progress():
    plain = call(*training("whole")).stderr
    expect("\r" not in plain and "\033" not in plain, f"control characters where there is no terminal: {plain!r}")
    line = r"^ *\d+%  step \d+  epoch \d+  loss [\d.]+  ppl [\d.]+  \d+ tokens/s  ETA [\d:?]+$"
    expect(re.search(line, plain, re.M), f"no line of progress: {plain!r}")
    expect(re.search(rf"^done: {STEPS} steps in ", plain, re.M), f"no last line: {plain!r}")
    expect(call(*training("quiet", "--quiet", steps=10)).stderr == "", "--quiet says something")
    shown = through_terminal(*training("terminal", steps=30))
    expect(re.search(r"\r\[[= ]{24}\] +\d+%  step \d+ .*ETA [\d:?]+\033\[K", shown), f"no bar on a terminal: {shown!r}")
    expect(re.search(r"\r\033\[Kdone: 30 steps", shown), f"the bar stays: {shown!r}")


def check_interrupt():
    command = training("interrupted")
    process = subprocess.Popen([translator, *command], stderr=subprocess.PIPE, text=True)
    log = path("interrupted/train.jsonl")
    while process.poll() is None and not (os.path.exists(log) and os.path.getsize(log)):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    expect(process.returncode == 0, f"exit status {process.returncode} after Ctrl-C: {error}")
    stopped = re.search(r"stopped at step (\d+) and saved; continue with --resume", error)
    expect(stopped, f"nothing said after Ctrl-C: {error!r}")
    step = int(stopped[1]) if stopped else 0
    expect(10 <= step < STEPS, f"stopped at step {step} of {STEPS}")
    last = json.loads(open(log).read().splitlines()[-1])
    expect(last["step"] == step, f"the log ends at step {last['step']}, the run at {step}")
    resumed = call(*command, "--resume").stderr
    expect(f"resumed at step {step}" in resumed, f"resumed elsewhere: {resumed!r}")
    expect(open(path("interrupted/last.safetensors"), "rb").read() == open(path("whole/last.safetensors"), "rb").read(),
           "interrupted and resumed, other weights than without")


def check_score():
    weights = ["--weights", path("whole/last.safetensors")]
    pairs = [[[int(word) for word in line.split()] for line in open(path(name)).read().splitlines()[:20]] for name in ("a", "b")]
    for name, rows in zip(("few.a", "few.b"), pairs):
        with open(path(name), "w") as file:
            file.writelines(" ".join(map(str, row)) + "\n" for row in rows)
    files = ["--format", "ids", "--source", path("few.a"), "--target", path("few.b")]
    lines, result = call("score", *weights, *files), json.loads(call("score", *weights, *files, "--json").stdout)
    # The expected scores: the logits of forward, and a softmax computed here.
    targets = [([START] + row, row + [EOS]) for row in pairs[1]]
    s, t = max(map(len, pairs[0])), max(len(row) for row, _ in targets)
    tensors.write(path("in.safetensors"), {
        "source": ("I32", [20, s], [x for row in pairs[0] for x in row + [0] * (s - len(row))]),
        "target": ("I32", [20, t], [x for row, _ in targets for x in row + [0] * (t - len(row))])})
    call("forward", *weights, "--input", path("in.safetensors"), "--output", path("out.safetensors"))
    (_, _, vocabulary), logits = tensors.read(path("out.safetensors"))["logits"]
    want = []
    for b, (_, labels) in enumerate(targets):
        rows = [logits[(b * t + i) * vocabulary :][:vocabulary] for i in range(len(labels))]
        want.append(sum(row[label] - math.log(sum(map(math.exp, row))) for row, label in zip(rows, labels)))
    tokens = sum(len(labels) for _, labels in targets)
    near = lambda a, b: abs(a - b) <= 1e-5 * abs(b)  # noqa: E731
    expect(len(lines.stdout.splitlines()) == 20, f"score prints {lines.stdout!r}")
    expect(all(map(near, map(float, lines.stdout.split()), want)), f"score: {lines.stdout.split()}, forward says {want}")
    expect(all(map(near, result["log_probabilities"], want)), "score --json differs from forward")
    expect(result["sentences"] == 20 and result["tokens"] == tokens, f"score counts {result['sentences']} sentences, {result['tokens']} tokens")
    expect(near(result["log_probability"], sum(want)) and near(result["perplexity"], math.exp(-sum(want) / tokens)), f"score: {result}")
    expect(re.search(rf"^20 sentences, {tokens} tokens, log-probability -\d", lines.stderr), f"score says {lines.stderr!r}")


def check_startup():
    """Translating one line has little overhead, measured in processor time, so that other load does not matter, and in page faults."""
    with open(path("line"), "w") as file:
        file.write("5 6 7\n")
    command = [translator, "translate", "--weights", path("whole/last.safetensors"), "--format", "ids", "--input", path("line"), "--output",
               path("translated"), "--threads", "1", "--quiet"]
    runs = []
    for _ in range(5):
        _, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, translator, command), 0)
        expect(status == 0, f"translate: status {status}")
        runs.append((usage.ru_utime + usage.ru_stime, usage.ru_minflt))
    expect(min(seconds for seconds, _ in runs) < 0.05 and min(faults for _, faults in runs) < 1000, f"seconds and page faults of a start: {runs}")


def check_typed_lines():
    """A line that a person types is translated at once, before there is another."""
    command = [translator, "translate", "--weights", path("whole/last.safetensors"), "--format", "ids", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for line in (b"5 6 7\n", b"8 9\n"):
            process.stdin.write(line)
            process.stdin.flush()
            expect(select.select([process.stdout], [], [], 60)[0], f"no translation of {line!r} before the next line")
            process.stdout.readline()
        process.stdin.close()
        expect(process.stdout.read() == b"" and process.wait() == 0, "a translation for each line")


def check_colours():
    plain = "error: unknown verb 'trnslate'; did you mean 'translate'?"
    shown = through_terminal("trnslate", status=2, TERM="xterm", NO_COLOR="")
    expect(shown.startswith("\033[1;31merror\033[0m" + plain[5:]), f"on a terminal: {shown!r}")
    for setting in ({"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": ""}):
        shown = through_terminal("trnslate", status=2, **setting)
        expect(shown.startswith(plain), f"with {setting}: {shown!r}")


def check_bench():
    folder = path("tmp")
    result = json.loads(call("bench", "startup", "--json", env={**os.environ, "TMPDIR": folder}).stdout)
    expect(result["what"] == "startup" and result["model"] == "tiny" and result["runs"] == 7, f"bench startup: {result}")
    expect(0 < result["first_token_ms"] <= result["first_token_ms_median"] < 10000, f"bench startup: {result}")
    expect(os.listdir(folder) == [], "bench startup leaves files behind")

    arguments = ["bench", "train", "--batch-tokens", 64, "--length", 16, "--steps", 3, "--threads", 1, "--profile"]
    machine, person = call(*arguments, "--json"), call(*arguments)
    result = json.loads(machine.stdout)
    # Each step has 4 sentences of 16 tokens.
    expect((result["steps"], result["target_tokens"], result["source_tokens"]) == (3, 192, 192), f"bench train counts {result}")
    expect(0 < result["step_ms_min"] <= result["step_ms_median"] and result["tokens_per_second"] > 0, f"bench train: {result}")
    kernels = result["kernels"]
    expect(result["peak_gflops"] > 0 and result["peak_copy_gb_per_second"] > 0, f"bench train --profile: no peak in {result}")
    expect(any("ffn.in" in kernel["location"] for kernel in kernels), "the profile names no place in model.json")
    for kernel in kernels:
        share = max(kernel["flops"] / result["peak_gflops"], kernel["bytes"] / result["peak_copy_gb_per_second"]) / kernel["ms"] * 1e-6
        expect(abs(kernel["share_of_peak"] - share) < 1e-9 * share + 1e-12, f"bench train --profile: share of peak of {kernel}")
    table = person.stdout
    rows = re.findall(r"^(\S+) +(.*\S) +([\d.]+) +([\d.]+) +([\d.]+)% +([\d.]+) +([\d.]+) +\d+%$", table, re.M)
    total = re.search(r"^(\d+) launches, ([\d.]+) ms a step in kernels; the machine: [\d.]+ GFLOP/s, [\d.]+ in bf16, [\d.]+ in int8, copies at [\d.]+ GB/s$", table, re.M)
    if not rows or not total:
        failures.append(f"bench train --profile: no table in {table!r}")
        return
    expect({row[0] for row in rows} == {kernel["kernel"] for kernel in kernels}, "the table and the JSON name other kernels")
    expect(abs(sum(float(row[2]) for row in rows) - int(total[1])) < 1, "the calls of the profile do not sum to its launches")
    expect(abs(sum(float(row[3]) for row in rows) - float(total[2])) < 0.001 * len(rows), "the times of the profile do not sum to its total")
    expect(abs(sum(float(row[4]) for row in rows) - 100) < 0.1 * len(rows), "the shares of the profile do not sum to 100 %")
    shares = [float(row[4]) for row in rows]
    expect(shares == sorted(shares, reverse=True), "the profile is not in order")


def spans_of(file):
    with open(file) as text:
        return [event for event in json.load(text)["traceEvents"] if event["ph"] == "X"]


def check_trace():
    """The timeline of bench train has what the profile counts, with all chunks of each launch; that of train changes no byte."""
    arguments = ["bench", "train", "--batch-tokens", 64, "--length", 16, "--steps", 2, "--threads", 2, "--json"]
    profile = json.loads(call(*arguments, "--profile").stdout)["kernels"]
    call(*arguments, "--trace", path("bench.json"))
    spans = spans_of(path("bench.json"))
    kernels = [span for span in spans if span["cat"] == "kernel"]
    programs = [span for span in spans if span["cat"] == "program"]
    end = lambda span: span["ts"] + span["dur"]  # noqa: E731
    rounding = 0.002  # in microseconds, of times with three decimals
    expect([span["name"] for span in spans if span["cat"] == "step"] == ["step 1", "step 2"], "bench train --trace: other steps")
    expect({span["tid"] for span in kernels} <= {0, 1}, "bench train --trace: other threads")
    launches = {}
    for span in kernels:
        launches.setdefault(span["args"]["launch"], []).append(span)
    found = {}
    for shares in launches.values():
        args = shares[0]["args"]
        expect(sum(share["args"]["chunks"] for share in shares) == args["of chunks"], f"bench train --trace: a launch in parts: {shares}")
        expect(len({share["tid"] for share in shares}) == len(shares), f"bench train --trace: two shares of a thread: {shares}")
        calls, flops, moved = found.get((shares[0]["name"], args["place"]), (0, 0, 0))
        found[shares[0]["name"], args["place"]] = (calls + 1, flops + args.get("flops", 0), moved + args.get("bytes", 0))
    want = {(entry["kernel"], entry["location"]): tuple(2 * entry[key] for key in ("calls", "flops", "bytes")) for entry in profile}
    expect(found.keys() == want.keys(), f"bench train --trace: other kernels than in the profile: {found.keys() ^ want.keys()}")
    for key in found.keys() & want.keys():
        expect(all(abs(a - b) <= 1e-6 * b for a, b in zip(found[key], want[key])), f"bench train --trace: {key}: {found[key]}, {want[key]} in the profile")
    for thread in (0, 1):
        mine = sorted((span for span in kernels if span["tid"] == thread), key=lambda span: span["ts"])
        expect(all(end(a) <= b["ts"] + rounding for a, b in zip(mine, mine[1:])), f"bench train --trace: kernels overlap on thread {thread}")
    for program in programs:
        inside = [span for span in kernels if span["args"].get("program") == program["name"] and program["ts"] - rounding <= span["ts"] <= end(program)]
        expect(inside and all(end(span) <= end(program) + rounding for span in inside), f"bench train --trace: kernels out of {program}")
        busy = sum(span["dur"] for span in inside if span["tid"] == 0)
        expect(busy <= program["dur"] + rounding * len(inside), f"bench train --trace: {busy} us of kernels in {program}")

    call(*training("untraced", "--threads", "2", steps=6))
    call(*training("traced", "--threads", "2", "--trace", path("train.json"), "--trace-steps", "3:4", steps=6))
    for name in ("last.safetensors", "best.safetensors"):
        with open(path("untraced/" + name), "rb") as plain, open(path("traced/" + name), "rb") as traced:
            expect(plain.read() == traced.read(), f"train --trace changes {name}")
    with open(path("untraced/config.json")) as plain, open(path("traced/config.json")) as traced:
        expect({**json.load(plain), "out": ""} == {**json.load(traced), "out": ""}, "a run that is resumed would be traced")
    spans = spans_of(path("train.json"))
    expect([span["name"] for span in spans if span["cat"] == "step"] == ["step 3", "step 4"], "train --trace-steps 3:4: other steps")
    names = [span["name"] for span in spans if span["cat"] == "program"]
    expect(names.count("loss_and_gradients") == names.count("update") == 2, f"train --trace-steps 3:4: {names}")


def check_inputs_are_kept():
    """No verb writes over what it reads, whatever the names; and it says so before it works."""
    weights = path("kept.safetensors")
    shutil.copy(path("whole/last.safetensors"), weights)
    os.symlink("a", path("link-to-a"))
    os.link(path("b"), path("other-b"))
    ids = ["--format", "ids"]
    pairs = [*ids, "--source", path("a"), "--target", path("b")]
    for verb, output, words in (
            ("prepare", "a", [*pairs, "--out", path("a")]),
            ("prepare", "link-to-a", [*pairs, "--out", path("link-to-a")]),
            ("prepare", "b", [*ids, "--source", path("a"), path("b"), "--target", path("a"), path("a"), "--out", path("b")]),
            ("translate", "a", [*ids, "--weights", weights, "--input", path("a"), "--output", path("a")]),
            ("translate", "kept.safetensors", [*ids, "--weights", weights, "--input", path("a"), "--output", weights]),
            ("pack", "kept.safetensors", ["--weights", weights, "-o", weights]),
            ("average", "kept.safetensors", [weights, weights, "-o", weights]),
            ("report", "whole/best.safetensors", [path("whole"), "-o", path("whole/best.safetensors")]),
            ("report", "whole/state/training.safetensors", [path("whole"), "-o", path("whole/state/training.safetensors")]),
            ("train", "other-b", [*pairs, "--out", path("never"), "--steps", "1", "--trace", path("other-b"), "--trace-steps", "1:1"])):
        before = open(path(output), "rb").read()
        result = subprocess.run([translator, verb, *words], capture_output=True, text=True)
        expect(result.returncode == 1 and f"{path(output)}: is " in result.stderr and "an input of this command" in result.stderr,
               f"{verb} over its input {output}: {result.returncode}, {result.stderr}")
        expect(open(path(output), "rb").read() == before and not os.path.exists(path("never")), f"{verb} changed {output}")
    own = path("own")
    shutil.copy(translator, own)
    result = subprocess.run([own, "translate", *ids, "--weights", weights, "--input", path("a"), "--output", own], capture_output=True, text=True)
    expect(result.returncode == 1 and f"{own}: is the program that is running" in result.stderr and os.path.getsize(own) == os.path.getsize(translator),
           f"translate over the program: {result.returncode}, {result.stderr}")
    with open(path("a")) as lines:
        result = subprocess.run([translator, "translate", *ids, "--weights", weights, "--output", path("a")], stdin=lines, capture_output=True, text=True)
    expect(result.returncode == 1 and "the same file as /dev/stdin" in result.stderr, f"translate over standard input: {result.stderr}")


check_progress()
check_interrupt()
check_score()
check_startup()
check_typed_lines()
check_colours()
check_bench()
check_trace()
check_inputs_are_kept()
if failures:
    sys.exit(f"{len(failures)} failures:\n  " + "\n  ".join(failures[:20]))
print("the commands do as they say")
