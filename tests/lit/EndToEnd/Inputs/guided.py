"""Makes a corpus whose word alignments are known, and measures how well attention follows them.

usage: guided.py corpus WORK                      writes PART.a, PART.b and PART.links for the parts train and valid
       guided.py compare TRANSLATOR WORK RUN RUN  fails unless attention follows the links, and more so in the first run

Targets are their sources in reverse order, so token t of n is linked with source token n - 1 - t."""
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

START, EOS, VOCABULARY = 2, 3, 40


def links(count):
    return [(count - 1 - t, t) for t in range(count)]


def corpus(work):
    generator = random.Random(7)
    for part, lines in (("train", 400), ("valid", 60)):
        rows = [generator.sample(range(4, VOCABULARY), generator.randint(2, 8)) for _ in range(lines)]
        texts = {"a": [[*row, EOS] for row in rows], "b": [row[::-1] for row in rows]}
        for name, ids in texts.items():
            with open(os.path.join(work, f"{part}.{name}"), "w") as file:
                file.writelines(" ".join(map(str, row)) + "\n" for row in ids)
        with open(os.path.join(work, f"{part}.links"), "w") as file:
            file.writelines(" ".join(f"{s}-{t}" for s, t in links(len(row))) + "\n" for row in rows)


def measure(translator, work, run):
    """The mean probability at the links, over the heads of the last layer, and how many alignments of translations are links."""
    rows = [list(map(int, line.split())) for line in open(os.path.join(work, "valid.b"))]
    width = 1 + max(map(len, rows))
    rectangle = lambda lists: ("I32", [len(lists), width], [x for ids in lists for x in ids + [0] * (width - len(ids))])  # noqa: E731
    path = lambda name: os.path.join(work, name)  # noqa: E731
    tensors.write(path("in"), {"source": rectangle([row[::-1] + [EOS] for row in rows]), "target": rectangle([[START] + row for row in rows])})
    weights = ["--weights", os.path.join(run, "last.safetensors")]
    subprocess.run([translator, "forward", *weights, "--input", path("in"), "--output", path("out"), "--attention"], check=True)
    (_, heads, queries, keys), p = tensors.read(path("out"))["attention.decoder.layers.1.cross_attn"]
    at = [p[((i * heads + h) * queries + t) * keys + s] for i, row in enumerate(rows) for s, t in links(len(row)) for h in range(heads)]
    said = subprocess.run([translator, "translate", *weights, "--format", "ids", "--input", path("valid.a"), "--alignments", "--beam", "1"],
                          check=True, capture_output=True, text=True).stdout
    right = total = 0
    for row, line in zip(rows, said.splitlines(), strict=True):
        found = [tuple(map(int, link.split("-"))) for link in line.split("\t")[-1].split()]
        expected = set(links(len(row)))
        right += sum(link in expected for link in found)
        total += len(found)
    return sum(at) / len(at), right / total


if sys.argv[1] == "corpus":
    corpus(sys.argv[2])
else:
    translator, work, guided, ordinary = sys.argv[2:]
    (p, agreement), (other_p, other_agreement) = (measure(translator, work, run) for run in (guided, ordinary))
    print(f"probability at the links {p:.3f}, without guidance {other_p:.3f}; alignments that are links {agreement:.3f}, without {other_agreement:.3f}")
    if not (p > 0.65 and p > other_p + 0.2 and agreement > 0.65 and agreement > other_agreement + 0.1):
        sys.exit("guidance is not followed")
