"""Compares an imported model with CTranslate2, which converts the same folder: OPUS-MT's shape with random weights."""
import importlib.util
import os
import subprocess
import sys

from common import HERE, BenchError, Contestant, fastest_peer, python_peer, take_turns
from report import megabytes, percent, ratio, table

LENGTH = 32
SHAPE = {"d_model": 512, "layers": 6, "d_ff": 2048, "vocabulary": 58101}
QUICK = {"d_model": 64, "layers": 1, "d_ff": 96, "vocabulary": 1000}
SENTENCES = {1: 16, 8: 64, 64: 192}  # by the number translated together


def run(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise BenchError(f"{' '.join(str(word) for word in command)} failed:\n{(result.stderr or result.stdout)[-3000:]}")


def measure(options):
    shape = QUICK if options.quick else SHAPE
    folder = os.path.join(options.work, "imported-model")
    run([sys.executable, os.path.join(HERE, "imported_model.py"), *shape.values(), folder])
    imported = os.path.join(folder, "imported")
    run([options.xfc, "import", os.path.join(folder, "huggingface"), "-o", imported])
    run([options.xfc, "compile", imported, "--mode", "decode", "-o", os.path.join(folder, "translator")])
    programs = ["xfc"] if options.quick and not importlib.util.find_spec("ctranslate2") else ["xfc", "CTranslate2"]
    rows = []
    for kind in ("float32", "int8"):
        for batch, beams in ([(8, (4,))] if options.quick else [(1, (1, 4, 6)), (8, (1, 4, 6)), (64, (1, 4, 6))]):
            for beam in beams:
                options.log(f"imported, {kind}, beam {beam}, batch {batch}")
                job = {"folder": folder, "type": kind, "beam": beam, "batch": batch, "length": LENGTH, "vocabulary": shape["vocabulary"] - 1,
                       "sentences": 400 if options.quick else SENTENCES[batch]}
                threads = max(options.threads)
                contestants = [Contestant(name, {f"{threads} threads": python_peer("peer_imported.py", threads, {**job, "program": name})})
                               for name in programs]
                rows.append({"type": kind, "beam": beam, "batch": batch, "results": take_turns(contestants, options.rounds, options.log)})
    return rows


def markdown(rows, machine):
    lines = []
    for row in rows:
        ours, (_, theirs) = row["results"]["xfc"], fastest_peer(row["results"])
        speeds = [f"{result['tokens_per_second']:.0f} ±{percent(result['spread'] / 2)}" if result else "" for result in (ours, theirs)]
        memory = f"{ours['peak_rss_mb'] / theirs['peak_rss_mb']:.2f}" if theirs else ""
        lines.append([row["type"], row["beam"], row["batch"], *speeds, ratio(ours, theirs) if theirs else "", megabytes(ours),
                      megabytes(theirs) if theirs else "", memory])
    return "\n\n".join([
        "A Marian model of 6 + 6 layers, d 512, 2,048 inside, 58,101 tokens (--quick: a small one), imported, and converted by CTranslate2. Sources of "
        f"11 to 30 tokens, translations of {LENGTH}; {rows[0]['results']['xfc']['mode']} on both sides. Memory is the process's peak, with the "
        "pages of files that it has in memory.",
        table(["type", "beam", "batch", "xfc, tokens/s", "CTranslate2", "ratio", "xfc MB", "CTranslate2 MB", "ratio"], lines)])
