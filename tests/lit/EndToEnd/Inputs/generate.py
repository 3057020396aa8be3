"""generate.py make WORK: writes a post-norm Transformer of transformers with random weights, as model.json and safetensors.
generate.py check WORK: compares its generate with WORK/translator. Decoding starts with pad, whose embedding is zero.
"""
import json
import subprocess
import sys

import torch
from safetensors.torch import save_file
from transformers import MarianConfig, MarianMTModel

work = sys.argv[2]
V, D, HEADS, FF, EOS, UNK, PAD = 37, 24, 3, 40, 0, 1, 36
BAD = [[7, 8], [PAD, 9], [11, EOS], [12]]


def reference():
    torch.manual_seed(5)
    model = MarianMTModel(MarianConfig(vocab_size=V, d_model=D, encoder_layers=1, decoder_layers=1, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
                                       encoder_ffn_dim=FF, decoder_ffn_dim=FF, activation_function="relu", scale_embedding=True, max_position_embeddings=32,
                                       pad_token_id=PAD, eos_token_id=EOS, bos_token_id=EOS, decoder_start_token_id=PAD, forced_eos_token_id=None,
                                       tie_word_embeddings=True, num_beams=1)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "positions" not in name:
                parameter.normal_(0, 0.35)
        model.model.shared.weight[PAD] = 0
        model.final_logits_bias.normal_(0, 0.7)
        model.final_logits_bias[0, EOS] = 1.5
    return model


def make():
    attention = lambda name, mask, **more: {"op": "residual", "body": [{"op": "attention", "name": name, "heads": HEADS, "mask": mask, **more}]}
    norm = lambda name: {"op": "layer_norm", "name": name}
    ffn = [{"op": "residual", "body": [{"op": "linear", "name": "ffn.in", "features": FF}, {"op": "relu"}, {"op": "linear", "name": "ffn.out", "features": D}]},
           norm("ffn_norm")]
    rows = [{"op": "embedding", "name": "embed", "vocab": V, "dim": D, "scale": "sqrt_dim"},
            {"op": "positions", "kind": "sinusoidal", "layout": "halves", "max_length": 32}]
    model = {
        "format": "xfc-model/1", "name": "generate", "tokens": {"pad": PAD, "unk": UNK, "bos": EOS, "eos": EOS, "start": PAD},
        "generation": {"bad_sequences": BAD},
        "share": [["encoder.embed.weight", "decoder.embed.weight", "output.weight"]],
        "encoder": {"input": rows, "layers": 1, "layer": [attention("self_attn", ["padding"]), norm("self_attn_norm")] + ffn},
        "decoder": {"input": rows, "layers": 1, "layer": [attention("self_attn", ["causal"]), norm("self_attn_norm"),
                                                          attention("cross_attn", ["padding"], memory="encoder"), norm("cross_attn_norm")] + ffn},
        "head": [{"op": "linear", "name": "output", "features": V}]}
    with open(f"{work}/model.json", "w") as file:
        json.dump(model, file)

    theirs = reference().state_dict()
    ours = {"encoder.embed.weight": theirs["model.shared.weight"], "output.bias": theirs["final_logits_bias"][0]}
    for stack in ("encoder", "decoder"):
        for mine, name in (("self_attn", "self_attn"), ("cross_attn", "encoder_attn")):
            for part in "qkvo" if stack == "decoder" or mine == "self_attn" else "":
                for kind in ("weight", "bias"):
                    ours[f"{stack}.layers.0.{mine}.{part}.{kind}"] = theirs[f"model.{stack}.layers.0.{name}.{'out' if part == 'o' else part}_proj.{kind}"]
        for mine, name in (("self_attn_norm", "self_attn_layer_norm"), ("cross_attn_norm", "encoder_attn_layer_norm"), ("ffn_norm", "final_layer_norm"),
                           ("ffn.in", "fc1"), ("ffn.out", "fc2")):
            for kind in ("weight", "bias"):
                if f"model.{stack}.layers.0.{name}.{kind}" in theirs:
                    ours[f"{stack}.layers.0.{mine}.{kind}"] = theirs[f"model.{stack}.layers.0.{name}.{kind}"]
    save_file({name: tensor.clone().contiguous() for name, tensor in ours.items()}, f"{work}/weights.safetensors")


# The defaults of generate, except for max_length 12.
defaults = {"length-penalty-form": "power", "length-penalty": 1, "early-stopping": "false", "max-length": 11, "at-max-length": "cut"}


def given(flags):
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def check():
    model = reference()
    torch.manual_seed(6)
    sources = [torch.randint(2, PAD, (1 + i % 7,)).tolist() + [EOS] for i in range(24)]
    with open(f"{work}/source", "w") as file:
        file.writelines(" ".join(map(str, source)) + "\n" for source in sources)
    longest = max(map(len, sources))
    ids = torch.tensor([source + [PAD] * (longest - len(source)) for source in sources])

    translations = changed = 0
    plain = {}
    # Settings of generate, and the same as flags.
    forced_eos = {"at-max-length": "forced_eos", "max-length": 10}
    cases = [
        ({}, {}),
        ({"early_stopping": True, "length_penalty": 0.6}, {"early-stopping": "true", "length-penalty": 0.6}),
        ({"early_stopping": "never", "length_penalty": 2.0}, {"early-stopping": "never", "length-penalty": 2}),
        ({"early_stopping": "never", "length_penalty": -1.0}, {"early-stopping": "never", "length-penalty": -1}),
        ({"length_penalty": 0.0}, {"length-penalty": 0}),
        ({"forced_eos_token_id": EOS}, forced_eos),
        ({"forced_bos_token_id": 5, "forced_eos_token_id": EOS, "early_stopping": True, "no_repeat_ngram_size": 3},
         {"forced-first": 5, **forced_eos, "early-stopping": "true", "no-repeat-ngram": 3}),
        ({"suppress_tokens": [PAD, 3, 4, 13, 20, 21], "min_length": 6}, {"suppress": "3 4 13 20 21", "min-length": 5}),
        ({"no_repeat_ngram_size": 1}, {"no-repeat-ngram": 1}),
        ({"no_repeat_ngram_size": 2, "length_penalty": 1.7}, {"no-repeat-ngram": 2, "length-penalty": 1.7}),
        ({"renormalize_logits": True}, {"renormalize": "true"}),
        ({"renormalize_logits": True, "forced_bos_token_id": 5, "forced_eos_token_id": EOS, "no_repeat_ngram_size": 2, "min_length": 5,
          "suppress_tokens": [PAD, 3, 20]}, {"renormalize": "true", "forced-first": 5, **forced_eos, "no-repeat-ngram": 2, "min-length": 4, "suppress": "3 20"}),
    ]
    for beam in (1, 4):
        for i, (theirs, flags) in enumerate(cases):
            best = 1 if beam == 1 else 3
            config = {"max_length": 12, "suppress_tokens": [PAD], "bad_words_ids": BAD, "num_beams": beam, "do_sample": False, **theirs}
            with torch.no_grad():
                found = model.generate(ids, attention_mask=(ids != PAD).long(), num_return_sequences=best, return_dict_in_generate=True, output_scores=True, **config)
            expected = []
            for row in found.sequences[:, 1:].tolist():
                row = row[: row.index(EOS)] if EOS in row else row
                expected.append([token for token in row if token != PAD])
            out = subprocess.run([f"{work}/translator", "translate", "--weights", f"{work}/weights.safetensors", "--format", "ids", "--json", "--quiet",
                                  "--input", f"{work}/source", "--beam", str(beam), "--n-best", str(best), *given({**defaults, **flags})],
                                 capture_output=True, text=True, check=True).stdout
            ours = [hypothesis for line in out.splitlines() for hypothesis in json.loads(line)["hypotheses"]]
            assert [h["ids"] for h in ours] == expected, (beam, theirs, [(h["ids"], e) for h, e in zip(ours, expected) if h["ids"] != e][:4])
            if beam > 1:
                worst = max(abs(h["score"] - s) for h, s in zip(ours, found.sequences_scores.tolist(), strict=True))
                assert worst < 1e-4, (theirs, worst)
            translations += len(ours)
            plain.setdefault(beam, expected)
            changed += sum(a != b for a, b in zip(expected, plain[beam]))
    assert changed > translations // 4, changed
    print(f"{translations} translations as generate gives them, {changed} of them changed by settings")


{"make": make, "check": check}[sys.argv[1]]()
