"""check_pairs.py TRANSLATOR FOLDER: every pair of options of `translate` works, or is refused with one message that names both.

The options are those that --help shows, each with a value that is not its default. A run that works writes a line for each line of its input
(with several translations of a line, as many as there are of each). FOLDER holds a trained model (run), its weights and vocabulary (weights,
vocabulary), and lines of numbers, which mean something as ids, pieces and text (lines). Plain Python.
"""
import itertools
import json
import os
import re
import subprocess
import sys

translator, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
os.chdir(folder)
lines = open("lines").read().splitlines()
# What is no number, and has no list of choices.
VALUES = {"--model": "run", "--weights": "weights", "--vocab": "vocabulary", "--target-vocab": "vocabulary", "--input": "fewer", "--output": "written",
          "--prefix": "beginnings", "--constraints": "wanted", "--attention-svg": "drawn", "--cuda-image": "ptx", "--forced-first": "5", "--suppress": "6",
          "--bad-sequences": "7 8", "--required-phrases": "5 || 6 7", "--ensemble-weights": "2", "--ensemble-library": "self", "--compute-type": "int8", "--draft": "run", "--draft-library": "library", "--shortlist": "lexicon", "--protect": "[5-7]+", "--rescore": "run", "--document-separator": " | "}
USUAL = {"--weights": "weights", "--vocab": "vocabulary", "--input": "lines"}
# What an option cannot do without, unless it is given.
NEEDS = {"--draft": {"--beam": "1"}, "--shortlist-first": {"--shortlist": "lexicon"}, "--shortlist-best": {"--shortlist": "lexicon"},
         "--document-tokens": {"--document": None}, "--document-context": {"--document": None}, "--document-separator": {"--document": None, "--document-context": "1"},
         "--rescore-weight": {"--rescore": "run"}}
STANDS = ("--document-tokens", "--document-context", "--document-separator", "--rescore-weight")  # what they need may be named in their place


def value_of(flag, shown):
    """A value that is not the default, or None of a flag; `shown` is what help says after the name."""
    if flag in VALUES:
        return VALUES[flag]
    if not shown:
        return None
    if choices := re.match(r"(?:TEXT)?:\{(.*)\}(?:=(.*))?$", shown):
        return next(word for word in choices[1].split(",") if word != (choices[2] or choices[1].split(",")[0]))
    number = re.match(r"(?:INT|FLOAT|UINT)(?::\w+(?: in [\[(](\S+) - (\S+)\])?)?=(\S+)$", shown)
    if not number:
        sys.exit(f"{flag} {shown}: this test has no value for it")
    default, most = float(number[3]), float(number[2] or "inf")
    value = default + 1 if default + 1 <= most and most > 1 else (float(number[1]) + most) / 2
    return f"{value:g}"


def options():
    """(flag, value) of each."""
    shown = subprocess.run([translator, "translate", "--help"], capture_output=True, text=True, check=True).stdout
    for line in shown[:shown.index("\nExample")].splitlines():
        if option := re.match(r"  (?:-\w,)?(--[a-z0-9-]+)(?:\{\w+\})?(?: (?!(?: |Excludes:|Needs:))(.*?))?(?: \.\.\.)?(?: (?:Excludes|Needs):.*)?(?:  .*)?$", line):
            yield option[1], value_of(*option.groups())


def run(pair):
    """What is wrong with the answer to these options, and what it says."""
    given = dict(pair)
    several = ["--model=run"] * (1 + ("--model" not in given)) + ["--ensemble-weights=1"] * ("--ensemble-weights" in given)  # a weight for each model
    several = several if not {"--ensemble-weights", "--ensemble-library"}.isdisjoint(given) and "--weights" not in given else []
    needed = {flag: value for option in given for flag, value in NEEDS.get(option, {}).items()}
    arguments = {**({} if several or "--model" in given else USUAL), "--input": "lines", **needed, **given}
    if "--model" in given and "--weights" in given:
        arguments.pop("--vocab", None)
    if "--json-input" in given:  # which is no option of other lines
        arguments["--input"] += ".json"
    for file in ("written", "drawn"):
        if os.path.exists(file):
            os.remove(file)
    words = [flag if value is None else f"{flag}={value}" for flag, value in arguments.items()] + several
    done = subprocess.run([translator, "translate", *words], capture_output=True, text=True, timeout=60)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    if done.returncode == 0:
        text = open("written").read() if "--output" in given else done.stdout
        count, inputs = len(text.splitlines()), len(open(arguments["--input"]).read().splitlines())
        each = 2 if "--n-best" in given and not {"--json", "--json-input"}.intersection(given) else 1
        if errors or not inputs <= count <= inputs * each or ("--attention-svg" in given and not os.path.exists("drawn")):
            return f"status 0, {count} lines for {inputs}", done.stderr
        return None, ""
    # A file stands for its option, and so do constraints, which may also come from lines of JSON.
    names = {flag: [re.escape(flag), *(NEEDS[flag] if flag in STANDS else ())] + [rf"\b{value}\b"] * (value is not None and os.path.exists(value)) + [r"\bconstraints\b"] * (flag == "--constraints")
             for flag, value in pair}
    unnamed = [flag for flag in given if not re.search(rf"({'|'.join(names[flag])})(?![a-z-])", errors[0] if errors else "")]
    if done.returncode not in (1, 2) or len(errors) != 1 or unnamed:
        return f"status {done.returncode}, {len(errors)} errors, {', '.join(unnamed)} not named", done.stderr
    return "", done.stderr


open("fewer", "w").write("\n".join(lines[:2]) + "\n")
for name in ("lines", "fewer"):
    open(f"{name}.json", "w").writelines(json.dumps(line) + "\n" for line in open(name).read().splitlines())
open("beginnings", "w").write("5\n" * len(lines))
open("wanted", "w").write("7 5 || 8\t9\n" * len(lines))
all_options = [(flag, value) for flag, value in options() if flag != "--help"]
problems, refused, works = [], [], []
for option in all_options:
    problem, said = run([option])
    if problem is None:
        works.append(option)
    elif problem:
        problems.append(f"{option}: {problem}: {said}")
    else:  # what cannot be used here, such as a GPU
        refused.append(option[0])
count = 0
for pair in itertools.combinations(works, 2):
    problem, said = run(pair)
    count += problem is not None
    if problem:
        problems.append(f"{pair}: {problem}: {said}")
if problems:
    sys.exit(f"{len(problems)} problems:\n" + "\n".join(problems[:40]))
print(f"{len(works)} options, and {len(works) * (len(works) - 1) // 2} pairs of them, of which {count} are refused; without {', '.join(refused) or 'none'}")
