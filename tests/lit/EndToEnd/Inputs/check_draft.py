"""check_draft.py TRANSLATOR FOLDER LIBRARY RECURRENT DRIVER: what a smaller model drafts changes nothing that is written. Plain Python.

FOLDER holds trained models of the translator (run), of the library (run-smaller) and of the library whose decoder is recurrent
(run-recurrent), and lines of ids (a). With each of them, with any number of tokens, and with every option, what is written is what is
written without a draft, to the byte; a good draft saves steps; a GPU, whose driver is in the folder DRIVER, gives what the CPU gives; mistakes
are refused.
"""
import json
import os
import subprocess
import sys

translator, folder, library, recurrent, driver = sys.argv[1:]
os.chdir(folder)
open("few", "w").writelines(open("a").readlines()[:40])
open("beginnings", "w").writelines("5 6\n" if i % 2 else "\n" for i in range(40))
open("wanted", "w").writelines("7 5 || 8\t9\n" if i % 3 else "\n" for i in range(40))
DRAFTS = {"itself": ["--draft", "run"], "smaller": ["--draft", "run-smaller", "--draft-library", library],
          "recurrent": ["--draft", "run-recurrent", "--draft-library", recurrent], "weights": ["--draft", "run-smaller/last.safetensors", "--draft-library", library]}


def run(*arguments, status=0, model="run", source="few"):
    done = subprocess.run([translator, "translate", "--model", model, "--format", "ids", "--input", source, "--quiet", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, "LD_LIBRARY_PATH": driver})
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


TOLD = ["--json", "--token-scores", "--beam", 1]
OPTIONS = [[], ["--sample", "--seed", 3], ["--sample", "--top-k", 3, "--temperature", 1.5], ["--min-length", 9], ["--max-length", 5], ["--at-max-length", "cut", "--max-length", 7],
           ["--no-repeat-ngram", 2], ["--repetition-penalty", 1.4], ["--suppress", "5 9"], ["--renormalize", "true"], ["--forced-first", "4 8"], ["--prefix", "beginnings"],
           ["--constraints", "wanted"], ["--compute-type", "int8"], ["--batch-tokens", 1], ["--batch-sentences", 3, "--threads", 2], ["--alignments=soft"]]
for options in OPTIONS:
    alone = run(*TOLD, *options)
    for name, draft in DRAFTS.items():
        for tokens in (1, 5) if name != "weights" else (64,):
            assert run(*TOLD, *options, *draft, "--draft-tokens", tokens) == alone, (options, name, tokens)
both = ["--model", "run-other"]
assert run(*TOLD, *both, *DRAFTS["smaller"]) == run(*TOLD, *both), "an ensemble"
gpu = [[one["ids"] for one in json.loads(line)["hypotheses"]] for line in run(*TOLD, "--device", "cuda", "--draft", "run").splitlines()]
assert gpu == [[one["ids"] for one in json.loads(line)["hypotheses"]] for line in run(*TOLD, "--device", "cuda").splitlines()]

for arguments, said in (((*DRAFTS["smaller"],), "--draft drafts a single hypothesis; it needs --beam 1, or --sample, without --n-best, --mbr and --beam-groups"), ((*DRAFTS["smaller"], "--sample", "--n-best", 2), "--n-best"),
                        ((*DRAFTS["smaller"], "--mbr", "chrf"), "--mbr"), (("--beam", 1, "--draft", "run-smaller"), "load them anyway; a library of their model goes beside this executable with --draft-library"),
                        (("--beam", 1, "--draft", "nothing"), "nothing: no such folder"), (("--beam", 1, "--draft", "run", "--draft-library", "few"), "few: cannot be loaded"),
                        (("--beam", 1, "--draft", "run", "--draft-library", "none.so"), "none.so: cannot be loaded")):
    assert said in run(*arguments, status=1), (arguments, run(*arguments, status=1))
for arguments in (("--draft-tokens", 3), ("--draft-library", library), ("--draft", "run", "--draft-tokens", 0)):
    assert arguments[0] in run(*arguments, status=2), arguments
print("drafts change nothing")
