"""Checks `xfc import` of Marian's .npz and of CTranslate2's folders: check_containers.py XFC WORK_FOLDER DRIVERS.

Neither program is needed. Marian's Transformer is computed below, from its definition, on weights that numpy.savez writes; the
logits and greedy translations of the imported model are compared with it, and one with Marian's recurrent cell does the same on a GPU. CTranslate2's folders are written below, following
their format, from models of transformers, and must import as the same model as those.
"""
import json
import os
import shutil
import struct
import sys

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from foreign_checks import check_cut, expect, failures, path, refused, run, same_on_gpu, xfc

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)


HUGE = 10 ** 9


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as file:
        file.write(text)


# Marian.

class Marian:
    """Marian's Transformer in float64, as rows times matrices."""

    def __init__(self, seed, vocab, d=24, heads=3, ffn=40, encoder=2, decoder=1, pre=False, tied=True, trained=0, norm=False,
                 ssru=False, projected=False):
        self.d, self.heads, self.depth, self.pre, self.tied, self.trained, self.norm = d, heads, (encoder, decoder), pre, tied, trained, norm
        self.ssru, self.projected = ssru, projected
        self.vocab = vocab
        random = np.random.default_rng(seed)
        self.weights = weights = {}

        def matrix(name, *shape):
            weights[name] = random.normal(0, shape[0] ** -0.5, shape).astype("f4")

        def row(name, n, mean=0.0):
            weights[name] = random.normal(mean, 0.2, (1, n)).astype("f4")

        def layer_norm(name):
            row(name.format("scale"), d, 1.0)
            row(name.format("bias"), d)

        after = "_pre" if pre else ""
        for stack, layers in zip(("encoder", "decoder"), self.depth):
            for i in range(1, layers + 1):
                recurrent = ssru and stack == "decoder"
                if recurrent:
                    matrix(f"{stack}_l{i}_rnn_W", d, d)
                    matrix(f"{stack}_l{i}_rnn_Wf", d, d)
                    row(f"{stack}_l{i}_rnn_bf", d)
                    if projected:
                        matrix(f"{stack}_l{i}_rnn_Wo", d, d)
                        row(f"{stack}_l{i}_rnn_bo", d)
                    layer_norm(f"{stack}_l{i}_rnn_{'' if pre else 'ffn_'}ln_{{}}{after}")
                for attention in ("self", "context")[int(recurrent) : 2 if stack == "decoder" else 1]:
                    for part in "qkvo":
                        matrix(f"{stack}_l{i}_{attention}_W{part}", d, d)
                        row(f"{stack}_l{i}_{attention}_b{part}", d)
                    layer_norm(f"{stack}_l{i}_{attention}_Wo_ln_{{}}{after}")
                matrix(f"{stack}_l{i}_ffn_W1", d, ffn)
                row(f"{stack}_l{i}_ffn_b1", ffn)
                matrix(f"{stack}_l{i}_ffn_W2", ffn, d)
                row(f"{stack}_l{i}_ffn_b2", d)
                layer_norm(f"{stack}_l{i}_ffn_ffn_ln_{{}}{after}")
            if pre:
                layer_norm(f"{stack}_top_ln_{{}}")
            if norm:
                layer_norm(f"{stack}_emb_ln_{{}}_pre")
        if tied:
            matrix("Wemb", vocab[0], d)
        else:
            matrix("encoder_Wemb", vocab[0], d)
            matrix("decoder_Wemb", vocab[1], d)
            matrix("decoder_ff_logit_out_W", d, vocab[1])
        if trained:
            matrix("Wpos", trained, d)
        row("decoder_ff_logit_out_b", vocab[1])
        self.options = {
            "type": "transformer", "dim-vocabs": list(vocab), "dim-emb": d, "enc-depth": encoder, "dec-depth": decoder,
            "transformer-heads": heads, "transformer-dim-ffn": ffn, "transformer-decoder-dim-ffn": 0, "transformer-ffn-depth": 2,
            "transformer-ffn-activation": "relu" if pre else "swish", "transformer-decoder-autoreg": "rnn" if ssru else "self-attention",
            "dec-cell": "ssru" if ssru else "gru", "layer-normalization": False, "transformer-rnn-projection": projected,
            "transformer-preprocess": "n" if pre else "", "transformer-postprocess": "da" if pre else "dan",
            "transformer-postprocess-top": "n" if pre else "", "transformer-postprocess-emb": "nd" if norm else "d",
            "transformer-train-position-embeddings": bool(trained), "transformer-tied-layers": [], "tied-embeddings-all": tied,
            "tied-embeddings": tied, "transformer-no-projection": False, "lemma-dim-emb": 0, "version": "v1.12.0 0000000 (2023)"}

    def save(self, name, compressed=False, **changes):
        """Writes the model as numpy and yaml-cpp do."""
        text = ""
        for key, value in (self.options | changes).items():
            if isinstance(value, list):
                text += f"{key}:\n" + ("".join(f"  - {item}\n" for item in value) or "  []\n")
            else:
                text += f"{key}: " + (json.dumps(value) if value == "" or isinstance(value, bool) else str(value)) + "\n"
        arrays = dict(self.weights)
        arrays["special:model.yml"] = np.frombuffer(text.encode() + b"\0", dtype=np.int8)
        (np.savez_compressed if compressed else np.savez)(path(name), **arrays)

    def layer_norm(self, x, name, after=""):
        w = self.weights
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}_ln_scale{after}"] + w[f"{name}_ln_bias{after}"]

    def recurrence(self, name, x):
        """Marian's cell "ssru", token by token."""
        w, state, states = self.weights, np.zeros(self.d), []
        for token in x:
            forget = 1 / (1 + np.exp(-(token @ w[f"{name}_Wf"] + w[f"{name}_bf"][0])))
            state = forget * state + (1 - forget) * (token @ w[f"{name}_W"])
            states.append(np.maximum(state, 0))
        y = np.stack(states)
        return y @ w[f"{name}_Wo"] + w[f"{name}_bo"] if self.projected else y

    def branch(self, x, name, body):
        if self.pre:
            return x + body(self.layer_norm(x, name, "_pre"))
        return self.layer_norm(x + body(x), name)

    def attention(self, name, x, memory, causal):
        w, size = self.weights, self.d // self.heads
        q, k, v = (of.astype("f8") @ w[f"{name}_W{part}"] + w[f"{name}_b{part}"] for part, of in zip("qkv", (x, memory, memory)))
        heads = []
        for head in range(self.heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / np.sqrt(size)
            if causal:
                scores[np.triu_indices(len(x), 1, len(memory))] = -np.inf
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, part])
        return np.concatenate(heads, -1) @ w[f"{name}_Wo"] + w[f"{name}_bo"]

    def feed_forward(self, name, x):
        w = self.weights
        hidden = x @ w[f"{name}_W1"] + w[f"{name}_b1"]
        hidden = np.maximum(hidden, 0) if self.pre else hidden / (1 + np.exp(-hidden))
        return hidden @ w[f"{name}_W2"] + w[f"{name}_b2"]

    def embed(self, rows, stack):
        n = np.arange(len(rows))[:, None]
        if self.trained:
            x = rows + self.weights["Wpos"][: len(rows)]
        else:
            timescales = self.d // 2
            angles = n * np.exp(-np.log(10000.0) / (timescales - 1) * np.arange(timescales))
            x = rows * np.sqrt(self.d) + np.concatenate([np.sin(angles), np.cos(angles)], -1)
        return self.layer_norm(x, f"{stack}_emb", "_pre") if self.norm else x

    def stack(self, stack, x, memory=None):
        for i in range(1, self.depth[stack == "decoder"] + 1):
            name = f"{stack}_l{i}_"
            if self.ssru and memory is not None:
                x = self.branch(x, name + ("rnn" if self.pre else "rnn_ffn"), lambda y: self.recurrence(name + "rnn", y))
            else:
                x = self.branch(x, name + "self_Wo", lambda y: self.attention(name + "self", y, y, stack == "decoder"))
            if memory is not None:
                x = self.branch(x, name + "context_Wo", lambda y: self.attention(name + "context", y, memory, False))
            x = self.branch(x, name + "ffn_ffn", lambda y: self.feed_forward(name + "ffn", y))
        return self.layer_norm(x, f"{stack}_top") if self.pre else x

    def logits(self, source, target):
        """For a source and a target; the row of zeros with which a target begins is added here."""
        w = self.weights
        tables = [w["Wemb"]] * 2 if self.tied else [w["encoder_Wemb"], w["decoder_Wemb"]]
        memory = self.stack("encoder", self.embed(tables[0][source].astype("f8"), "encoder"))
        rows = np.concatenate([np.zeros((1, self.d)), tables[1][target]])
        x = self.stack("decoder", self.embed(rows, "decoder"), memory)
        return x @ (w["Wemb"].T if self.tied else w["decoder_ff_logit_out_W"]) + w["decoder_ff_logit_out_b"]

    def greedy(self, source, most):
        target = []
        while len(target) < most:
            last = self.logits(source, target)[-1]
            last[1] = -np.inf  # <unk>, which Marian never generates
            target.append(int(last.argmax()))
            if target[-1] == 0:
                return target[:-1]
        return target


def check_marian(name, marian, source, compressed=False):
    marian.save(name + ".npz" if source.endswith(".npz") else os.path.join(name, "model.npz"), compressed)
    imported, translator = path(name + ".imported"), path(name + ".translator")
    run(xfc, "import", path(source), "-o", imported)
    run(xfc, "compile", imported, "-o", translator, "--mode", "decode")
    start = max(marian.vocab)
    random = np.random.default_rng(1)
    sources = [list(random.integers(2, marian.vocab[0], n)) + [0] for n in (6, 1, 11)]
    targets = [list(random.integers(2, marian.vocab[1], n)) for n in (4, 9, 0)]
    longest = [max(map(len, rows)) for rows in (sources, targets)]
    padded = [np.array([row + [start] * (longest[i] - len(row)) for row in rows], "i4") for i, rows in enumerate((sources, targets))]
    target = np.concatenate([np.full((3, 1), start, "i4"), padded[1]], 1)
    labels = np.full_like(target, start)
    for i, row in enumerate(targets):
        labels[i, : len(row) + 1] = 0
    save_file({"source": padded[0], "target": target, "labels": labels}, path("in"))
    run(translator, "forward", "--weights", os.path.join(imported, "model.safetensors"), "--input", path("in"), "--output", path("out"))
    found = load_file(path("out"))["logits"]
    worst = largest = 0
    for i, (s, t) in enumerate(zip(sources, targets)):
        wanted = marian.logits(s, t)
        worst = max(worst, np.abs(found[i, : len(t) + 1, : marian.vocab[1]] - wanted).max())
        largest = max(largest, np.abs(wanted).max())
        expect(found[i, : len(t) + 1, marian.vocab[1]:].max() < -99, f"{name}: the token that all begin with could be written")
    expect(worst <= 2e-5 * max(1, largest), f"{name}: logits differ by {worst:.2e} where they are up to {largest:.2f}")
    lines = "".join(" ".join(map(str, s)) + "\n" for s in sources)
    answers = run(translator, "translate", "--model", imported, "--format", "ids", "--beam", 1, "--max-length", 12, input=lines).stdout
    for s, answer in zip(sources, answers.splitlines(), strict=True):
        wanted = marian.greedy(s, 12)
        expect(answer == " ".join(map(str, wanted)), f"{name}: {s} gives {answer}, Marian {wanted}")
    print(f"{name}: logits within {worst:.1e} of {largest:.1f}, {len(sources)} translations")
    return imported, translator


os.mkdir(path("post"))
words = ["</s>", "<unk>", "\u2581the", "it's", "a:b", "\u0085", '"', "#", "null", "5"] + [f"w{i}" for i in range(10, 31)]
quoted = {"it's": "'it''s'", "\u0085": '"\\x85"', '"': '"\\""', "#": '"#"'}
write("post/vocab.yml", "".join(f"{quoted.get(word, word)}: {i}\n" for i, word in enumerate(words)))
write("post/decoder.yml", "models:\n  - model.npz\nvocabs:\n  - vocab.yml\n  - vocab.yml\nbeam-size: 4\nnormalize: 1\n")
post = Marian(3, (31, 31))
imported, translator = check_marian("post", post, "post")
ids = run(translator, "encode", "--model", imported, input="w12 it's # null 5 a:b nothing\n").stdout.split()
expect(ids == "12 3 7 8 9 4 1 0".split(), f"a list of words reads {ids}")
with open(os.path.join(imported, "model.json"), encoding="utf-8") as file:
    model = json.load(file)
expect(model["generation"] == {"beam": 4, "length_penalty": 1.0, "length_penalty_form": "power", "early_stopping": True, "suppress": [1]},
       f"decoder.yml becomes {model['generation']}")
other = Marian(4, (29, 37), decoder=2, pre=True, tied=False, trained=16, norm=True)
check_marian("pre", other, "pre.npz", compressed=True)
ssru = Marian(5, (31, 31), decoder=2, ssru=True)
imported, _ = check_marian("ssru", ssru, "ssru.npz")
run(xfc, "compile", imported, "-o", path("ssru.gpu"), "--target", "cpu,cuda")
same_on_gpu(path("ssru.gpu"), os.path.join(imported, "model.safetensors"), path("ssru.devices"), max(ssru.vocab))
check_marian("ssru.pre", Marian(6, (29, 37), decoder=2, pre=True, tied=False, ssru=True, projected=True), "ssru.pre.npz")

for key, value in (("type", "s2s"), ("transformer-decoder-autoreg", "average-attention"), ("transformer-ffn-activation", "gelu"),
                   ("transformer-postprocess", "dhn"), ("transformer-tied-layers", [1, 1]), ("dim-emb", 10 ** 9),
                   ("transformer-no-projection", True), ("dim-vocabs", [31, 30]), ("transformer-heads", 5)):
    post.save("bad.npz", **{key: value})
    refused(f"{key} {value}", path("bad.npz"), f"bad.npz: special:model.yml:", f" {key}: ")
for key, value in (("dec-cell", "gru"), ("layer-normalization", True)):
    ssru.save("bad.npz", **{key: value})
    refused(f"{key} {value}", path("bad.npz"), f"bad.npz: special:model.yml:", f" {key}: ")
ssru.save("bad.npz", **{"transformer-rnn-projection": True})
refused("a projection too many", path("bad.npz"), "'decoder_l1_rnn_Wo' [24, 24] is missing")
post.save("bad.npz", **{"enc-depth": 3})
refused("a layer too many", path("bad.npz"), "'encoder_l3_self_Wq' [24, 24] is missing")
post.save("bad.npz", **{"enc-depth": 1})
refused("a layer too few", path("bad.npz"), "is not part of the model")
post.save("bad.npz", **{"transformer-dim-ffn": 39})
refused("another size", path("bad.npz"), "'encoder_l1_ffn_W1' has shape [24, 40]", "requires [24, 39]")
np.savez(path("bad.npz"), a=np.array([{}], dtype=object))
refused("a pickle", path("bad.npz"), "'a'", "Python objects, a pickle")
np.savez(path("bad.npz"), a=np.ones(3))
refused("no options", path("bad.npz"), "has no array 'special:model.yml'")
with open(path("post", "model.npz"), "rb") as file:
    whole = file.read()
with open(path("bad.npz"), "wb") as file:
    file.write(whole[:30])
refused("30 bytes", path("bad.npz"), "damaged zip archive")
check_cut(path("post"), lists=("decoder.yml",))

# 10^9 for each number of the YAML files, which is refused with the file and the key.
checked = []
for key, value in post.options.items():
    for i, number in enumerate(value if isinstance(value, list) else [value]):
        if isinstance(number, int) and not isinstance(number, bool):
            post.save("bad.npz", **{key: value[:i] + [HUGE] + value[i + 1 :] if isinstance(value, list) else HUGE})
            refused(f"{key} {HUGE}", path("bad.npz"), f"error: {path('bad.npz')}: special:model.yml:", f": {key}: ", str(HUGE))
            checked.append(key)
yaml = {"decoder.yml": ["beam-size", "normalize", "word-penalty"], "vocab.yml": ["null", "w10"],
        "model.npz.yml": ["transformer-dropout", "transformer-dropout-attention", "transformer-dropout-ffn", "label-smoothing"]}
write("post/model.npz.yml", "".join(f"{key}: 0.1\n" for key in yaml["model.npz.yml"]))
for name, keys in yaml.items():
    with open(path("post", name), encoding="utf-8") as file:
        before = file.read()
    for key in keys:
        lines = [line for line in before.splitlines() if not line.startswith(f"{key}: ")] + [f"{key}: {HUGE}"]
        write(os.path.join("post", name), "\n".join(lines) + "\n")
        refused(f"{name}, {key} {HUGE}", path("post"), f"error: {path('post', name)}:{len(lines)}: {key}: ", str(HUGE))
        checked.append(key)
    write(os.path.join("post", name), before)
expect("tokens, but" not in run(xfc, "import", path("post"), "-o", path("post.again")).stderr, "all tokens have text")
with open(path("post", "vocab.yml"), encoding="utf-8") as file:
    before = file.read()
write("post/vocab.yml", "".join(before.splitlines(keepends=True)[:-2]))
expect(f"{path('post', 'vocab.yml')}: has 29 tokens, but the model has 31; the others have no text"
       in run(xfc, "import", path("post"), "-o", path("post.fewer")).stderr, "two tokens have no text")
write("post/vocab.yml", before)
print(f"10^9 is refused: {checked}")


# CTranslate2.

TYPES = ("float32", "int8", "int16", "int32", "float16")


def save_ctranslate2(name, variables, aliases, config, tokens, version=6):
    def text(string):
        return struct.pack("<H", len(string) + 1) + string.encode() + b"\0"

    data = struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<I", 7) + struct.pack("<I", len(variables))
    for key, value in sorted(variables.items()):
        data += text(key) + struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)
        code = TYPES.index(value.dtype.name) if version >= 4 else value.itemsize
        data += struct.pack("<BI", code, value.nbytes if version >= 4 else value.size) + value.tobytes()
    if version >= 3:
        data += struct.pack("<I", len(aliases)) + b"".join(text(a) + text(b) for a, b in sorted(aliases.items()))
    os.makedirs(path(name), exist_ok=True)
    with open(path(name, "model.bin"), "wb") as file:
        file.write(data)
    write(os.path.join(name, "config.json"), json.dumps(config))
    write(os.path.join(name, "shared_vocabulary.json"), json.dumps(tokens))


def variables_of(model, rows, scale):
    """The weights of a transformers model under CTranslate2's names; tied tables are stored once."""
    state = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    config, out = model.config, {}
    table = state["model.shared.weight"][:rows]
    out["decoder/embeddings/weight"] = table
    aliases = {"decoder/projection/weight": "decoder/embeddings/weight", "encoder/embeddings_0/weight": "decoder/embeddings/weight"}
    if np.any(state["final_logits_bias"]):
        out["decoder/projection/bias"] = state["final_logits_bias"][0, :rows]
    pre = config.model_type in ("mbart", "m2m_100")
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        def norm(ours, theirs):
            out[f"{stack}/{ours}/gamma"], out[f"{stack}/{ours}/beta"] = (state[f"model.{stack}.{theirs}.{part}"] for part in ("weight", "bias"))

        def linear(ours, *theirs):
            for part in ("weight", "bias"):
                out[f"{stack}/{ours}/{part}"] = np.concatenate([state[f"model.{stack}.{name}.{part}"] for name in theirs])

        for option, value in (("num_heads", np.int16(config.encoder_attention_heads)), ("pre_norm", np.int8(pre)),
                              ("activation", np.int8({"relu": 0, "swish": 2, "gelu": 3}[config.activation_function])),
                              ("scale_embeddings", np.float32(scale))):
            out[f"{stack}/{option}"] = np.array(value)
        positions = getattr(model.model, stack).embed_positions
        out[f"{stack}/position_encodings/encodings"] = positions.weight.detach().numpy()[getattr(positions, "offset", 0):]
        if f"model.{stack}.layernorm_embedding.weight" in state:
            norm("layernorm_embedding", "layernorm_embedding")
        if pre:
            norm("layer_norm", "layer_norm")
        for i in range(layers):
            layer, name = f"layer_{i}/", f"layers.{i}."
            linear(layer + "self_attention/linear_0", *(f"{name}self_attn.{p}_proj" for p in "qkv"))
            linear(layer + "self_attention/linear_1", name + "self_attn.out_proj")
            norm(layer + "self_attention/layer_norm", name + "self_attn_layer_norm")
            if stack == "decoder":
                linear(layer + "attention/linear_0", name + "encoder_attn.q_proj")
                linear(layer + "attention/linear_1", *(f"{name}encoder_attn.{p}_proj" for p in "kv"))
                linear(layer + "attention/linear_2", name + "encoder_attn.out_proj")
                norm(layer + "attention/layer_norm", name + "encoder_attn_layer_norm")
            linear(layer + "ffn/linear_0", name + "fc1")
            linear(layer + "ffn/linear_1", name + "fc2")
            norm(layer + "ffn/layer_norm", name + "final_layer_norm")
    out["decoder/alignment_layer"], out["decoder/alignment_heads"] = np.array(-1, "i2"), np.array(1, "i2")
    return out, aliases


def rounded(variables, kind):
    """Rounds as CTranslate2's converter does: linear weights and tables to integers, or everything to float16."""
    out = {}
    for name, value in variables.items():
        if value.ndim == 0 or (kind != "float16" and not name.endswith("/weight")):
            out[name] = value
        elif kind == "float16":
            out[name] = value.astype("f2")
        elif kind == "int8":
            scale = (127 / np.abs(value).max(1)).astype("f4")
            out[name], out[name + "_scale"] = np.rint(value * scale[:, None]).astype("i1"), scale
        else:
            scale = np.float32(2 ** 10 / np.abs(value).max())
            out[name], out[name + "_scale"] = np.rint(value * scale).astype("i2"), np.array(scale)
    return out


def imported_as(name):
    run(xfc, "import", path(name), "-o", path(name + ".imported"))
    with open(path(name + ".imported", "model.json"), encoding="utf-8") as file:
        return json.load(file), load_file(path(name + ".imported", "model.safetensors"))


def check_same(name, found, wanted, without=()):
    """CTranslate2's folder imports as the same model as that of transformers: the same steps, and bitwise the same weights. It says
    nothing about training, so its model has no dropout."""
    expect(found[0]["params"]["dropout"] == 0 and "training" not in found[0], f"{name}: trains with {found[0]['params']}")
    for key in ("params", "tokens", "share", "encoder", "decoder", "head"):
        a, b = dict(found[0]), dict(wanted[0])
        a["params"], b["params"] = ({**model["params"], "dropout": None} for model in (a, b))
        expect(a.get(key) == b.get(key), f"{name}: {key} {a.get(key)}, from transformers {b.get(key)}")
    for key in sorted(found[1].keys() | wanted[1].keys()):
        if key not in without:
            expect(key in found[1] and key in wanted[1] and np.array_equal(found[1][key], wanted[1][key]), f"{name}: {key} differs")


def randomize(model):
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith("final_logits_bias") or ("embed_positions" not in name and tensor.requires_grad):
                tensor.add_(0.3 * torch.randn(tensor.shape))
        if model.config.model_type == "marian":
            model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    return model.eval()


torch.manual_seed(5)
SIZES = dict(d_model=24, encoder_layers=2, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=40,
             decoder_ffn_dim=40, vocab_size=31, max_position_embeddings=32)
marian = randomize(transformers.MarianMTModel(transformers.MarianConfig(
    **SIZES, pad_token_id=30, decoder_start_token_id=30, eos_token_id=0, bos_token_id=None, scale_embedding=True,
    activation_function="swish")))
marian.save_pretrained(path("marian"))
wanted = imported_as("marian")
variables, aliases = variables_of(marian, 30, np.sqrt(24))
variables["decoder/start_from_zero_embedding"] = np.array(1, "i1")
config = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "</s>", "add_source_eos": False,
          "add_source_bos": False, "layer_norm_epsilon": None}
tokens = ["</s>", "<unk>"] + [f"w{i}" for i in range(2, 30)]
for version in (6, 3):
    name = f"ct2.{version}"
    save_ctranslate2(name, variables, aliases, config, tokens, version)
    found = imported_as(name)
    check_same(name, found, wanted, without=("output.bias",))
    bias, theirs = found[1]["output.bias"], wanted[1]["output.bias"]
    expect(np.array_equal(bias[:30], theirs[:30]) and bias[30] < -99, f"{name}: the output's bias differs")
    searched = {"beam": 2, "length_penalty": 1.0, "length_penalty_form": "power", "early_stopping": True, "min_length": 1, "max_length": 256,
                "at_max_length": "cut"}
    expect(found[0]["generation"] == searched, f"{name}: {found[0]['generation']}")
for kind in ("float16", "int8", "int16"):
    name = "ct2." + kind
    small = rounded(variables, kind)
    save_ctranslate2(name, small, aliases, config, tokens)
    found = imported_as(name)
    expect(found[0]["encoder"] == wanted[0]["encoder"], f"{name}: other steps")
    q = small["decoder/layer_0/attention/linear_1/weight"]
    if kind == "float16":
        v = q[24:]
    else:
        scale = small["decoder/layer_0/attention/linear_1/weight_scale"]
        v = q[24:].astype("f4") / (scale[24:, None] if kind == "int8" else scale)
    expect(np.array_equal(found[1]["decoder.layers.0.cross_attn.v.weight"], v), f"{name}: other values")
    expect(("decoder.embed.weight" not in found[1]) == ("decoder.embed.weight" not in wanted[1]), f"{name}: embeddings are not tied")
    for key, value in found[1].items():
        error = np.abs(value.astype("f8") - wanted[1][key])
        expect(key == "output.bias" or error.max() <= 0.006 * np.abs(wanted[1][key]).max(), f"{name}: {key} is off by {error.max()}")

bart = randomize(transformers.BartForConditionalGeneration(transformers.BartConfig(**SIZES, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                                                                                   decoder_start_token_id=2, forced_eos_token_id=2)))
bart.save_pretrained(path("bart"))
wanted = imported_as("bart")
variables, aliases = variables_of(bart, 31, 1)
letters = ["<s>", "<pad>", "</s>", "<unk>"] + [f"w{i}" for i in range(4, 31)]
save_ctranslate2("ct2.bart", variables, aliases, config, letters)
found = imported_as("ct2.bart")
for stack in ("encoder", "decoder"):  # transformers' table begins with rows that no position uses
    table = wanted[1][stack + ".pos.weight"]
    expect(np.array_equal(found[1][stack + ".pos.weight"], table[len(table) - 32:]), f"ct2.bart: {stack}.pos.weight differs")
    wanted[0][stack]["input"] = [{k: v for k, v in step.items() if k != "offset"} for step in wanted[0][stack]["input"]]
check_same("ct2.bart", found, wanted, without=("encoder.pos.weight", "decoder.pos.weight"))

variables, aliases = variables_of(marian, 30, np.sqrt(24))
save_ctranslate2("bad", variables | {"encoder/layer_0/self_attention/relative_position_keys": np.ones((3, 8), "f4")}, aliases, config, tokens)
refused("relative positions", path("bad"), "model.bin: 'encoder/layer_0/self_attention/relative_position_keys' [3, 8] cannot be imported")
save_ctranslate2("bad", variables | {"decoder/alibi": np.array(1, "i1")}, aliases, config, tokens)
refused("alibi", path("bad"), "'decoder/alibi' cannot be imported")
save_ctranslate2("bad", {k: v for k, v in variables.items() if k != "decoder/layer_0/ffn/linear_1/bias"} |
                 {"decoder/layer_0/ffn/layer_norm/beta": np.ones(23, "f4")}, aliases, config, tokens)
refused("another size", path("bad"), "'decoder/layer_0/ffn/layer_norm/beta' has shape [23]; expected [24]")
save_ctranslate2("bad", variables, aliases, config, tokens + ["more"])
refused("too many tokens", path("bad"), "shared_vocabulary.json: has 31 tokens, but", "30 rows")
save_ctranslate2("bad", variables, aliases, config | {"decoder_start_token": None}, tokens)
refused("no start", path("bad"), "config.json: decoder_start_token: null")
save_ctranslate2("bad", variables, aliases, config | {"eos_token": "<end>"}, tokens)
refused("no eos", path("bad"), "has no token <end>")
save_ctranslate2("bad", variables, aliases, config, tokens)
check_cut(path("bad"))
# 10^9 for each number that the converters write; nothing reads the form of weights of fewer bits if there are none.
numbers = {"layer_norm_epsilon": 1e-6, "quantization_type": 0, "quantization_bits": 0, "quantization_group_size": 0}
for key in numbers:
    save_ctranslate2("bad", variables, aliases, config | numbers | {key: HUGE}, tokens)
    if key in ("quantization_bits", "quantization_group_size"):
        imported_as("bad")
        shutil.rmtree(path("bad.imported"))
    else:
        refused(f"{key} {HUGE}", path("bad"), f"error: {path('bad', 'config.json')}: {key}: ", str(HUGE))
os.mkdir(path("empty"))
refused("an empty folder", path("empty"), "contains no model of a known kind", "Hugging Face", "CTranslate2", "Marian")

if failures:
    sys.exit("\n".join(failures))
