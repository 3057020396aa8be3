"""Small tokenizers of the families that can be imported, trained here and loaded by transformers."""
import json
import os
import sys

import sentencepiece
import transformers

from foreign_checks import path, run


def text_of(side):
    """One side of a corpus that can be learned."""
    script = os.path.join(os.path.dirname(__file__), "make_text.py")
    return [pair.split("\t")[side] for pair in run(sys.executable, script, 1, 300).stdout.splitlines()]


def train_pieces(prefix, text, **options):
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=prefix, vocab_size=30, minloglevel=2, **options)
    return prefix + ".model"


def marian_tokenizer(folder):
    """Two SentencePiece models, whose pieces get other ids here, and a token that names a language."""
    vocabulary = {"</s>": 0, "<unk>": 1, ">>fr<<": 2}
    os.makedirs(folder)
    for side, name in enumerate(("source", "target")):
        file = os.path.join(folder, name + ".spm")
        os.rename(train_pieces(os.path.join(folder, name), text_of(side)), file)
        pieces = sentencepiece.SentencePieceProcessor(model_file=file)
        for i in range(3, len(pieces)):
            vocabulary.setdefault(pieces.id_to_piece(i), len(vocabulary))
    vocabulary["<pad>"] = len(vocabulary)
    for name, contents in (("vocab.json", vocabulary), ("tokenizer_config.json", {"source_lang": "en", "target_lang": "fr"})):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(contents, file)
    return transformers.MarianTokenizer.from_pretrained(folder)


def m2m_tokenizer():
    """A SentencePiece model, whose pieces get other ids here, with the languages after them."""
    folder = path("m2m.tokenizer")
    os.makedirs(folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=train_pieces(os.path.join(folder, "sentencepiece.bpe"), text_of(0) + text_of(1)))
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for i in range(3, len(pieces)):
        vocabulary[pieces.id_to_piece(i)] = len(vocabulary)
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
    special = {"additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]}
    for name, contents in (("vocab.json", vocabulary), ("special_tokens_map.json", special)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(contents, file)
    return transformers.M2M100Tokenizer.from_pretrained(folder, src_lang="en", tgt_lang="fr")


def nllb_tokenizer():
    folder = path("nllb.tokenizer")
    os.makedirs(folder)
    train_pieces(os.path.join(folder, "sentencepiece.bpe"), text_of(0) + text_of(1))
    return transformers.NllbTokenizer.from_pretrained(folder, extra_special_tokens=["eng_Latn", "fra_Latn"], src_lang="eng_Latn",
                                                      tgt_lang="fra_Latn")


def t5_tokenizer(name="t5", extra_ids=100, **options):
    folder = path(name + ".tokenizer")
    os.makedirs(folder)
    train_pieces(os.path.join(folder, "spiece"), text_of(0) + text_of(1), pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"extra_ids": extra_ids}, file)
    return transformers.T5Tokenizer.from_pretrained(folder)
