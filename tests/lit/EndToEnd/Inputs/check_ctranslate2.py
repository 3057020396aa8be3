"""Checks `xfc export --to ctranslate2` against CTranslate2: check_ctranslate2.py XFC WORK_FOLDER.

Makes small models of many forms with random weights, and exports them. CTranslate2 must give the translations of the executable,
greedily and by beams, with nearly the same scores; and the exported folder, imported and exported again, must hold the same bytes. Then
trains models on text, which must be translated the same, too; those of a family of transformers also by way of their folders for
transformers, both by `generate` and by what CTranslate2's converter makes of them.
"""
import importlib.util
import json
import os
import re
import sys

import ctranslate2
import numpy as np
import sentencepiece
from safetensors.numpy import load_file, save_file

from foreign_checks import expect, failures, path, run, xfc

inputs = os.path.dirname(__file__)
SOURCES = [[7, 12, 5, 31, 8, 44], [9], [20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30], [40, 4, 40]]


def layer_norm(name, **options):
    return {"op": "layer_norm", "name": name, **options}


def rms_norm(name, **options):
    return {"op": "rms_norm", "name": name, **options}


def feed_forward(features, function="relu", bias=True):
    return [{"op": "linear", "name": "ffn.in", "features": features, "bias": bias}, {"op": function},
            {"op": "linear", "name": "ffn.out", "features": "$d_model", "bias": bias}]


def gated(features, function, bias=False):
    return [{"op": "gated", "name": "ffn.in", "features": features, "activation": function, "bias": bias},
            {"op": "linear", "name": "ffn.out", "features": "$d_model", "bias": bias}]


def stack(decoder, layers, heads, body, positions, norm=layer_norm, pre=True, final=True, embedding_norm=False, scale="sqrt_dim",
          attention={}, self_attention={}, mask=("padding", "causal")):
    """A stack of `layers` layers, whose feed-forward is `body`."""
    def branch(name, steps):
        step = norm(name)
        return [{"op": "residual", "body": [step] * pre + steps}] + [step] * (not pre)

    def attend(name, **options):
        return [{"op": "attention", "name": name, "heads": heads, **attention, **options}]

    layer = branch("self_attn_norm", attend("self_attn", **self_attention, **({"mask": list(mask)} if decoder else {})))
    if decoder:
        layer += branch("cross_attn_norm", attend("cross_attn", memory="encoder"))
    table = {"op": "embedding", "name": "embed", "vocab": "$target_vocab" if decoder else "$source_vocab", "dim": "$d_model", "scale": scale}
    return {"input": [table] + positions + [norm("embed_norm")] * embedding_norm, "layers": layers, "layer": layer + branch("ffn_norm", body),
            "output": [norm("norm")] * final}


def sinusoidal(**options):
    return [{"op": "positions", "kind": "sinusoidal", "max_length": 32, **options}]


TIED = [["encoder.embed.weight", "decoder.embed.weight", "output.weight"]]
SEARCH = {"length_penalty": 1.0, "length_penalty_form": "power", "early_stopping": True, "at_max_length": "cut", "max_length": 16}


def model(name, d_model, encoder, decoder, vocab=(47, 47), share=TIED, tokens={}, bias=True, scale=(), max_length=32):
    json = {"format": "xfc-model/1", "name": name,
            "params": {"source_vocab": vocab[0], "target_vocab": vocab[1], "d_model": d_model, "max_length": max_length},
            "tokens": {"pad": 0, "unk": 1, "bos": 2, "eos": 3, "start": 2, "source_eos": True} | tokens}
    if share:
        json["share"] = share
    return json | {"encoder": encoder, "decoder": decoder, "generation": SEARCH,
                   "head": list(scale) + [{"op": "linear", "name": "output", "features": "$target_vocab", "bias": bias}]}


def both(layers, **options):
    """The two stacks, with the same options."""
    return [stack(decoder, layers[decoder], **options) for decoder in (False, True)]


def distance_tables(stack, layers):
    return [f"{stack}.layers.{i}.self_attn.distance_bias.weight" for i in range(layers)]


ROTARY = {"rotary": "halves", "max_length": 32}
BUCKETS = {"distance_bias": "buckets", "buckets": 8, "max_distance": 12, "max_length": 32}
MODELS = [
    # As original.json: post-norm, interleaved positions, a token with which translations begin.
    model("original", 36, *both((1, 2), heads=3, body=feed_forward(44), positions=sinusoidal(), pre=False, final=False)),
    # As tiny.json, with two vocabularies and the tanh form of GELU, and norms with another eps.
    model("tiny", 30, *both((2, 1), heads=5, body=feed_forward(41, "gelu_tanh"), positions=sinusoidal(layout="halves"),
                            norm=lambda name: layer_norm(name, eps=1e-3)), vocab=(47, 53), share=None),
    # BART's steps; its positions begin in the third row of the table.
    model("bart", 28, *both((1, 2), heads=4, body=feed_forward(37, "gelu"), pre=False, final=False, embedding_norm=True, scale="none",
                            positions=[{"op": "positions", "kind": "learned", "max_length": 30, "offset": 2}], mask=("causal",)), max_length=30),
    # As modern.json.
    model("modern", 40, *both((2, 1), heads=4, body=gated(33, "silu"), positions=sinusoidal(), norm=rms_norm, attention={"bias": False}),
          bias=False),
    # T5's steps, with heads that do not divide the rows; translations begin with pad.
    model("t5", 26, *both((2, 3), heads=3, body=gated(35, "gelu_tanh"), positions=[], norm=rms_norm, scale="none", mask=("causal",),
                          attention={"bias": False, "key_dim": 7, "value_dim": 7, "scale": 1}, self_attention=BUCKETS),
          tokens={"start": 0, "bos": 0}, bias=False, scale=[{"op": "scale", "by": "rsqrt_dim"}],
          share=[TIED[0][:2], distance_tables("encoder", 2), distance_tables("decoder", 3)]),
    # No family has these: rotated queries and keys, shared heads of keys, biases of some projections, and stacks that differ.
    model("own", 32, stack(False, 2, 4, feed_forward(30, "tanh", bias=False), [], scale=3.5, final=False, self_attention=ROTARY,
                           attention={"kv_heads": 2, "bias": {"q": True, "k": False, "v": True, "o": False}}),
          stack(True, 1, 8, gated(29, "relu", bias=True), [], pre=False, norm=lambda name: rms_norm(name, eps=1e-5), scale="none",
                attention={"key_dim": 6, "value_dim": 6, "kv_heads": 1, "scale": 1.75},
                self_attention={"rotary": "interleaved", "rotary_base": 500, "rotary_dim": 4, "max_length": 32}),
          share=None, scale=[{"op": "scale", "by": 0.75}]),
    # Marian's decoder begins with the row of padding, which is zero and the last of the table.
    model("marian", 20, *both((1, 1), heads=2, body=feed_forward(25, "silu"), positions=sinusoidal(layout="halves"), pre=False, final=False,
                              mask=("causal",)), tokens={"pad": 46, "start": 46, "bos": 46, "unk": 1, "eos": 3}),
]


def random_weights(folder, json, seed):
    """Writes random weights, large enough for every part to matter. Tokens that are never written have rows of zeros in the output, so
    that their probability is negligible: CTranslate2 divides it among the others when it is told not to write them."""
    module = path("module.mlir")
    run(xfc, "compile", os.path.join(folder, "model.json"), "--emit", "imported", "-o", module)
    generator = np.random.default_rng(seed)
    tensors, tokens = {}, json["tokens"]
    with open(module) as file:
        for name, shape in re.findall(r"xfc\.parameter @(\S+) : tensor<([\dx]+)xf32>", file.read()):
            shape = tuple(map(int, shape.split("x")))
            if "norm" in name:
                tensors[name] = generator.normal(1 if name.endswith("weight") else 0, 0.2, shape)
            elif "distance_bias" in name or "pos" in name:
                tensors[name] = generator.normal(0, 1, shape)
            else:
                tensors[name] = generator.normal(0, 1.5 * shape[-1] ** -0.5 if len(shape) > 1 else 0.2, shape)
    table = tensors.get("output.weight", tensors["encoder.embed.weight"])
    table *= 3 / np.linalg.norm(table, axis=1).mean()  # so that probabilities differ
    if json["head"][0]["op"] == "scale" and json["head"][0]["by"] == "rsqrt_dim":
        table *= json["params"]["d_model"] ** 0.5
    table[[tokens["pad"], tokens["start"]]] = 0
    if "output.bias" in tensors:
        tensors["output.bias"][tokens["eos"]] += 1
        tensors["output.bias"][[tokens["pad"], tokens["start"]]] = -100
    save_file({name: value.astype("f4") for name, value in tensors.items()}, os.path.join(folder, "model.safetensors"))


def here(translator, folder, lines, beam):
    """The best hypothesis of each line: its ids and its score."""
    file = path("lines")
    with open(file, "w") as out:
        out.writelines(line + "\n" for line in lines)
    answers = run(translator, "translate", "--model", folder, "--input", file, "--beam", beam, "--json", "--format",
                  "ids" if lines[0][:1].isdigit() else "text", "--length-penalty", 1, "--length-penalty-form", "power", "--max-length", 16)
    best = [json.loads(answer)["hypotheses"][0] for answer in answers.stdout.splitlines()]
    return [each["ids"] for each in best], [each["score"] for each in best]


def there(folder, lines, beam, never, compute_type="float32"):
    """The same by CTranslate2, as tokens."""
    translator = ctranslate2.Translator(folder, device="cpu", compute_type=compute_type, intra_threads=1)
    results = translator.translate_batch(lines, beam_size=beam, length_penalty=1, max_decoding_length=16, min_decoding_length=0,
                                         return_scores=True, suppress_sequences=never)
    return [result.hypotheses[0] for result in results], [result.scores[0] for result in results]


def contents(folder, name):
    """The bytes of a file of the folder, None if there is none."""
    file = os.path.join(folder, name)
    return open(file, "rb").read() if os.path.exists(file) else None


def check(json_model, seed):
    name, tokens = json_model["name"], json_model["tokens"]
    folder, exported, again, twice, translator = (path(name + end) for end in ("", ".ct2", ".again", ".twice", ".translator"))
    os.mkdir(folder)
    with open(os.path.join(folder, "model.json"), "w") as file:
        json.dump(json_model, file)
    random_weights(folder, json_model, seed)
    run(xfc, "compile", folder, "-o", translator, "--mode", "decode")
    note = run(xfc, "export", folder, "--to", "ctranslate2", "-o", exported).stderr
    zero_start = name == "marian"
    never = [["<pad>" if id == tokens["pad"] else str(id)] for id in sorted({tokens["pad"], tokens["start"]})] * (not zero_start)
    expect("beam_size=5" in note, f"{name}: {note}")
    if zero_start:
        expect("suppress_sequences" not in note, f"{name}: {note}")
    else:
        expect("suppress_sequences=" + json.dumps(never).replace(" ", "") in note, f"{name}: {note}")
    for beam in (1, 4):
        ids, scores = here(translator, folder, [" ".join(map(str, line + [tokens["eos"]])) for line in SOURCES], beam)
        found, theirs = there(exported, [list(map(str, line)) for line in SOURCES], beam, never)
        expect(found == [list(map(str, row)) for row in ids], f"{name}, beam {beam}: CTranslate2 gives {found}, translate {ids}")
        error = max(abs(a - b) for a, b in zip(scores, theirs))
        expect(error <= 2e-3, f"{name}, beam {beam}: scores {theirs}, here {scores}")
        expect(beam > 1 or len(set(map(tuple, ids))) > 1, f"{name}: translations {ids} do not depend on the lines")
        print(f"{name}, beam {beam}: {[len(row) for row in ids]} tokens, scores within {error:.1e}")

    # The way back, and again. The table of learned positions loses the rows that no position uses, and projections that share a variable
    # all get a bias.
    run(xfc, "import", exported, "-o", again)
    before, after = (load_file(os.path.join(each, "model.safetensors")) for each in (folder, again))
    for stack in ("encoder", "decoder"):
        if name == "bart":
            before[stack + ".pos.weight"] = before[stack + ".pos.weight"][2:]
        if name == "own" and stack == "encoder":
            for i in range(2):
                before[f"encoder.layers.{i}.self_attn.k.bias"] = np.zeros(16, "f4")
    expect(before.keys() == after.keys(), f"{name}: imported with other tensors: {before.keys() ^ after.keys()}")
    different = [key for key in before.keys() & after.keys() if before[key].shape != after[key].shape or (before[key] != after[key]).any()]
    expect(not different, f"{name}: imported with other values of {different}")
    run(xfc, "export", again, "--to", "ctranslate2", "-o", twice)
    for file in os.listdir(exported):
        expect(contents(exported, file) == contents(twice, file), f"{name}: {file} differs when exported again")
    return folder


def check_quantized(folder):
    """Weights of other types are those that numpy rounds to."""
    weights, again = load_file(os.path.join(folder, "model.safetensors")), {}
    for kind in ("float16", "int8"):
        run(xfc, "export", folder, "--to", "ctranslate2", "-o", path(kind), "--quantization", kind)
        run(xfc, "import", path(kind), "-o", path(kind + ".again"))
        again[kind] = load_file(path(kind + ".again", "model.safetensors"))
    for name, value in weights.items():
        if name != "output.bias":  # which import makes F32
            half = again["float16"][name]
            expect(half.dtype == np.float16 and np.array_equal(half, value.astype("f2")), f"float16: {name} differs")
        whole = value
        if value.ndim == 2:
            most = np.abs(value).max(1)
            scale = (127 / np.where(most == 0, 127, most)).astype("f4")[:, None]
            whole = np.rint(value * scale) / scale
        expect(np.array_equal(again["int8"][name], whole), f"int8: {name} differs")
    lines = [list(map(str, line)) for line in SOURCES]
    # CTranslate2 rounds a folder of floats in the same way when it loads it.
    expect(there(path("int8"), lines, 1, [["<pad>"], ["2"]], "int8") == there(path("original.ct2"), lines, 1, [["<pad>"], ["2"]], "int8"),
           "int8: other translations than those of the same weights, rounded by CTranslate2")


def compare_text(name, folder, translator, lines, exported, tokens, decode):
    """CTranslate2 gives the tokens that the executable gives for these lines, which are `tokens` there. `decode` names ids."""
    for beam in (1, 4):
        ids, scores = here(translator, folder, lines, beam)
        found, theirs = there(exported, tokens, beam, None)
        expect(found == [decode(row) for row in ids], f"{name}, beam {beam}: CTranslate2 gives {found}, translate {ids}")
        expect(max(abs(a - b) for a, b in zip(scores, theirs)) <= 2e-3, f"{name}, beam {beam}: scores {theirs}, here {scores}")
        expect(len(set(map(tuple, ids))) > 2, f"{name}: translations {ids} hardly depend on the lines")
        print(f"{name}, beam {beam}: {[''.join(row) for row in found]}")


def compare_generate(name, folder, translator, lines, family, tokenizer):
    """`generate` translates the lines to the text that the executable writes, with the settings that were exported."""
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(family).eval()
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    for beam in (1, 4):
        ids = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=beam)
        answers = run(translator, "translate", "--model", folder, "--beam", beam, input="".join(line + "\n" for line in lines)).stdout
        # Marian's tokenizer there drops blanks at the end of a line.
        wanted, found = ([text.rstrip() for text in texts] for texts in (tokenizer.batch_decode(ids, skip_special_tokens=True), answers.splitlines()))
        expect(found == wanted and len(set(found)) > 2, f"{name}, beam {beam}: generate gives {wanted}, translate {found}")
    print(f"{name}, generate: {wanted}")


def check_text(name, json_model, vocabulary, files, pairs):
    """Trains a model on text. Its CTranslate2 folder gives the same translations and, if it is one of a family of transformers, so do its folder
    for transformers and what CTranslate2's converter makes of that."""
    file, folder, translator, exported, family, converted = (path("text-" + name + end) for end in (
        ".json", "", ".translator", ".ct2", ".hf", ".converted"))
    with open(file, "w") as out:
        json.dump(json_model, out)
    run(xfc, "compile", file, "--vocab", vocabulary, "-o", translator, "--set", f"tokens.start={json_model['tokens']['start']}")
    run(translator, "train", "--source", files[0], "--target", files[1], "--vocab", vocabulary, "--out", folder, "--steps", 150,
        "--batch-tokens", 400, "--lr", 2e-3, "--schedule", "constant", "--warmup", 50, "--quiet")
    run(xfc, "export", folder, "--to", "ctranslate2", "-o", exported)
    lines = [source for source, _ in pairs[:6]]
    pieces = os.path.join(exported, "sentencepiece.model")
    if os.path.exists(pieces):
        pieces = sentencepiece.SentencePieceProcessor(model_file=pieces)
        compare_text(name, folder, translator, lines, exported, pieces.encode(lines, out_type=str), pieces.id_to_piece)
    if name == "tiny":
        return
    if not importlib.util.find_spec("transformers"):
        print(f"{name}: skipped what needs transformers, which is not installed" + ", and so all comparisons" * isinstance(pieces, str))
        return
    import transformers
    run(xfc, "export", folder, "--to", "hf", "-o", family)
    tokenizer = transformers.AutoTokenizer.from_pretrained(family)
    compare_generate(name, folder, translator, lines, family, tokenizer)
    tokens = [tokenizer.convert_ids_to_tokens(row) for row in tokenizer(lines).input_ids]
    ctranslate2.converters.TransformersConverter(family).convert(converted)
    compare_text(name + ", converted", folder, translator, lines, converted, tokens, tokenizer.convert_ids_to_tokens)
    if isinstance(pieces, str):  # a tokenizer.json, which also adds <s> and </s>
        compare_text(name, folder, translator, lines, exported, tokens, tokenizer.convert_ids_to_tokens)


def check_texts():
    pairs = [pair.split("\t") for pair in run(sys.executable, os.path.join(inputs, "make_text.py"), 1, 300).stdout.splitlines()]
    files = [path("source"), path("target")]
    for side, file in enumerate(files):
        with open(file, "w") as out:
            out.writelines(pair[side] + "\n" for pair in pairs)
    pieces, characters = path("spm.model"), path("tokenizer.json")
    run(xfc, "vocab", "--input", *files, "--size", 60, "-o", pieces)
    with open(characters, "w") as out:
        out.write(run(sys.executable, os.path.join(inputs, "make_tokenizer.py"), *files).stdout)
    with open(os.path.join(inputs, "..", "..", "..", "..", "models", "tiny.json")) as file:
        tiny = json.load(file)
    tiny["generation"] = SEARCH
    tiny["params"] |= dict(d_model=36, heads=3, encoder_layers=1, decoder_layers=1, d_ff=44, max_length=40, dropout=0)
    check_text("tiny", tiny, pieces, files, pairs)
    check_text("t5", model("t5", 36, *both((1, 1), heads=3, body=feed_forward(44, bias=False), positions=[], norm=rms_norm, scale="none",
                                           mask=("causal",), attention={"bias": False, "scale": 1}, self_attention=BUCKETS),
                           bias=False, scale=[{"op": "scale", "by": "rsqrt_dim"}]), pieces, files, pairs)
    # As in BART, translations begin with eos, and then with the <s> that the tokenizer puts before every line.
    check_text("bart", model("bart", 36, *both(
        (1, 1), heads=3, body=feed_forward(44, "gelu"), pre=False, final=False, embedding_norm=True, mask=("causal",),
        positions=[{"op": "positions", "kind": "learned", "max_length": 60, "offset": 2}]), tokens={"start": 3}, max_length=60), characters, files, pairs)


folders = [check(each, 20 + i) for i, each in enumerate(MODELS)]
check_quantized(folders[0])
check_texts()
sys.exit("\n".join(failures) or 0)
