"""Checks what `xfc import` says about bad input: check_import_errors.py XFC WORK_FOLDER.

Every number of every family's config.json and generation_config.json is replaced by 10^9, one at a time: one line must name the file and the
key, unless nothing reads the key, and nothing may be written. Pickles and tokenizers of unknown kinds are called by their names.
"""
import json
import os
import shutil
import subprocess
import sys

import torch

from foreign_checks import expect, failures, path, run, xfc
from foreign_models import bart, marian, t5

HUGE = 10 ** 9
# What no part of an import reads: initial values, other tasks, and tokens that the other of the two files gives.
UNREAD = {"config.json": {"init_std", "classifier_dropout", "initializer_factor", "decoder_vocab_size", "label2id", "forced_eos_token_id"},
          "generation_config.json": {"pad_token_id", "bos_token_id"}}


def write(file, value):
    with open(file, "w") as out:
        json.dump(value, out)


def refused(what, source, *parts):
    """The import fails with one line that has these parts, and leaves nothing behind."""
    out = path("out")
    result = subprocess.run([xfc, "import", source, "-o", out], capture_output=True, text=True)
    left = [name for name in os.listdir(path()) if name.startswith("out")]
    expect(result.returncode == 1 and result.stderr.count("\n") == 1 and all(part in result.stderr for part in parts),
           f"{what}: exit status {result.returncode}, {result.stderr}")
    expect(not left, f"{what}: leaves {left}")
    for name in left:
        shutil.rmtree(path(name))
    return result.returncode


def places(value, at=()):
    """The paths to the numbers in a JSON value."""
    if isinstance(value, (dict, list)):
        for key, inside in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inside, (*at, key))
    elif not isinstance(value, bool) and isinstance(value, (int, float)):
        yield at


def check_numbers(name, model):
    folder = path(name)
    settings = model.generation_config
    settings.num_beams, settings.max_length, settings.min_length, settings.no_repeat_ngram_size = 4, 22, 2, 3
    settings.length_penalty, settings.suppress_tokens, settings.bad_words_ids = 1.5, [17, 18], [[5, 6], [7]]
    settings.forced_eos_token_id, settings.forced_bos_token_id = model.config.eos_token_id, 9
    model.save_pretrained(folder)
    unread, checked = set(), 0
    for file in ("config.json", "generation_config.json"):
        with open(os.path.join(folder, file)) as text:
            before = json.load(text)
        for at in places(before):
            changed = json.loads(json.dumps(before))
            where = changed
            for key in at[:-1]:
                where = where[key]
            where[at[-1]] = HUGE
            write(os.path.join(folder, file), changed)
            if at[0] in UNREAD[file]:
                expect(subprocess.run([xfc, "import", folder, "-o", path("out")], capture_output=True).returncode == 0, f"{name}: {at} is read")
                shutil.rmtree(path("out"), ignore_errors=True)
                unread.add(at[0])
            else:
                key = str(at[0]) + "".join(f"[{i}]" for i in at[1:])
                refused(f"{name}, {key}", folder, f"{folder}/{file}: {key}: ", str(HUGE))
                checked += 1
        write(os.path.join(folder, file), before)
    run(xfc, "import", folder, "-o", path("out"))
    shutil.rmtree(path("out"))
    print(f"{name}: {checked} numbers, not read: {sorted(unread)}")
    return folder


folders = [check_numbers(name, model) for name, model in (
    ("marian", marian()), ("bart", bart("Bart")), ("mbart", bart("MBart")), ("m2m", bart("M2M100")), ("t5", t5("T5")), ("mt5", t5("MT5")),
    ("umt5", t5("UMT5")))]

# Pickles, in a folder with a config, in one without, and alone; in today's format of PyTorch and in its first one.
weights = {"weight": torch.zeros(2)}
os.makedirs(path("pickles"))
for file, options in (("model.pt", {}), ("old.bin", dict(_use_new_zipfile_serialization=False)), ("checkpoint.pth", {})):
    torch.save(weights, path("pickles", file), **options)
    refused(file, path("pickles", file), f"{path('pickles', file)}: is a pickle", "ct2-fairseq-converter")
refused("a folder of pickles", path("pickles"), f"{path('pickles')}/checkpoint.pth: is a pickle", "save_pretrained")
for file in ("checkpoint.pth", "old.bin"):
    os.rename(os.path.join(folders[0], "model.safetensors"), path("kept"))
    shutil.copy(path("pickles", file), folders[0])
    refused(f"a folder with {file}", folders[0], f"there is only {file}, a pickle", f"M.from_pretrained('{folders[0]}').save_pretrained('CONVERTED')")
    os.remove(os.path.join(folders[0], file))
    os.rename(path("kept"), os.path.join(folders[0], "model.safetensors"))

# Tokenizers that are not read: the model takes ids, and a note names the file.
for file in ("vocab.txt", "merges.txt", "vocab.json", "tokenizer.model"):
    shutil.copytree(folders[1], path("tokenizer"))
    with open(path("tokenizer", file), "w") as out:
        out.write("{}")
    notes = run(xfc, "import", path("tokenizer"), "-o", path("out")).stderr
    expect(f"{path('tokenizer', file)}: is not, or not all of, a tokenizer" in notes and "--format ids" in notes, f"{file}: {notes}")
    for folder in ("tokenizer", "out"):
        shutil.rmtree(path(folder))
sys.exit("\n".join(failures) or 0)
