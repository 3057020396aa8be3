"""sacrebleu_check.py METRICS: compares xfc's BLEU, chrF and TER with sacreBLEU's on random strings of awkward characters, and the expected
utilities of lines with the means of its sentence_chrf and sentence_bleu.

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


def ours(*arguments):
    """What the program prints; a list of lines becomes a file."""
    with tempfile.TemporaryDirectory() as folder:
        words = []
        for argument in arguments:
            words.append(argument)
            if isinstance(argument, list):
                words[-1] = os.path.join(folder, str(len(words)))
                with open(words[-1], "w", encoding="utf-8", newline="\n") as file:
                    file.write("".join(text + "\n" for text in argument))
        return [float(x) for x in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()]


def check_utilities(generator, metrics):
    worst = 0.0
    for _ in range(60):
        base = line(generator)
        lines = [mutated(generator, base) if generator.random() < 0.7 else line(generator) for _ in range(generator.choice([1, 2, 6, 15]))]
        lines += [generator.choice(lines) for _ in range(generator.choice([0, 3]))] + [""] * generator.choice([0, 2])
        for name, sentence in (("chrf", sacrebleu.sentence_chrf), ("bleu", sacrebleu.sentence_bleu)):
            want = [sum(sentence(one, [other]).score for other in lines) / len(lines) for one in lines]
            got = ours(metrics, name, lines)
            worst = max([worst, *(abs(a - b) for a, b in zip(got, want, strict=True))])
            if worst > 1e-9:
                sys.exit(f"expected {name}: ours {got}, sacreBLEU {want} for\n{lines}")
    print(f"60 lists of expected utilities agree; the largest difference is {worst:.2e}")


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
    check_utilities(generator, sys.argv[1])


main()
