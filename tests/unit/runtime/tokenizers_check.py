"""Compares xfc's tokenizers with the original ones: equal ids and equal text, line by line.

    tokenizers_check.py RUNTIME_TOKENIZE [--only NAMES] [--lines FILE]...

The tokenizers are trained here; each is saved the way its family saves it, and read by RUNTIME_TOKENIZE. The lines come from --lines, or
from tokenizer_lines.py; hostile ones are added.
"""
import argparse
import functools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    import tokenizers
    import transformers
except ImportError as missing:
    print(missing)
    sys.exit(77)

from tokenizer_lines import hostile_lines, real_lines, repository_lines
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_LANGUAGES


def sentencepiece_model(folder, name, text, **options):
    settings = dict(model_type="unigram", vocab_size=700, character_coverage=0.999, minloglevel=2, hard_vocab_limit=False)
    settings.update(options)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=str(folder / name), **settings)
    (folder / (name + ".vocab")).unlink()
    return folder / (name + ".model")


def write_json(file, value):
    file.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def bart(folder, text, **options):
    trained = tokenizers.ByteLevelBPETokenizer(**options)
    trained.train_from_iterator(text, vocab_size=1000, min_frequency=1, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
    trained.save_model(str(folder))
    return transformers.BartTokenizer.from_pretrained(str(folder), **options)


def t5(folder, text, config=None, **options):
    sentencepiece_model(folder, "spiece", text, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, **options)
    if config:
        write_json(folder / "tokenizer_config.json", config)
    return transformers.T5Tokenizer.from_pretrained(str(folder))


# mT5's sentinels are pieces of its SentencePiece model; T5's, and flan-T5's, follow it.
def mt5(folder, text):
    return t5(folder, text, {"extra_ids": 0}, user_defined_symbols=[f"<extra_id_{i}>" for i in range(100)], vocab_size=900)


def umt5(folder, text):
    return t5(folder, text, {"extra_ids": 300}, vocab_size=900)


def madlad(folder, text):
    return t5(folder, text, {"extra_ids": 0}, user_defined_symbols=["<2de>", "<2fr>", "<2pt_BR>"])


def gpt2(folder, text):
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(text, vocab_size=1000, min_frequency=1, special_tokens=["<|endoftext|>"], show_progress=False)
    trained.save_model(str(folder))
    return transformers.GPT2Tokenizer.from_pretrained(str(folder))


def mbart(folder, text, **languages):
    sentencepiece_model(folder, "sentencepiece.bpe", text)
    return transformers.MBartTokenizer.from_pretrained(str(folder), **languages)


# Published models name the class of their tokenizer in config.json.
def mbart50(folder, text, **languages):
    sentencepiece_model(folder, "sentencepiece.bpe", text)
    write_json(folder / "config.json", {"model_type": "mbart", "tokenizer_class": "MBart50Tokenizer"})
    return transformers.MBart50Tokenizer.from_pretrained(str(folder), **languages)


def nllb(folder, text, **languages):
    sentencepiece_model(folder, "sentencepiece.bpe", text, model_type="bpe")
    return transformers.NllbTokenizer.from_pretrained(str(folder), extra_special_tokens=NLLB_LANGUAGES, **languages)


def marian(folder, text):
    vocabulary = {"</s>": 0, "<unk>": 1, ">>fr<<": 2}
    for i, name in enumerate(["source", "target"]):
        model = sentencepiece_model(folder, name, text[i::2], vocab_size=400)
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
        model.rename(folder / (name + ".spm"))
        for i in range(3, len(pieces)):
            vocabulary.setdefault(pieces.id_to_piece(i), len(vocabulary))
    vocabulary["<pad>"] = len(vocabulary)
    write_json(folder / "vocab.json", vocabulary)
    write_json(folder / "tokenizer_config.json", {"source_lang": "en", "target_lang": "fr"})
    return transformers.MarianTokenizer.from_pretrained(str(folder))


def m2m(folder, text, **languages):
    model = sentencepiece_model(folder, "sentencepiece.bpe", text, model_type="bpe")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for i in range(3, len(pieces)):
        vocabulary[pieces.id_to_piece(i)] = len(vocabulary)
    write_json(folder / "vocab.json", vocabulary)
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]})
    return transformers.M2M100Tokenizer.from_pretrained(str(folder), **languages)


class Pieces:
    """What the tokenizers that came with these families do with a folder that has only a SentencePiece model: SentencePiece segments what is
    between special tokens, and the pieces get the family's ids. transformers 5 rebuilds such models in another library, which normalizes
    some text differently, or, for mBART, not at all; and it puts NLLB's languages after <mask>, where no trained model has them."""
    def __init__(self, folder, tokenizer):
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(next(folder.glob("*.model"))))
        self.tokens = [tokenizer.convert_ids_to_tokens(i) for i in range(len(tokenizer))]
        # The symbols that a model was told to keep whole, as MADLAD's languages and mT5's sentinels, are left to SentencePiece.
        self.special = {token for token in tokenizer.all_special_tokens
                        for piece in [self.model.piece_to_id(token)] if self.model.is_control(piece) or self.model.is_unknown(piece)}
        if isinstance(tokenizer, transformers.NllbTokenizer):
            self.tokens = [token for token in self.tokens if token not in NLLB_LANGUAGES and token != "<mask>"] + NLLB_LANGUAGES + ["<mask>"]
        self.ids = {token: i for i, token in reversed(list(enumerate(self.tokens)))}
        self.cut = re.compile("(" + "|".join(map(re.escape, sorted(self.special, key=len, reverse=True))) + ")")
        self.frames = []
        for side in ("text", "text_target"):
            frame = tokenizer.convert_ids_to_tokens(tokenizer(**{side: ""})["input_ids"])
            at = frame.index("</s>") if frame[-1] == "</s>" else 0  # mBART's language follows </s>
            self.frames.append(([self.ids[token] for token in frame[:at]], [self.ids[token] for token in frame[at:]]))

    def encode(self, lines, target=False):
        before, after = self.frames[target]
        return [before + [self.ids.get(piece, self.ids["<unk>"]) for part in self.cut.split(line)
                          for piece in ([part] if part in self.special else self.model.encode(part, out_type=str))] + after for line in lines]

    def score(self, row):
        """The log-probability of the pieces, which segmentation maximizes. It is a sum of rounded numbers, so of two segmentations that are
        as good up to rounding, versions of SentencePiece choose differently."""
        return sum(self.model.get_score(self.model.piece_to_id(self.tokens[id])) for id in row if self.tokens[id] not in self.special)

    def decode(self, rows):
        pieces = [[self.tokens[id] for id in row if self.tokens[id] not in self.special] for row in rows]
        return [self.model.decode_pieces(row).replace("▁", " ").strip() for row in pieces]


# A tokenizer.json with parts that the families above do not use.
def parts(text, model, **members):
    trained = tokenizers.Tokenizer(model)
    for name, member in members.items():
        setattr(trained, name, member)
    kind = tokenizers.trainers.BpeTrainer if isinstance(model, tokenizers.models.BPE) else tokenizers.trainers.UnigramTrainer
    settings = {"unk_token": "<unk>"} if kind is tokenizers.trainers.UnigramTrainer else {}
    trained.train_from_iterator(text, kind(vocab_size=500, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False, **settings))
    return trained


def combinations(text):
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
    yield parts(text, models.BPE(unk_token="<unk>", fuse_unk=True), normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(left=False)]),
                pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False), decoder=decoders.Metaspace(prepend_scheme="first"))
    yield parts(text, models.BPE(unk_token="<unk>", fuse_unk=False),
                normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
                decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    yield parts(text, models.BPE(unk_token="<unk>"), normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(" {2,}"), " ")]),
                pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(use_regex=False)]))
    unigram = parts(text, models.Unigram(), normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.Strip(), normalizers.NFC(), normalizers.Replace(Regex("\\s+"), " ")]),
                    pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]), decoder=decoders.Metaspace())
    unigram.add_tokens([AddedToken("word", single_word=True), AddedToken("The", lstrip=True, rstrip=True), AddedToken("thé", normalized=True), AddedToken("<>", normalized=False)])
    yield unigram


class Check:
    def __init__(self, program, real, hostile):
        self.program, self.real, self.hostile, self.failures, self.compared = program, real, hostile, 0, 0

    def ours(self, vocabulary, lines):
        out = subprocess.run([self.program, str(vocabulary)], input="".join(line + "\n" for line in lines).encode(), stdout=subprocess.PIPE, check=True).stdout
        out = out.decode("utf-8").split("\n")
        return [([int(id) for id in ids.split()], text) for ids, text in zip(out[0:-1:2], out[1::2])]

    def compare(self, name, vocabulary, encode, decode, score=None, every=1):
        """`encode` makes ids of all lines, or of every nth real one, and `decode` lines of all ids. Of ids with the same `score` and the same
        text, all are right."""
        lines = self.real[::every] + self.hostile
        ours, wrong = self.ours(vocabulary, lines), 0
        assert len(ours) == len(lines), f"{name}: {len(ours)} answers to {len(lines)} lines"
        for line, (ids, text), theirs, expected in zip(lines, ours, encode(lines), decode([ids for ids, _ in ours]), strict=True):
            tie = ids != theirs and score and abs(score(ids) - score(theirs)) < 1e-4 and decode([theirs])[0] == expected
            if ids != theirs and not tie or text != expected:
                wrong += 1
                if wrong <= 5:
                    print(f"{name}: {line[:80]!r}\n  ids  {ids[:40]}\n  them {theirs[:40]}\n  text {text[:80]!r}\n  them {expected[:80]!r}")
        print(f"{name}: {len(lines) - wrong} of {len(lines)} lines are equal", flush=True)
        self.failures += wrong > 0
        self.compared += len(lines)

    def folder(self, name, folder, model_type, languages, encode, decode, note, score=None):
        out = folder.with_name(folder.name + "-out")
        out.mkdir()
        notes = subprocess.run([self.program, str(folder), model_type, *languages, str(out)], check=True, stderr=subprocess.PIPE, text=True).stderr
        if note not in notes or bool(note) != bool(notes):
            print(f"{name}: expected a note that {note!r}, found {notes!r}")
            self.failures += 1
        # Where the language is a default, or the target's, it alone differs from what was compared on all lines, unless the target has pieces
        # of its own.
        few = 8
        self.compare(name, out / "vocab.model", functools.partial(encode, target=False), decode, score, every=few if note else 1)
        target = out / "target-vocab.model"
        if target.exists():
            self.compare(name + ", target", target, functools.partial(encode, target=True), decode, score, every=1 if model_type == "marian" else few)

    def family(self, name, base, text, make, model_type, languages, published, note=""):
        """Folders of transformers and, if `published`, the files from which it makes them."""
        made, saved = base / name, base / (name + "-saved")
        made.mkdir()
        tokenizer = make(made, text)
        tokenizer.save_pretrained(str(saved))
        if note:
            settings = json.loads((saved / "tokenizer_config.json").read_text(encoding="utf-8"))
            write_json(saved / "tokenizer_config.json", settings | {"src_lang": None, "tgt_lang": None})

        def encode(lines, target):
            return tokenizer(**{"text_target" if target else "text": lines})["input_ids"]

        def decode(rows):
            return tokenizer.batch_decode(rows, skip_special_tokens=True)

        self.folder(name, saved, model_type, languages, encode, decode, note)
        if published == "as transformers":
            self.folder(name + " as it was published", made, model_type, languages, encode, decode, note)
        elif published == "as SentencePiece":
            pieces = Pieces(made, tokenizer)
            self.folder(name + " as it was published", made, model_type, languages, pieces.encode, pieces.decode, note, pieces.score)


# Each name: how its tokenizer is made, the model_type of its models, their languages, and with what the files are compared as they were
# published, before transformers saved them; and what is noted. If nothing names a language, the family's default is taken.
def families():
    marked = {"mbart": (mbart, "mbart", "en_XX", "ro_RO", "as SentencePiece"), "mbart50": (mbart50, "mbart", "en_XX", "ro_RO", "as SentencePiece"),
              "nllb": (nllb, "m2m_100", "eng_Latn", "fra_Latn", "as SentencePiece"), "m2m": (m2m, "m2m_100", "en", "fr", "as transformers")}
    yield "bart", bart, "bart", ("", ""), "as transformers"
    yield "gpt2", gpt2, "bart", ("", ""), "as transformers"
    yield "t5", t5, "t5", ("", ""), "as SentencePiece"
    yield "mt5", mt5, "mt5", ("", ""), "as SentencePiece"
    yield "umt5", umt5, "umt5", ("", ""), "as SentencePiece"
    yield "madlad", madlad, "t5", ("", ""), "as SentencePiece"
    yield "marian", marian, "marian", ("", ""), ""
    for name, (make, model_type, source, target, published) in marked.items():
        yield name, functools.partial(make, src_lang=source, tgt_lang=target), model_type, (source, target), published
        yield name + "-default", make, model_type, ("", ""), published, f"so source lines are in {source},"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--lines", action="append", default=[])
    parser.add_argument("--hostile", type=int, default=300)
    parser.add_argument("--only", default=".*", help="a regular expression")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    lines, origin = real_lines()
    if options.lines:
        lines, origin = [line for file in options.lines for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()], "the given files"
    text = repository_lines() + lines[::5]
    print(f"{len(lines)} lines: {origin}")
    check = Check(options.program, [line for line in lines if "\n" not in line], hostile_lines(options.hostile))
    with tempfile.TemporaryDirectory() as base:
        base = pathlib.Path(base)
        for name, *family in families():
            if re.fullmatch(options.only, name):
                check.family(name, base, text, *family)
        for i, tokenizer in enumerate(combinations(text) if re.fullmatch(options.only, "parts") else ()):
            tokenizer.save(str(base / "tokenizer.json"))
            check.compare(f"parts {i}", base / "tokenizer.json", lambda lines: [each.ids for each in tokenizer.encode_batch(lines)],
                          lambda rows: tokenizer.decode_batch(rows))
    print(f"{check.compared} lines compared")
    return 1 if check.failures or not check.compared else 0


if __name__ == "__main__":
    sys.exit(main())
