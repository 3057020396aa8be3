"""Imported models beside CTranslate2, which converts the same folders: OPUS-MT's and NLLB's shapes with random weights."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys

from common import HERE, BenchError, Contestant, fastest_peer, python_peer, take_turns
from report import megabytes, percent, ratio, table

LENGTH = 32
OPUS_MT = {"family": "marian", "d_model": 512, "layers": 6, "d_ff": 2048, "heads": 8, "vocabulary": 58101, "types": ["float32", "int8", "int4"]}
NLLB = {"family": "nllb", "d_model": 1024, "layers": 12, "d_ff": 4096, "heads": 16, "vocabulary": 256206, "types": ["int8", "int4"]}
QUICK = {"d_model": 64, "layers": 1, "d_ff": 96, "heads": 8, "vocabulary": 1000}
BEAMS = {"marian": {1: (1, 4, 6), 8: (1, 4, 6), 64: (1, 4, 6)}, "nllb": {1: (1, 4)}}  # by how many sentences are translated together
SENTENCES = {1: 16, 8: 64, 64: 192}


def run(command):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise BenchError(f"{' '.join(str(word) for word in command)} failed:\n{(result.stderr or result.stdout)[-3000:]}")


def measure(options):
    rows = []
    for shape in (OPUS_MT,) if options.quick else (OPUS_MT, NLLB):
        rows += measure_shape(options, shape | (QUICK if options.quick else {}))
    return rows


def measure_shape(options, shape):
    family = shape["family"]
    folder = os.path.join(options.work, "imported-" + family)
    run([sys.executable, os.path.join(HERE, "imported_model.py"), json.dumps(shape), folder])
    imported = os.path.join(folder, "imported")
    run([options.xfc, "import", os.path.join(folder, "huggingface"), "-o", imported])
    integers = [word for kind in shape["types"] if kind.startswith("int") for word in ("--compute-type", kind)]
    run([options.xfc, "compile", imported, "--mode", "decode", *integers, "-o", os.path.join(folder, "translator")])
    programs = ["xfc"] if options.quick and not importlib.util.find_spec("ctranslate2") else ["xfc", "CTranslate2"]
    rows, threads = [], max(options.threads)
    for kind in shape["types"]:
        for batch, beams in {8: (4,)}.items() if options.quick else BEAMS[family].items():
            for beam in beams:
                options.log(f"imported, {family}, {kind}, beam {beam}, batch {batch}")
                job = {"folder": folder, "type": kind, "beam": beam, "batch": batch, "length": LENGTH, "vocabulary": shape["vocabulary"] - 1,
                       "eos": {"marian": 0, "nllb": 2}[family], "sentences": 400 if options.quick else SENTENCES[batch]}
                # CTranslate2's fewest bits on a CPU are 8.
                types = {"xfc": kind, "CTranslate2": "int8" if kind == "int4" else kind}
                contestants = [Contestant(name, {f"{threads} threads": python_peer("peer_imported.py", threads, {**job, "type": types[name], "program": name})})
                               for name in programs]
                rows.append({"family": family, "type": kind, "beam": beam, "batch": batch,
                             "results": take_turns(contestants, options.rounds, options.log)})
    shutil.rmtree(folder)
    return rows


def markdown(rows, machine):
    lines = []
    for row in rows:
        ours, (_, theirs) = row["results"]["xfc"], fastest_peer(row["results"])
        speeds = [f"{result['tokens_per_second']:.0f} ±{percent(result['spread'] / 2)}" if result else "" for result in (ours, theirs)]
        memory = f"{ours['peak_rss_mb'] / theirs['peak_rss_mb']:.2f}" if theirs else ""
        shape = {"marian": "OPUS-MT", "nllb": "NLLB"}[row["family"]]
        lines.append([shape, row["type"], row["beam"], row["batch"], *speeds, ratio(ours, theirs) if theirs else "",
                      megabytes(ours), megabytes(theirs) if theirs else "", memory])
    return "\n\n".join([
        "Models with random weights (--quick: small ones), imported, and converted by CTranslate2: of OPUS-MT's shape (Marian, 6 + 6 layers, d 512, "
        "2,048 inside, 58,101 tokens) and of NLLB-200-distilled-600M's (12 + 12, d 1,024, 4,096 inside, 256,206 tokens). Sources of 11 to 30 tokens, "
        f"translations of {LENGTH}; {rows[0]['results']['xfc']['mode']} on both sides. Beside int4, CTranslate2 has int8. Memory is the process's peak, with the pages of files that "
        "it has in memory, and with Python's for CTranslate2.",
        table(["shape", "type", "beam", "batch", "xfc, tokens/s", "CTranslate2", "ratio", "xfc MB", "CTranslate2 MB", "ratio"], lines)])
