"""recompute.py XFC MODELS_FOLDER WORK_FOLDER: compiles every shipped model that can be trained with and without --recompute.

Three steps of training, dropout included, must leave the same weights to the bit; the arena must get smaller with each level,
and have the size that inspect predicted. Plain Python.
"""
import json
import os
import subprocess
import sys

SIZES = {"source_vocab": 61, "target_vocab": 61, "d_model": 32, "heads": 4, "encoder_heads": 4, "decoder_heads": 2, "encoder_layers": 2,
         "decoder_layers": 2, "d_ff": 72, "max_length": 40, "key_dim": 5, "value_dim": 7}
BATCH = ["--batch-tokens", "256", "--length", "16", "--threads", "2"]
LEVELS = ([], ["--recompute"], ["--recompute=most"])


def run(*command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexited {result.returncode}:\n{result.stderr}")
    return result.stdout


def contents(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def check(xfc, path, work):
    with open(path) as file:
        model = json.load(file)
    arguments = [path, *(word for name, value in SIZES.items() if name in model["params"] for word in ("--set", f"{name}={value}"))]
    if "head" not in model:
        if len({run(xfc, "compile", *arguments, *level, "--emit", "scheduled") for level in LEVELS}) != 1:
            sys.exit(f"{path}: there is nothing to train, and --recompute changes it")
        return
    trained, arenas = [], []
    for number, level in enumerate(LEVELS):
        translator, out = os.path.join(work, f"{model['name']}.{number}"), os.path.join(work, f"{model['name']}.{number}.run")
        run(xfc, "compile", *arguments, "--mode", "train", *level, "-o", translator)
        run(translator, "train", "--format", "ids", "--source", os.path.join(work, "a"), "--target", os.path.join(work, "b"), "--out", out,
            "--steps", 3, "--batch-tokens", 256, "--threads", 2, "--quiet")
        trained.append(contents(out, "last.safetensors"))
        arenas.append(json.loads(run(translator, "bench", "train", *BATCH, "--steps", 1, "--json"))["arena_bytes"])
        predicted = json.loads(run(xfc, "inspect", *arguments, *level, *BATCH, "--json"))["training step"]["arena_bytes"]
        if arenas[-1] != predicted:
            sys.exit(f"{path} {level}: inspect predicted an arena of {predicted} bytes, it has {arenas[-1]}")
    if any(bytes_ != trained[0] for bytes_ in trained):
        sys.exit(f"{path}: three steps leave other weights")
    if not arenas[0] > arenas[1] > arenas[2]:
        sys.exit(f"{path}: the arenas are {arenas}")
    print(f"{model['name']}: the same bits; arena {arenas[0]}, {arenas[1] / arenas[0]:.2f}, {arenas[2] / arenas[0]:.2f}")


def main():
    xfc, models, work = sys.argv[1:]
    for name in sorted(os.listdir(models)):
        if name.endswith(".json") and name != "schema.json":
            check(xfc, os.path.join(models, name), work)


main()
