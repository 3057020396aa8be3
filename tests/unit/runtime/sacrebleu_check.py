"""sacrebleu_check.py METRICS: compares xfc's BLEU, chrF and TER with sacreBLEU's on random strings of awkward characters.

METRICS is the program built from sacrebleu_main.cpp. The exit status is 77 (skipped) if sacreBLEU is not installed."""
import os
import random
import subprocess
import sys
import tempfile

try:
    import sacrebleu
except ImportError:
    print("sacreBLEU is not installed")
    sys.exit(77)

WORDS = ["the", "cat", "Haus", "été", "l'eau", "3.14", "1,000", "2-3", "x.y", "...", "&amp;", "&lt;b&gt;", "<skipped>", "«", "»", "—", "naïve",
         "机器", "翻译", "привет", "?", "!", "(a)", "[b]", "{c}", "a/b", "a_b", "e-mail", "\u0301", "😀", "A&B", "100%", "$5", "'s", "\"q\"", "5.", ",5", "ΟΔΟΣ", "ΣΑΣ.", "Σ", "İstanbul", "ÉTÉ"]
SPACES = [" ", " ", " ", " ", "  ", "\t", "\u00a0", "\u2009", "\u3000", "\x0b", "\x1c", "\u2028", "\x85", "\u200b"]


def line(generator):
    return "".join(generator.choice(WORDS) + generator.choice(SPACES + [""]) for _ in range(generator.randint(0, 15)))


def mutated(generator, text):
    characters = list(text)
    for _ in range(generator.randint(0, 6)):
        if characters:
            at = generator.randrange(len(characters))
            if generator.random() < 0.5:
                del characters[at]
            else:
                characters.insert(at, generator.choice(".,-& 7é'"))
    return "".join(characters)


def moved(generator, text):
    """Moves runs of words, each of which TER counts as one edit."""
    words = text.split(" ")
    for _ in range(generator.randint(0, 4)):
        start = generator.randrange(len(words))
        run = [words.pop(start) for _ in range(min(generator.randint(1, 12), len(words) - start))]
        at = generator.randint(0, len(words))
        words[at:at] = run
        words = words or [""]
    return " ".join(words)


def ours(metrics, hypotheses, references):
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("h", "r")]
        for name, lines in zip(names, (hypotheses, references)):
            with open(name, "w", encoding="utf-8", newline="\n") as file:
                file.write("".join(text + "\n" for text in lines))
        return [float(x) for x in subprocess.run([metrics, *names], check=True, capture_output=True, text=True).stdout.split()]


def main():
    generator = random.Random(7)
    worst = 0.0
    for _ in range(200):
        references = [line(generator) for _ in range(generator.choice([1, 2, 5, 30]))]
        hypotheses = [moved(generator, mutated(generator, text)) if generator.random() < 0.8 else line(generator) for text in references]
        want = (sacrebleu.BLEU().corpus_score(hypotheses, [references]).score, sacrebleu.CHRF().corpus_score(hypotheses, [references]).score,
                sacrebleu.TER().corpus_score(hypotheses, [references]).score)
        got = ours(sys.argv[1], hypotheses, references)
        for a, b in zip(got, want):
            worst = max(worst, abs(a - b))
            if abs(a - b) > 1e-6:
                sys.exit(f"ours {got}, sacreBLEU {want} for\n{hypotheses}\n{references}")
    print(f"200 corpora agree; the largest difference is {worst:.2e}")


main()
