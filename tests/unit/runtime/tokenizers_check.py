"""Compares xfc's tokenizers with the original ones: equal ids and equal text, line by line.

    tokenizers_check.py RUNTIME_TOKENIZE [--lines FILE]...

The tokenizers are trained here, on text from this repository; each is saved the way its family saves it, and read by
RUNTIME_TOKENIZE. The lines come from --lines or from this repository; hostile ones are added.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata

try:
    import sentencepiece
    import tokenizers
    import transformers
except ImportError as missing:
    print(missing)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
FRENCH = "Où est la bibliothèque ? L'été, les élèves naïfs mangent des œufs à Noël ; ça coûte 3 € — 40 % de plus."


def repository_lines():
    """Lines of the documentation without a character three times in a row: such runs have several segmentations of the same score, among
    which versions of SentencePiece choose differently."""
    lines = [FRENCH]
    for file in sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")):
        lines += [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip() and not re.search(r"(.)\1\1", line)]
    return lines


def hostile_lines(count):
    rng = random.Random(7)
    lines = ["", " ", "   ", "\t", " a", "a ", "a  b", "  two  blanks  ", "\u00a0x\u00a0", "\u3000", "a\u200bb", "\ufeffx", "\x00", "a\x00b", "\x1c\x1d", "x\x1cy",
             "\x7f", "▁", "▁a▁", "<s>", "</s> a", "a</s>", "<unk>", "<pad>x", " <mask> ", "x <mask>y", "<s><s>", "<extra_id_0>", ">>fr<< bonjour", ">>xx<<", ">>", ">>fr",
             "a >>fr<< b", "</s>>>fr<<x", "__en__ hello", "don't we'll I'M it's 's '' 're", "l’été", "１２３ ｆｕｌｌ", "ﬁ ﬂ ½ ² ™ Å ℌ", "e\u0301e\u0323\u0301", "a\u0301\u0323\u0300" * 5,
             "한국어 텍스트", "\u1100\u1161\u11a8", "日本語のテキスト", "ไทย", "हिन्दी में", "العربية", "עברית", "😀👨‍👩‍👧‍👦🏳️‍🌈🇫🇷", "İstanbul ß ẞ Σς", "٣٤٥ ४५ Ⅻ ④", "a" * 3000, "ab " * 1000, "é" * 1000,
             "!?" * 500, " " * 500 + "x", "<" * 300, "x" + "\u0301" * 300, "\U0010ffff\ue000", "\r", "a\rb", "\x85x\u2028y", "\u0c95\u0cbf", "\u01c5\u02b0", "ĳ", "\u2581\u2581"]
    pools = ["abc  de'", "éèàç œÉ", "0123456789.,", " \t\u00a0\u2003", "的是不人", "àạ\u0301\u0323\u0308e", "<>/s_|▁", "👍🏽🇩🇪\u200d\ufe0f", "ΑΒΓαβγς", "ЖЗИжзи", "ｱｲﾞｳ㌔㈱", "'’`\"«»„“", "\u1ea0ắ\u0f73\ufb2c", "\u0600\u06dd\u0903\u0e33"]
    # Characters that are known to all Unicode versions in use here.
    known = [chr(c) for c in range(1, 0x20000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    for _ in range(count):
        lines.append("".join(rng.choice(rng.choice(pools)) if rng.random() < 0.9 else rng.choice(known) for _ in range(rng.randrange(1, 40))))
    return [line.replace("\n", " ") for line in lines]


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


def t5(folder, text):
    sentencepiece_model(folder, "spiece", text, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return transformers.T5Tokenizer.from_pretrained(str(folder))


def mbart(folder, text):
    sentencepiece_model(folder, "sentencepiece.bpe", text)
    return transformers.MBartTokenizer.from_pretrained(str(folder), src_lang="en_XX", tgt_lang="ro_RO")


def mbart50(folder, text):
    sentencepiece_model(folder, "sentencepiece.bpe", text)
    return transformers.MBart50Tokenizer.from_pretrained(str(folder), src_lang="en_XX", tgt_lang="ro_RO")


def nllb(folder, text):
    sentencepiece_model(folder, "sentencepiece.bpe", text, model_type="bpe")
    return transformers.NllbTokenizer.from_pretrained(str(folder), extra_special_tokens=["eng_Latn", "fra_Latn"], src_lang="eng_Latn", tgt_lang="fra_Latn")


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


def m2m(folder, text):
    model = sentencepiece_model(folder, "sentencepiece.bpe", text, model_type="bpe")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for i in range(3, len(pieces)):
        vocabulary[pieces.id_to_piece(i)] = len(vocabulary)
    write_json(folder / "vocab.json", vocabulary)
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]})
    return transformers.M2M100Tokenizer.from_pretrained(str(folder), src_lang="en", tgt_lang="fr")


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
    def __init__(self, program, lines):
        self.program, self.lines, self.failures, self.compared = program, lines, 0, 0

    def ours(self, vocabulary):
        out = subprocess.run([self.program, str(vocabulary)], input="".join(line + "\n" for line in self.lines).encode(), stdout=subprocess.PIPE, check=True).stdout
        out = out.decode("utf-8").split("\n")
        return [([int(id) for id in ids.split()], text) for ids, text in zip(out[0:-1:2], out[1::2])]

    def compare(self, name, vocabulary, encode, decode):
        ours, wrong = self.ours(vocabulary), 0
        assert len(ours) == len(self.lines), f"{name}: {len(ours)} answers to {len(self.lines)} lines"
        for line, (ids, text) in zip(self.lines, ours):
            theirs = encode(line)
            expected = decode(ids)
            if ids != theirs or text != expected:
                wrong += 1
                if wrong <= 5:
                    print(f"{name}: {line[:80]!r}\n  ids  {ids[:40]}\n  them {theirs[:40]}\n  text {text[:80]!r}\n  them {expected[:80]!r}")
        print(f"{name}: {len(self.lines) - wrong} of {len(self.lines)} lines are equal")
        self.failures += wrong > 0
        self.compared += len(self.lines)

    def folder(self, name, folder, out, model_type, languages, tokenizer):
        subprocess.run([self.program, str(folder), model_type, *languages, str(out)], check=True)
        self.compare(name, out / "vocab.model", lambda line: tokenizer(line)["input_ids"], lambda ids: tokenizer.decode(ids, skip_special_tokens=True))
        target = out / "target-vocab.model"
        if target.exists():
            self.compare(name + ", target", target, lambda line: tokenizer(text_target=line)["input_ids"], lambda ids: tokenizer.decode(ids, skip_special_tokens=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--lines", action="append", default=[])
    parser.add_argument("--hostile", type=int, default=300)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    text = repository_lines()
    lines = [line for file in options.lines for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()] or text[::5]
    check = Check(options.program, [line for line in lines + hostile_lines(options.hostile) if "\n" not in line])
    with tempfile.TemporaryDirectory() as base:
        base = pathlib.Path(base)
        for name, make, model_type, languages in [("bart", bart, "bart", ("", "")), ("t5", t5, "t5", ("", "")), ("mbart", mbart, "mbart", ("en_XX", "ro_RO")), ("mbart50", mbart50, "mbart", ("en_XX", "ro_RO")),
                                                  ("nllb", nllb, "m2m_100", ("eng_Latn", "fra_Latn")), ("marian", marian, "marian", ("", "")), ("m2m", m2m, "m2m_100", ("en", "fr"))]:
            if not re.search(options.only, name):
                continue
            made, saved, out = base / name, base / (name + "-saved"), base / (name + "-out")
            made.mkdir()
            out.mkdir()
            tokenizer = make(made, text)
            tokenizer.save_pretrained(str(saved))
            check.folder(name, saved, out, model_type, languages, tokenizer)
            if name in ("bart", "m2m"):
                check.folder(name + " as it was published", made, out, model_type, languages, tokenizer)
        for i, tokenizer in enumerate(combinations(text)):
            if re.search(options.only, "parts"):
                tokenizer.save(str(base / "tokenizer.json"))
                check.compare(f"parts {i}", base / "tokenizer.json", lambda line: tokenizer.encode(line).ids, lambda ids: tokenizer.decode(ids))
    print(f"{check.compared} lines compared")
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
