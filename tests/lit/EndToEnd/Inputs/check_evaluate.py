"""check_evaluate.py TRANSLATOR RUN SOURCE TARGET WORK_FOLDER: compares both forms of evaluate with sacreBLEU and with each other."""
import json
import os
import re
import subprocess
import sys

import sacrebleu

translator, run, source, target, work = sys.argv[1:]
hypotheses = os.path.join(work, "evaluate.hypotheses")


def call(*arguments):
    return subprocess.run([translator, *arguments], check=True, capture_output=True, text=True).stdout


def lines(file):
    return open(file, encoding="utf-8").read().splitlines()


def check(*arguments):
    """These arguments evaluate the translations in the file of hypotheses."""
    metrics = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF(), "ter": sacrebleu.TER()}
    want = [metric.corpus_score(lines(hypotheses), [lines(target)]).score for metric in metrics.values()]
    result = json.loads(call("evaluate", *arguments, "--target", target, "--json"))
    for (name, metric), score in zip(metrics.items(), want):
        assert abs(result[name] - score) < 1e-6, (result, want)
        assert result[name + "_signature"].startswith(str(metric.get_signature()).split("|version")[0]), (result, metric.get_signature())
    assert result["sentences"] == len(lines(target)), result
    shown = call("evaluate", *arguments, "--target", target)
    assert re.fullmatch(rf"BLEU +{want[0]:.2f}  \S+\nchrF2 +{want[1]:.2f}  \S+\nTER +{want[2]:.2f}  \S+\n", shown), (shown, want)
    return want


# Fairly good translations: every fourth word is missing, and every fifth line is another one's.
references = lines(target)
with open(hypotheses, "w", encoding="utf-8") as file:
    for i, line in enumerate(references):
        words = references[i - 1 if i % 5 == 4 else i].split()
        file.write(" ".join(word for at, word in enumerate(words, i) if at % 4) + "\n")
bleu, chrf, ter = check("--hypothesis", hypotheses)
assert 10 < bleu < 90 and 10 < chrf < 95 and 10 < ter < 90, (bleu, chrf, ter)

# The model's own translations, with a beam that is not the default.
call("translate", "--model", run, "--input", source, "--output", hypotheses, "--beam", "3", "--quiet")
check("--model", run, "--source", source, "--beam", "3", "--quiet")
print("evaluate agrees with sacreBLEU")
