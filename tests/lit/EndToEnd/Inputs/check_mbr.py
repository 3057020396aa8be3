"""check_mbr.py TRANSLATOR FOLDER: minimum Bayes risk chooses, of the samples that `translate --sample` draws, those that sacreBLEU does.

FOLDER holds a trained model (run) and lines (a). sacreBLEU is compared if Python has it; if not, only what does not need it.
"""
import json
import os
import subprocess
import sys

try:
    import sacrebleu
except ImportError:
    sacrebleu = None

translator, folder = sys.argv[1:]
os.chdir(folder)
lines = [*open("a").read().splitlines()[:12], ""]
SAMPLES = 20


def run(*arguments, status=0):
    done = subprocess.run([translator, "translate", "--model", "run", *map(str, arguments)], input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done.stdout if status == 0 else done.stderr


def hypotheses(*arguments):
    return [json.loads(line)["hypotheses"] for line in run("--json", *arguments).splitlines()]


drawing = ["--seed", 5, "--temperature", 1.3, "--token-scores"]
drawn = hypotheses("--sample", "--n-best", SAMPLES, *drawing)
different = 0
for utility in ("chrf", "bleu"):
    chosen = hypotheses("--mbr", utility, "--samples", SAMPLES, "--n-best", 4, *drawing)
    assert chosen == hypotheses("--mbr", utility, "--samples", SAMPLES, "--n-best", 4, "--batch-tokens", 1, "--threads", 3, *drawing)
    assert [one[:1] for one in chosen] == hypotheses("--mbr", utility, "--samples", SAMPLES, "--sample", *drawing)
    assert run("--mbr", utility, "--samples", SAMPLES, *drawing[:-1]).splitlines() == [one[0]["text"] if one else "" for one in chosen]
    for samples, best in zip(drawn, chosen, strict=True):
        assert len(best) == (4 if samples else 0)
        of_samples = [{name: value for name, value in sample.items() if name != "score"} for sample in samples]
        assert all({name: value for name, value in one.items() if name != "score"} in of_samples for one in best), best
        if not samples or not sacrebleu:
            continue
        sentence = getattr(sacrebleu, f"sentence_{utility}")
        expected = {one["text"]: sum(sentence(one["text"], [other["text"]]).score for other in samples) / SAMPLES for one in samples}
        ranked = sorted((expected[one["text"]] for one in samples), reverse=True)
        assert all(abs(one["score"] - expected[one["text"]]) < 1e-9 and abs(one["score"] - rank) < 1e-9 for one, rank in zip(best, ranked)), (best, ranked[:4])
        different += best[0]["text"] != samples[0]["text"]
assert not sacrebleu or different, "the most probable sample was always the best"
assert hypotheses("--mbr", "none", "--beam", 2) == hypotheses("--beam", 2)
assert "--n-best is larger than --samples" in run("--mbr", "chrf", "--samples", 3, "--n-best", 4, status=1)
open("terms", "w").write("x\n" * len(lines))
assert "--mbr does not go with constraints" in run("--mbr", "chrf", "--constraints", "terms", status=1)
print("minimum Bayes risk", "as by sacreBLEU" if sacrebleu else "without sacreBLEU")
