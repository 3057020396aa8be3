"""Checks what `xfc import` says about bad input: check_import_errors.py XFC WORK_FOLDER.

Every number of every family's config.json and generation_config.json is replaced by 10^9, one at a time: one line must name the file and the
key, unless nothing reads the key, and nothing may be written. Sizes that contradict the weights are refused with both shapes, files that are cut
off by their names; pickles and tokenizers of unknown kinds are called by theirs.
"""
import json
import os
import shutil
import subprocess
import sys

import torch

from foreign_checks import check_cut, expect, failures, path, refused, run, xfc
from foreign_models import bart, marian, t5
from foreign_tokenizers import m2m_tokenizer, marian_tokenizer, t5_tokenizer

HUGE = 10 ** 9
# What no part of an import reads: initial values, other tasks, and tokens that the other of the two files gives.
UNREAD = {"config.json": {"init_std", "classifier_dropout", "initializer_factor", "decoder_vocab_size", "label2id", "forced_eos_token_id"},
          "generation_config.json": {"pad_token_id", "bos_token_id"}}


def write(file, value):
    with open(file, "w") as out:
        json.dump(value, out)


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

# Configs that contradict the weights: another size, the tensor that does not have it, and both shapes.
CONTRADICTIONS = {
    "marian": {"d_model": (48, "shared.weight", [61, 24], [61, 48]), "vocab_size": (62, "shared.weight", [61, 24], [62, 24]),
               "encoder_ffn_dim": (41, "fc1.weight", [40, 24], [41, 24]), "decoder_ffn_dim": (39, "fc1.weight", [40, 24], [39, 24])},
    "bart": {"max_position_embeddings": (33, "embed_positions.weight", [34, 24], [35, 24])},
    "mbart": {"d_model": (21, "shared.weight", [61, 24], [61, 21])},
    "m2m": {"vocab_size": (60, "shared.weight", [61, 24], [60, 24])},
    "t5": {"d_kv": (11, "q.weight", [30, 24], [33, 24]), "num_heads": (2, "relative_attention_bias.weight", [8, 3], [8, 2]),
           "d_ff": (41, "wi.weight", [40, 24], [41, 24]), "relative_attention_num_buckets": (10, "relative_attention_bias.weight", [8, 3], [10, 3])}}
for name, contradictions in CONTRADICTIONS.items():
    folder = path(name)
    file = os.path.join(folder, "config.json")
    with open(file) as text:
        before = json.load(text)
    for key, (value, tensor, found, required) in contradictions.items():
        write(file, before | {key: value})
        refused(f"{key} {value}", folder, f"error: {folder}/model.safetensors: '", f"{tensor}' has shape {found}, but {file} requires {required}")
    layers = "num_layers" if name == "t5" else "encoder_layers"
    write(file, before | {layers: 3})
    refused("a layer too many", folder, f"error: {folder}/model.safetensors: '", ".2.", f"] is missing but required by {file}")
    if name == "t5":
        for key, value in (("relative_attention_num_buckets", 9), ("relative_attention_max_distance", 4)):
            write(file, before | {key: value})
            refused(f"{key} {value}", folder, f"error: {file}: {key}: {value} is ")
    write(file, before | {layers: 1})
    refused("a layer too few", folder, f"error: {folder}/model.safetensors: '", f"] is not part of the model that {file} describes")
    write(file, before)


# Files that are cut off: the weights in shards, and the tokenizers' files of each kind.
def with_tokenizer(name, model, tokenizer):
    """A folder of the model and its tokenizer, which is one of transformers or a folder of files."""
    model.save_pretrained(path(name), max_shard_size="20KB")
    if isinstance(tokenizer, str):
        shutil.copytree(tokenizer, path(name), dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.vocab"))
    else:
        tokenizer.save_pretrained(path(name))
    return path(name)


byte_level = path("bytes.tokenizer")
os.makedirs(byte_level)
write(os.path.join(byte_level, "vocab.json"), {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c", "ab", "abc"])})
with open(os.path.join(byte_level, "merges.txt"), "w") as out:
    out.write("#version: 0.2\na b\nab c\n")
write(os.path.join(byte_level, "special_tokens_map.json"), {"eos_token": "</s>"})
tokenizer = marian_tokenizer(path("marian.tokenizer"))
last = len(tokenizer) - 1
check_cut(with_tokenizer("cut-marian", marian(vocab_size=len(tokenizer), pad_token_id=last, decoder_start_token_id=last), path("marian.tokenizer")))
check_cut(with_tokenizer("cut-bart", bart("Bart"), byte_level), lists=("merges.txt",))
with open(path("cut-bart", "merges.txt"), "w"):
    pass
refused("no merges", path("cut-bart"), f"error: {path('cut-bart')}/merges.txt: is empty")
tokenizer = m2m_tokenizer()
check_cut(with_tokenizer("cut-m2m", bart("M2M100", vocab_size=140), path("m2m.tokenizer")))
tokenizer = t5_tokenizer()
model = t5("T5", vocab_size=len(tokenizer))
check_cut(with_tokenizer("cut-spiece", model, path("t5.tokenizer")))
check_cut(with_tokenizer("cut-t5", model, tokenizer))

# 10^9 for a number of sentinels, an id of a token, and that of a special one.
for folder, name, key, change in (("cut-spiece", "tokenizer_config.json", "extra_ids", {"extra_ids": HUGE}), ("cut-m2m", "vocab.json", "<s>", {"<s>": HUGE}),
                                  ("cut-spiece", "tokenizer_config.json", f"added_tokens_decoder.{HUGE}", {"added_tokens_decoder": {HUGE: {"content": "x"}}})):
    with open(path(folder, name)) as text:
        before = json.load(text)
    write(path(folder, name), before | change)
    refused(f"{name}, {key}", path(folder), f"error: {path(folder, name)}: {key}: expected")
    write(path(folder, name), before)

# A tokenizer.json of a kind that is not read, as BERT's, is refused with the name of the kind.
with open(path("cut-t5", "tokenizer.json")) as text:
    wordpiece = json.load(text)
wordpiece["model"] = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0}}
write(path("cut-t5", "tokenizer.json"), wordpiece)
refused("WordPiece", path("cut-t5"), f"error: {path('cut-t5')}/tokenizer.json: model.type: unknown model; expected BPE or Unigram, found \"WordPiece\"")

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

# Tokenizers of kinds that are not read, and parts of one that is.
for file in ("vocab.txt", "merges.txt", "vocab.json", "source.spm", "tokenizer.model"):
    shutil.copytree(folders[1], path("tokenizer"))
    with open(path("tokenizer", file), "w") as out:
        out.write("{}")
    refused(file, path("tokenizer"), f"error: {path('tokenizer', file)}: is not, or not all of, a tokenizer", "--format ids")
    shutil.rmtree(path("tokenizer"))
sys.exit("\n".join(failures) or 0)
