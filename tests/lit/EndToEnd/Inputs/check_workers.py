"""check_workers.py TRANSLATOR FOLDER LIBRARY: with several workers, `translate`, `evaluate` and the library give the bytes that they give with one.

FOLDER holds two trained models (run, run2), a lexicon, and text (a, b). Plain Python, and python/xfc.
"""
import json
import os
import pathlib
import subprocess
import sys

import xfc

translator, folder, library = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
lines = (folder / "a").read_text(encoding="utf-8").splitlines()
lines[7:7] = ["", lines[0], " ".join(lines[:6])]
(folder / "lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
(folder / "json").write_text("".join(json.dumps({"source": line, "n": n}) + "\n" for n, line in enumerate(lines)), encoding="utf-8")
(folder / "prefixes").write_text("".join(("su" if n % 3 == 0 else "") + "\n" for n in range(len(lines))))
(folder / "wanted").write_text("".join(("a || e" if n % 4 == 0 else "") + "\n" for n in range(len(lines))))
SEVERAL = (2, 2), (3, 3), (2, 5)  # workers, threads
KINDS = [["--beam=1"], ["--beam=4", "--n-best=3", "--scores"], ["--sample", "--n-best=2", "--seed=7"], ["--sample", "--mbr=chrf", "--samples=5"],
         ["--json", "--token-scores", "--alignments=soft", "--beam=2"], ["--json-input", f"--input={folder / 'json'}"],
         ["--beam=2", "--batch-sentences=3"], ["--beam=5", "--batch-tokens=40"], [f"--prefix={folder / 'prefixes'}"],
         [f"--constraints={folder / 'wanted'}"], ["--document"], ["--alternatives", "--n-best=3", "--beam=2"],
         ["--coverage-penalty=2", "--beam=4"], [f"--model={folder / 'run2'}", "--beam=3"], [f"--rescore={folder / 'run2'}"],
         [f"--draft={folder / 'run2'}", "--beam=1"], [f"--shortlist={folder / 'lexicon'}"], ["--compute-type=int8", "--beam-groups=2", "--beam=4"]]


def output(verb, *options):
    return subprocess.run([translator, verb, f"--model={folder / 'run'}", "--quiet", *options], check=True, capture_output=True).stdout


for kind in KINDS:
    given = kind if any(word.startswith("--input=") for word in kind) else [f"--input={folder / 'lines'}", *kind]
    one = output("translate", "--threads=1", *given)
    assert one.count(b"\n") >= len(lines), one
    for workers, threads in SEVERAL:
        found = output("translate", f"--workers={workers}", f"--threads={threads}", *given)
        assert found == one, (kind, workers, threads)
text = [f"--source={folder / 'a'}", f"--target={folder / 'b'}", "--beam=2"]
assert output("evaluate", "--workers=2", "--threads=2", *text) == output("evaluate", "--threads=1", *text)

alone = xfc.Translator(str(folder / "run"), library=library, options=["--threads=1"])
several = xfc.Translator(str(folder / "run"), library=library, options=["--workers=3", "--threads=3"])
assert several.search(lines, "--beam=3", "--n-best=2") == alone.search(lines, "--beam=3", "--n-best=2")
assert list(several.stream(lines[0])) == list(alone.stream(lines[0]))  # a search in steps, by one of the workers
assert several.search(lines, "--beam=1") == alone.search(lines, "--beam=1")
try:
    xfc.Translator(str(folder / "run"), library=library, options=["--workers=3", "--threads=2"])
    sys.exit("more workers than threads")
except xfc.Error as error:
    assert "--workers 3: each worker needs a thread" in str(error), error
print(f"{len(KINDS)} kinds of searches, an evaluation and a library give the same bytes with several workers")
