"""check_protect.py EXECUTABLE FOLDER: what --protect promises, for parts that the vocabulary of FOLDER/run has, and for others.

Python's regular expressions say which parts a line has. Plain Python."""
import json
import os
import re
import subprocess
import sys
import unicodedata

executable, folder = os.path.abspath(sys.argv[1]), sys.argv[2]
EXPRESSIONS = [r"\{[^{}]*\}", r"%[sd]", r"</?\w[^<>]*>", r"https?://\S*\w", "\uFB01\\w*", r"<\w+>-<\w+>"]
# Of {, }, % and s, the vocabulary has tokens; of <, /, ñ and others it has none, and a ligature is normalized.
PARTS = ["{x}", "%s", "{anna}", "{a b}", "<b>", "</b>", "<x/>", "<br>-<i>", "http://\u00F1.de/x?y=1", "\uFB01ne", "{ \u00F1 \u00F1 }"]
WORDS = ["anna", "berta", "carl", "dora"]
sources = [" ".join(WORDS[i % (1 + i % 4)] for i in range(n)) for n in (1, 3)]  # without parts
for i, part in enumerate(PARTS):
    other = PARTS[(i + 3) % len(PARTS)]
    sources += [part, f"anna {part} carl", f"{part} berta ({other}),", f"dora {part} {part}{other} emil"]
sources.append(" ".join(PARTS))


def translate(lines, *options):
    run = subprocess.run([executable, "translate", "--quiet", "--model", f"{folder}/run", "--json", *options], input="".join(line + "\n" for line in lines),
                         capture_output=True, text=True, check=True)
    assert not run.stderr, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def parts_of(line):
    matches = sorted(((match.start(), -match.end()) for expression in EXPRESSIONS for match in re.finditer(expression, line)))
    end, parts = 0, []
    for begin, minus in matches:
        if begin >= end:
            parts.append(line[begin:-minus])
            end = -minus
    return parts


protect = [f"--protect={expression}" for expression in EXPRESSIONS]
assert unicodedata.normalize("NFKC", "\uFB01") == "fi"
checked = translations = 0
for options in ([], ["--beam=1"], ["--beam=12", "--n-best=5", "--token-scores"], ["--beam=8", "--n-best=2", "--replace-unknowns"], ["--compute-type=int8", "--alignments"]):
    plain, kept = translate(sources, *options), translate(sources, *options, *protect)
    changed = 0
    for line, without, found in zip(sources, plain, kept, strict=True):
        parts = parts_of(line)
        if not parts:
            assert found == without, (found, without)
        for hypothesis in found["hypotheses"]:
            translations += 1
            text = hypothesis["text"]
            for part in sorted(parts, key=len, reverse=True):  # each takes a place of its own
                assert part in text, (options, line, part, found)
                text = text.replace(part, "\n", 1)
                checked += 1
        changed += not all(part in without["translation"] for part in parts)
    assert changed > len(sources) // 2, changed  # what the model writes by itself
# Beside other constraints and forced beginnings, in lines of JSON.
objects = [json.dumps({"source": "anna <b> carl <i>", "prefix": "annab", "constraints": ["carl"]})]
(found,) = translate(objects, "--json-input", "--beam=8", *protect)
assert found["translation"].startswith("annab") and all(part in found["translation"] for part in ("<b>", "<i>", "carl")), found
# Two parts with the same tokens, which are all unknown, come in the order of the line.
(found,) = translate(["anna <\u00F1> carl <\u00E9>"], "--beam=8", *protect)
assert re.search("<\u00F1>.*<\u00E9>", found["translation"]), found
print(f"{checked} parts in {translations} translations")
