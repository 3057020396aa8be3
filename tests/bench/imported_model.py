"""Makes a model with random weights, as transformers saves it, and as CTranslate2, where it is installed, converts it.

usage: imported_model.py SHAPE FOLDER, SHAPE a JSON object: family (marian or nllb), d_model, layers, d_ff, heads, vocabulary, types (of
CTranslate2's weights)
"""
import importlib.util
import json
import os
import random
import sys

import sentencepiece
import torch
import transformers
from sentencepiece import sentencepiece_model_pb2


def words(count):
    """Text from which pieces can be learned."""
    draw = random.Random(1)
    known = ["".join(draw.choice("aeiou") + draw.choice("bdfgklmnprst") for _ in range(draw.randint(1, 4))) for _ in range(2000)]
    return [" ".join(draw.choices(known, k=10)) for _ in range(count)]


def marian(shape, folder):
    """Two small SentencePiece models, and made-up pieces that fill the vocabulary."""
    ids = {"</s>": 0, "<unk>": 1}
    for side in "source", "target":
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words(2000)), model_prefix=os.path.join(folder, side), vocab_size=400,
                                                 minloglevel=2)
        os.rename(os.path.join(folder, side + ".model"), os.path.join(folder, side + ".spm"))
        pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, side + ".spm"))
        for i in range(3, len(pieces)):
            ids.setdefault(pieces.id_to_piece(i), len(ids))
    pad = shape["vocabulary"] - 1
    ids |= {f"piece{i}": i for i in range(len(ids), pad)}
    ids["<pad>"] = pad
    for name, contents in (("vocab.json", ids), ("tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(contents, file)
    model = transformers.MarianMTModel(transformers.MarianConfig(
        **sizes(shape), activation_function="swish", pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0))
    model.generation_config.bad_words_ids = [[pad]]
    return model


def nllb(shape, folder):
    """A SentencePiece model of made-up pieces; M2M100's ids have one more token before them. Languages are not among the pieces."""
    pieces = sentencepiece_model_pb2.ModelProto()
    pieces.trainer_spec.model_type = pieces.trainer_spec.UNIGRAM
    pieces.normalizer_spec.name = "identity"
    special = [("<unk>", pieces.SentencePiece.UNKNOWN), ("<s>", pieces.SentencePiece.CONTROL), ("</s>", pieces.SentencePiece.CONTROL)]
    normal = [(f"\u2581piece{i}", pieces.SentencePiece.NORMAL) for i in range(shape["vocabulary"] - 6)]
    for i, (piece, kind) in enumerate(special + normal):
        pieces.pieces.add(piece=piece, score=-i / 1e4, type=kind)
    with open(os.path.join(folder, "sentencepiece.bpe.model"), "wb") as file:
        file.write(pieces.SerializeToString())
    transformers.NllbTokenizer.from_pretrained(folder, extra_special_tokens=["eng_Latn"], src_lang="eng_Latn").save_pretrained(folder)
    return transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(
        **sizes(shape), activation_function="relu", pad_token_id=1, decoder_start_token_id=2, eos_token_id=2))


def sizes(shape):
    return {f"{stack}_{key}": shape[ours] for stack in ("encoder", "decoder")
            for key, ours in (("layers", "layers"), ("attention_heads", "heads"), ("ffn_dim", "d_ff"))} | {
        "vocab_size": shape["vocabulary"], "d_model": shape["d_model"], "scale_embedding": True, "max_position_embeddings": 512}


def main():
    shape, folder = json.loads(sys.argv[1]), sys.argv[2]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    made = os.path.join(folder, "huggingface")
    os.makedirs(made)
    model = {"marian": marian, "nllb": nllb}[shape["family"]](shape, made).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight[model.config.pad_token_id] = 0
    model.save_pretrained(made)
    if not importlib.util.find_spec("ctranslate2"):
        return
    import ctranslate2

    for kind in set(shape["types"]) - {"int4"}:  # which CTranslate2 does not have
        ctranslate2.converters.TransformersConverter(made).convert(os.path.join(folder, kind), quantization=kind)


if __name__ == "__main__":
    main()
