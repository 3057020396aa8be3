"""Makes a Marian model with random weights as transformers saves it and, if CTranslate2 is installed, as that converts it: f32 and int8.

usage: imported_model.py D_MODEL LAYERS D_FF VOCABULARY FOLDER
"""
import importlib.util
import json
import os
import random
import sys

import sentencepiece
import torch
import transformers


def words(count):
    """Generates text from which pieces can be learned."""
    draw = random.Random(1)
    known = ["".join(draw.choice("aeiou") + draw.choice("bdfgklmnprst") for _ in range(draw.randint(1, 4))) for _ in range(2000)]
    return [" ".join(draw.choices(known, k=10)) for _ in range(count)]


def main():
    d_model, layers, d_ff, size = map(int, sys.argv[1:5])
    folder = sys.argv[5]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    made = os.path.join(folder, "huggingface")
    os.makedirs(made)
    ids = {"</s>": 0, "<unk>": 1}
    for side in "source", "target":
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(words(2000)), model_prefix=os.path.join(made, side), vocab_size=400,
                                                 minloglevel=2)
        os.rename(os.path.join(made, side + ".model"), os.path.join(made, side + ".spm"))
        pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(made, side + ".spm"))
        for i in range(3, len(pieces)):
            ids.setdefault(pieces.id_to_piece(i), len(ids))
    ids |= {f"piece{i}": i for i in range(len(ids), size - 1)}
    ids["<pad>"] = pad = size - 1
    for name, contents in (("vocab.json", ids), ("tokenizer_config.json", {"source_lang": "en", "target_lang": "de"})):
        with open(os.path.join(made, name), "w") as file:
            json.dump(contents, file)
    model = transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=size, d_model=d_model, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=d_ff, decoder_ffn_dim=d_ff, activation_function="swish", scale_embedding=True, pad_token_id=pad,
        decoder_start_token_id=pad, eos_token_id=0, max_position_embeddings=512)).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight[pad] = 0
        model.final_logits_bias[0, 0] = -100  # no translation ends early
    model.generation_config.bad_words_ids = [[pad]]
    model.save_pretrained(made)
    if not importlib.util.find_spec("ctranslate2"):
        return
    import ctranslate2

    for kind in "float32", "int8":
        ctranslate2.converters.TransformersConverter(made).convert(os.path.join(folder, kind), quantization=kind)


if __name__ == "__main__":
    main()
