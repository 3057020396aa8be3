"""The lines on which tokenizers are compared: ten thousand of real text, and hostile ones."""
import gzip
import pathlib
import random
import re
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[3]
FRENCH = "Où est la bibliothèque ? L'été, les élèves naïfs mangent des œufs à Noël ; ça coûte 3 € — 40 % de plus."
MOST = 10000


def usable(lines):
    """The lines without a character three times in a row: such runs have several segmentations of the same score, among which versions
    of SentencePiece choose differently."""
    return [line for line in map(str.strip, lines) if line and not re.search(r"(.)\1\1", line)]


def texts_of(files, count):
    """`count` lines, equally many from each file."""
    lines = []
    for file in files:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8", errors="ignore") as text:
            lines += usable(text)[: -(-count // len(files))]
    return lines[:count]


def repository_lines():
    return [FRENCH] + usable(line for file in sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md"))
                             for line in file.read_text(encoding="utf-8").splitlines())


def real_lines(count=MOST):
    """Real text, in several languages where the machine has any, and which text that is."""
    tatoeba = sorted((ROOT.parent / "shared" / "data").glob("tatoeba-*/train.*.gz"))
    if tatoeba:
        return texts_of(tatoeba, count), "sentences of Tatoeba"
    demo = sorted((ROOT / "build" / "demo").glob("train.??"))
    if demo:
        return texts_of(demo, count), "the demo's pairs"
    # Licences name people and places of many countries. Every 7th line, so that not all are from one text.
    lines = {line for file in sorted(pathlib.Path("/usr/share/doc").glob("*/copyright"))
             for line in usable(file.read_text(encoding="utf-8", errors="ignore").splitlines())}
    lines = sorted(lines)[::7] + sorted(lines)[1::7]
    return lines[:count], "copyright notices of Debian's packages"


def hostile_lines(count):
    rng = random.Random(7)
    lines = ["", " ", "   ", "\t", " a", "a ", "a  b", "  two  blanks  ", "\u00a0x\u00a0", "\u3000", "a\u200bb", "\ufeffx", "\x00", "a\x00b", "\x1c\x1d", "x\x1cy",
             "\x7f", "▁", "▁a▁", "<s>", "</s> a", "a</s>", "<unk>", "<pad>x", " <mask> ", "x <mask>y", "<s><s>", "<extra_id_0>", ">>fr<< bonjour", ">>xx<<", ">>", ">>fr",
             "a >>fr<< b", "<2de> hello", "a <2fr>b", "</s>>>fr<<x", "__en__ hello", "don't we'll I'M it's 's '' 're", "l’été", "１２３ ｆｕｌｌ", "ﬁ ﬂ ½ ² ™ Å ℌ", "e\u0301e\u0323\u0301", "a\u0301\u0323\u0300" * 5,
             "한국어 텍스트", "\u1100\u1161\u11a8", "日本語のテキスト", "ไทย", "हिन्दी में", "العربية", "עברית", "😀👨‍👩‍👧‍👦🏳️‍🌈🇫🇷", "İstanbul ß ẞ Σς", "٣٤٥ ४५ Ⅻ ④", "a" * 3000, "ab " * 1000, "é" * 1000,
             "!?" * 500, " " * 500 + "x", "<" * 300, "x" + "\u0301" * 300, "\U0010ffff\ue000", "\r", "a\rb", "\x85x\u2028y", "\u0c95\u0cbf", "\u01c5\u02b0", "ĳ", "\u2581\u2581"]
    pools = ["abc  de'", "éèàç œÉ", "0123456789.,", " \t\u00a0\u2003", "的是不人", "àạ\u0301\u0323\u0308e", "<>/s_|▁", "👍🏽🇩🇪\u200d\ufe0f", "ΑΒΓαβγς", "ЖЗИжзи", "ｱｲﾞｳ㌔㈱", "'’`\"«»„“", "\u1ea0ắ\u0f73\ufb2c", "\u0600\u06dd\u0903\u0e33"]
    # Characters that are known to all Unicode versions in use here.
    known = [chr(c) for c in range(1, 0x20000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    for _ in range(count):
        lines.append("".join(rng.choice(rng.choice(pools)) if rng.random() < 0.9 else rng.choice(known) for _ in range(rng.randrange(1, 40))))
    return [line.replace("\n", " ") for line in lines]
