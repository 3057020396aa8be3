"""check_generation.py model TINY OUT: writes a small model with `generation`.
check_generation.py check TRANSLATOR PLAIN WEIGHTS WORK: compares an executable of that model with one of the same model without `generation`. Plain Python.
"""
import json
import os
import shutil
import subprocess
import sys

settings = {"beam": 3, "length_penalty": 1.5, "length_penalty_form": "power", "early_stopping": "never", "max_length": 7, "min_length": 2,
            "at_max_length": "cut", "forced_first": [4], "suppress": [5, 6], "bad_sequences": [[7, 8]], "required_phrases": [[[9], [10, 11]], [[12]]],
            "no_repeat_ngram": 2, "renormalize": True}
unset = {"patience": 1, "beam_groups": 1, "diversity": 0.5, "coverage_penalty": 0, "max_length_ratio": 0, "min_length_ratio": 0, "repetition_penalty": 1, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0,
         "typical_p": 1, "epsilon_cutoff": 0}

if sys.argv[1] == "model":
    with open(sys.argv[2]) as file:
        model = json.load(file)
    model["params"].update(source_vocab=13, target_vocab=13, d_model=16, heads=2, d_ff=20, encoder_layers=1, decoder_layers=1)
    model["generation"] = settings
    del model["$schema"]
    with open(sys.argv[3], "w") as file:
        json.dump(model, file)
    sys.exit()

translator, plain, weights, work = sys.argv[2:]
source = f"{work}/source"
with open(source, "w") as file:
    file.writelines(f"{4 + i % 9} {4 + i % 5} {7 + i % 3} 3\n" for i in range(20))
flags = ["--beam", 3, "--length-penalty", 1.5, "--length-penalty-form", "power", "--early-stopping", "never", "--max-length", 7, "--min-length", 2,
         "--at-max-length", "cut", "--forced-first", "4", "--suppress", "5 6", "--no-repeat-ngram", 2, "--renormalize", "true",
         "--required-phrases", "9 || 10 11", "12"]


def call(executable, *arguments):
    return subprocess.run([executable, *map(str, arguments)], capture_output=True, text=True)


def translate(executable, *arguments):
    result = call(executable, "translate", "--weights", weights, "--format", "ids", "--input", source, "--json", "--quiet", *arguments)
    assert result.returncode == 0, result.stderr
    return [json.loads(line)["hypotheses"] for line in result.stdout.splitlines()]


def follow(found, bad):
    for (hypothesis,) in found:
        ids = hypothesis["ids"]
        assert ids[0] == 4 and 2 <= len(ids) <= 7 and not {0, 2, 3, 5, 6} & set(ids), ids
        pairs = list(zip(ids, ids[1:]))
        assert len(set(pairs)) == len(pairs) and bad not in pairs, ids
        assert (9 in ids or (10, 11) in pairs) and 12 in ids, ids
        n = len(ids) + (len(ids) < 7)
        assert abs(hypothesis["score"] - hypothesis["log_probability"] / n**1.5) < 1e-9, hypothesis
    assert any(len(h["ids"]) == 7 for (h,) in found)


# The weights were trained by the executable without `generation`, which does not change their meaning.
found = translate(translator)
follow(found, (7, 8))
# Flags can set the same, except for bad sequences, and override the model; no result depends on its batch.
assert translate(translator, *flags) == found
follow(translate(plain, *flags), None)
ours = ["--beam", 5, "--length-penalty", 0.6, "--length-penalty-form", "offset", "--early-stopping", "true", "--max-length", 0, "--min-length", 0,
        "--at-max-length", "eos", "--forced-first", "", "--suppress", "", "--no-repeat-ngram", 0, "--renormalize", "false",
        "--required-phrases", ""]
assert translate(plain, *ours) == translate(plain)
assert translate(translator, "--batch-tokens", 1) == found
free = translate(translator, *ours)
assert free != found and [len(h) for h in free] == [1] * 20
prefixed = f"{work}/prefix"
with open(prefixed, "w") as file:
    file.writelines("9 10\n" for _ in range(20))
assert all(h["ids"][:3] == [4, 9, 10] for (h,) in translate(translator, "--prefix", prefixed))
for (hypothesis,) in translate(translator, "--sample", "--seed", 3, "--required-phrases", ""):
    assert hypothesis["ids"][0] == 4 and not {0, 2, 3, 5, 6} & set(hypothesis["ids"]), hypothesis

# `info` and --help show the settings.
info = json.loads(call(translator, "info", "--json").stdout)
assert info["generation"] == settings | unset and info["batch"]["beam"] == 3, info
assert json.loads(call(plain, "info", "--json").stdout)["generation"]["beam"] == 5
assert "searches with  beam 3, length_penalty 1.5, length_penalty_form power, early_stopping never, max_length 7" in call(translator, "info").stdout
for verb in ("translate", "evaluate"):
    text = call(translator, verb, "--help").stdout
    for default in ("--beam INT:INT in [1 - 65536]=3", "--length-penalty FLOAT:FLOAT in [-40 - 40]=1.5", "{offset,power}=power", "{false,true,never}=never",
                    "{eos,forced_eos,cut}=cut", "--forced-first TEXT=4", "--suppress TEXT=5 6", "--no-repeat-ngram INT:INT in [0 - 1048576]=2",
                    "{false,true}=true"):
        assert default in text, default

# For wrong values, one line says what is wrong.
for arguments, expected in (
    (["--suppress", "99"], "error: --suppress[0]: 99 is not a token of a vocabulary of 13; expected 0 to 12\n"),
    (["--suppress", "3"], "error: --suppress[0]: 3 is eos, without which no translation ends; use min_length for longer ones\n"),
    (["--forced-first", "5"], "error: --suppress[0]: 5 is forced by forced_first; expected it in only one of the two\n"),
    (["--sample"], "error: --required-phrases: --sample does not go with constraints: tokens that are drawn at random cannot be made to meet them; leave "
                   "out one of the two\n"),
    (["--required-phrases", "9 || 10 3"], "error: --required-phrases[0][1][1]: 3 is pad, start or eos, which no translation contains\n"),
    (["--required-phrases", "11", "6 || 7 6"], "error: source:1: --required-phrases 2 cannot be met: --suppress, --bad-sequences or --no-repeat-ngram "
                                               "forbids each of its phrases\n"),
    (["--min-length", "8"], "error: --min-length: 8 is larger than max_length, 7\n"),
):
    result = call(translator, "translate", "--weights", weights, "--format", "ids", "--input", source, "--quiet", *arguments)
    assert (result.returncode, result.stdout, result.stderr.replace(f"{work}/", "")) == (1, "", expected), result
result = call(translator, "translate", "--weights", weights, "--format", "ids", "--input", source, "--early-stopping", "maybe")
assert result.returncode == 2 and "--early-stopping: unknown 'maybe'; known: false, true, never" in result.stderr, result.stderr

# A folder's own model.json counts, whatever the executable was compiled with; options override it.
folder = f"{work}/folder"
os.makedirs(folder, exist_ok=True)
shutil.copy(weights, f"{folder}/model.safetensors")


def of_folder(executable, *arguments, **change):
    with open(f"{work}/model.json") as file:
        model = json.load(file)
    model["generation"] = settings | change.pop("generation", {})
    with open(f"{folder}/model.json", "w") as file:
        json.dump(model | change, file)
    return call(executable, "translate", "--model", folder, "--format", "ids", "--input", source, "--json", "--quiet", *arguments)


def hypotheses(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line)["hypotheses"] for line in result.stdout.splitlines()]


assert hypotheses(of_folder(plain)) == found
assert hypotheses(of_folder(plain, "--suppress", "5")) != found
assert all(h["ids"][0] == 9 for (h,) in hypotheses(of_folder(translator, generation={"forced_first": [9]})))
for change, expected in (
    ({"generation": {"beam": 2.5}}, "generation.beam: expected a whole number from 1 to 65536, found 2.5"),
    ({"generation": {"suppress": [99]}}, "generation.suppress[0]: 99 is not a token of a vocabulary of 13; expected 0 to 12"),
    ({"generation": {"beams": 2}}, "generation.beams: an unknown key"),
    ({"tokens": {"source_eos": False}}, f"tokens.source_eos is false, but this executable was compiled with true; compile the folder again: xfc compile {folder}"),
):
    result = of_folder(plain, **change)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", f"error: {folder}/model.json: {expected}\n"), result
of_folder(plain)
result = call(plain, "pack", "--model", folder, "-o", f"{work}/packed")
assert result.returncode == 1 and "model.json: generation differs from that of this executable" in result.stderr, result

# An empty source line has an empty translation, of which `score` is certain.
for name, lines in (("sources", ("4 5 3", "", "")), ("targets", ("4 5", "", "4"))):
    with open(f"{work}/{name}", "w") as file:
        file.writelines(line + "\n" for line in lines)
result = call(plain, "score", "--weights", weights, "--format", "ids", "--source", f"{work}/sources", "--target", f"{work}/targets", "--quiet")
assert result.returncode == 0 and result.stdout.split()[1:] == ["0", "-inf"], result
assert "sources:3: the line is empty" in result.stderr and "3 sentences, 3 tokens, " in result.stderr, result
print("searches follow the model")
