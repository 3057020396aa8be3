"""check_context.py text|translations FOLDER: documents whose sentences are translated given those before them.

text: writes documents for training to FOLDER, a blank line between two of them (a, b), and the same with each line behind those before it
(joined.a, joined.b). translations: FOLDER has a translator, trained on them (run, run2) with a context of 2 sentences and ' | ' between them, and one
whose max_length is 30 (short); what they say of documents is what one gets by hand. Plain Python."""
import json
import os
import random
import subprocess
import sys
import urllib.error
import urllib.request

mode, folder = sys.argv[1:]
os.chdir(folder)
generator = random.Random(5)
WORDS = ["anna", "berta", "carl", "dora", "emil", "fritz", "gustav"]
MOST = 72  # the model's max_length


def sentence(fewest=1, most=5):
    line = [generator.choice(WORDS) for _ in range(generator.randint(fewest, most))]
    return " ".join(line).capitalize() + ".", " ".join(word[::-1] for word in reversed(line)).capitalize() + "."


def write(name, lines):
    with open(name, "w") as file:
        file.writelines(line + "\n" for line in lines)


if mode == "text":
    documents = [[sentence() for _ in range(generator.randint(1, 6))] for _ in range(70)]
    for side, name in enumerate("ab"):
        write(name, [line for document in documents for line in [*(pair[side] for pair in document), ""]])
        write(f"joined.{name}", [line for document in documents
                                 for line in [*(" | ".join(pair[side] for pair in document[max(i - 2, 0):i + 1]) for i in range(len(document))), ""]])
    sys.exit()


def run(verb, *options):
    done = subprocess.run(["./translator", verb, *options], capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    return done.stdout


def tokens(texts, *side):
    """The ids of each text, without eos."""
    texts = list(texts)
    if not texts:
        return []
    write("texts", texts)
    ids = [list(map(int, line.split())) for line in run("encode", "--model", "run", "--input", "texts", *side).splitlines()]
    return ids if side else [line[:-1] for line in ids]


def by_hand(documents, count, separator, *options, most=MOST):
    """What is told of the sentences of each document, by requests with joined lines and forced beginnings; and how many had to do with less."""
    told, less = [[] for _ in documents], 0
    for i in range(max(map(len, documents))):
        now = [d for d, document in enumerate(documents) if i < len(document)]
        sources, beginnings, cuts = [], [], []
        for d in now:
            own = len(tokens([documents[d][i]])[0]) + 1
            known = [one for one in told[d] if one["translation"]]  # sentences that have a translation
            for k in range(min(count, len(known)), -1, -1):
                before = known[len(known) - k:]
                joined = separator.join([*(one["source"] for one in before), documents[d][i]])
                beginning = "".join(one["translation"] + separator for one in before).strip()
                length = len(tokens([joined])[0])
                context = len(tokens(["".join(one["source"] + separator for one in before).strip()])[0]) if k else 0
                prefix = len(tokens([beginning], "--target")[0]) if k else 0
                room = min(max(2 * (length + 1) + 10, prefix), MOST - 1) - prefix
                if k == 0 or (length + 1 <= MOST and length <= most and room >= min(2 * own + 10, MOST - 1)):
                    break
            less += k < min(count, len(known))
            sources.append(joined), beginnings.append(beginning if k else ""), cuts.append((context, prefix))
        write("hand", sources), write("beginnings", beginnings)
        answers = [json.loads(line) for line in run("translate", "--model", "run", "--input", "hand", "--prefix", "beginnings", "--json", *options).splitlines()]
        write("ids", [" ".join(map(str, one["ids"][prefix:])) for answer, (_, prefix) in zip(answers, cuts) for one in answer["hypotheses"]])
        texts = iter(run("decode", "--model", "run", "--input", "ids").splitlines())
        for d, answer, (context, prefix) in zip(now, answers, cuts, strict=True):
            for one in answer["hypotheses"]:
                one["text"] = next(texts).strip()  # of the blanks that surround separators, a sentence of a document has none
                for name in ("ids", "tokens", "token_log_probabilities"):
                    if name in one:
                        one[name] = one[name][prefix:]
                if "attention" in one:
                    one["attention"] = [row[context:] for row in one["attention"][prefix:]]
            if "source_tokens" in answer:
                answer["source_tokens"] = answer["source_tokens"][context:]
            told[d].append({**answer, "source": documents[d][i], "translation": answer["hypotheses"][0]["text"]})
            del told[d][-1]["line"]
    return told, less


def translated(lines, *options):
    write("documents", lines)
    return run("translate", "--model", "run", "--document", "--input", "documents", *options)


def sentences(text):
    return [json.loads(line)["sentences"] for line in text.splitlines()]


documents = [[sentence()[0] for _ in range(n)] for n in (1, 5, 3, 7, 2, 4)] + [[sentence(5, 9)[0] for _ in range(4)] for _ in range(2)]
lines = [" ".join(document) for document in documents]
assert [[one["source"] for one in document] for document in sentences(translated(lines, "--json"))] == documents
context = ["--document-context=2", "--document-separator= | "]
count = less = changed = 0
for given, options in ((context, ["--token-scores", "--alignments=soft", "--beam=3", "--n-best=2"]), (["--document-context=3"], ["--beam=2"]),
                       (["--document-context=1", "--document-separator=;"], ["--beam=1", "--token-scores"]), (context, ["--beam=4", "--n-best=2", "--rescore=run2"]),
                       (context, ["--model=run2", "--alternatives", "--n-best=3"]), (context, ["--coverage-penalty=0.5", "--no-repeat-ngram=4", "--n-best=2"]),
                       (context, ["--beam=4", "--beam-groups=2", "--n-best=3", "--compute-type=int8"])):
    by_itself = sentences(translated(lines, "--json", *options))
    found = sentences(translated(lines, "--json", *given, *options))
    separator = given[1].partition("=")[2] if len(given) > 1 else " "
    expected, short = by_hand(documents, int(given[0].partition("=")[2]), separator, *options)
    assert found == expected, (given, options, found, expected)
    count, less = count + sum(map(len, documents)), less + short
    changed += sum(one["translation"] != other["translation"] for a, b in zip(found, by_itself) for one, other in zip(a, b))
# A limit for the tokens of a source, which splits none of these sentences.
expected, short = by_hand(documents, 2, " | ", "--beam=2", most=40)
assert sentences(translated(lines, "--json", *context, "--beam=2", "--document-tokens=40")) == expected != sentences(translated(lines, "--json", *context, "--beam=2")) and short
# Links are among the tokens of the sentence.
for document in sentences(translated(lines, "--json", *context, "--alignments")):
    for one in document:
        own = len(tokens([one["source"]])[0])
        assert [pair[1] for pair in one["hypotheses"][0]["alignment"]] == list(range(len(one["hypotheses"][0]["ids"]))), one
        assert all(0 <= pair[0] < own for pair in one["hypotheses"][0]["alignment"]), one

# Nothing depends on the others, the batch or the threads; without a context, everything is as it was.
options = [*context, "--json", "--token-scores", "--beam=3"]
whole = translated(lines, *options)
for other in (["--threads=1"], ["--threads=4"], ["--batch-sentences=1"], ["--batch-tokens=100"]):
    assert translated(lines, *options, *other) == whole, other
for i, line in enumerate(lines):
    assert sentences(translated([line], *options)) == sentences(whole)[i:i + 1], line
assert translated(lines, "--json", "--document-context=0") == translated(lines, "--json")
drafted = [*context, "--json", "--token-scores", "--beam=1"]
assert translated(lines, *drafted, "--draft=run2") == translated(lines, *drafted)
text = translated(lines, *context)
assert text.splitlines() == [json.loads(line)["translation"] for line in translated(lines, *context, "--json").splitlines()]
write("objects", [json.dumps({"source": line, "id": i}) for i, line in enumerate(lines)])
objects = run("translate", "--model", "run", "--document", "--json-input", "--input", "objects", *options[:2], *options[3:])
assert sentences(objects) == sentences(whole)
sampled = [*context, "--json", "--sample", "--seed=5"]
assert translated(lines, *sampled, "--batch-sentences=1") == translated(lines, *sampled) != translated(lines, *sampled[2:])

# Each sentence has its protected parts itself, whatever the sentences before it have.
marked = ["Anna {x} berta. Carl {x}. Dora {x} emil {x}.", "{x} Fritz. {x} Anna <b>."]
for document in sentences(translated(marked, "--json", "--beam=8", r"--protect=\{x\}", "--protect=<b>", *context)):
    for one in document:
        for part in ("{x}", "<b>"):
            assert one["translation"].count(part) >= one["source"].count(part), document

# Pairs for training have as many of the lines before as the model takes.
pairs, fitting, shorter = list(zip(open("a").read().splitlines(), open("b").read().splitlines())), [[], []], 0
for i, pair in enumerate(pairs):
    first = i
    while pair != ("", "") and first > max(i - 2, 0) and pairs[first - 1] != ("", ""):
        first -= 1
    sources, targets = ([" | ".join(one[side] for one in pairs[k:i + 1]) for k in range(first, i + 1)] for side in (0, 1))
    fits = [max(len(source), len(target)) < 30 for source, target in zip(tokens(sources), tokens(targets, "--target"))]
    left_out = (fits + [True]).index(True)
    shorter += left_out > 0
    for texts, side in zip((sources, targets), fitting):
        side.append(texts[min(left_out, len(texts) - 1)])
assert shorter
write("fitting.a", fitting[0]), write("fitting.b", fitting[1])
for out, files in (("short-pairs", ["a", "b", "--document-context=2", "--document-separator= | "]), ("short-fitting", ["fitting.a", "fitting.b"])):
    done = subprocess.run(["./short", "prepare", "--source", files[0], "--target", files[1], *files[2:], "--vocab", "spm.model", "--keep-text", "--out", out, "--quiet"])
    assert done.returncode == 0
assert open("short-pairs", "rb").read() == open("short-fitting", "rb").read()

# A server.
class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(["./translator", "serve", "--port", "0", "--model", "run", *context, "--beam=3", *options], stderr=subprocess.PIPE, text=True)
        self.address = self.process.stderr.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path, **fields):
        request = urllib.request.Request(self.address + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        try:
            return json.loads(urllib.request.urlopen(request, timeout=60).read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def told(self, **fields):
        return [document["sentences"] for document in self.ask("/v1/translate", document=True, **fields)["translations"]]


with Server() as server:
    ask, told = server.ask, server.told
    assert told(q=lines, token_scores=True) == sentences(whole)
    for i, line in enumerate(lines):
        assert told(q=line, token_scores=True) == sentences(whole)[i:i + 1]
    assert told(q=lines, document_context=0) == sentences(translated(lines, "--json", "--beam=3"))
    assert told(q=lines, document_context=1, document_separator=";", beam=2) == sentences(
        translated(lines, "--json", "--document-context=1", "--document-separator=;", "--beam=2"))
    assert told(q=lines, sample=True, seed=5) == sentences(translated(lines, *sampled, "--beam=3"))
    (paragraphs,) = told(q="\n\n".join("\n".join(document) for document in documents))  # one document
    assert paragraphs == sentences(translated([" ".join(lines)], "--json", "--beam=3", *context))[0]
    plain = translated(lines, *context, "--beam=3").splitlines()
    assert ask("/translate", q=lines, source="en", target="fr")["translatedText"] == plain
    assert ask("/v1/translate", q=documents[1][0]) == ask("/v1/translate", q=documents[1][0], prefix="")
    assert ask("/v1/translate", q="Anna.", document_context=1) == (
        400, "document_context and document_separator are of texts with document: true, whose sentences are translated one by one")
    assert ask("/v1/translate", q="Anna.", document=True, document_context=0, document_separator="x")[0] == 400
    html = ask("/translate", q=f"<p>{lines[1]}</p>\n<p>&amp;</p>", source="en", target="fr", format="html")
    assert html["translatedText"].startswith(f"<p>{plain[1]}</p>"), html
# A batch that has less room than a sentence with its context, for a wide beam: the sentence has less of it.
with Server("--batch-tokens=48") as server:
    short = [sentence(1, 3)[0] for _ in range(6)]
    (found,) = server.told(q=" ".join(short), beam=8)
    assert [one["source"] for one in found] == short and found != sentences(translated([" ".join(short)], "--json", "--beam=8", *context))[0]
print(f"{count} sentences, {less} of them without some of their context, {changed} translated otherwise than by themselves")
