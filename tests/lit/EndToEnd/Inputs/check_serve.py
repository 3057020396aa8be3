"""check_serve.py EXECUTABLE FOLDER: `serve` answers what `translate` answers, to the byte, whatever else it is asked meanwhile.

FOLDER holds a trained model (run), another one of the same shape (run2), one of another (run-narrow, libnarrow.so), lines (a), and a packed executable (packed). The requests of Mastodon
and Weblate are those that their sources build (app/lib/translation_service/libre_translate.rb, weblate/machinery/libretranslate.py)."""
import atexit
import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

executable, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
lines = (folder / "a").read_text(encoding="utf-8").splitlines()[:120]
PATIENCE = 30  # seconds


class Server:
    def __init__(self, *arguments, program=executable):
        # Under nohup, SIGHUP would be ignored.
        self.process = subprocess.Popen([program, "serve", "--port", "0", *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                                        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        atexit.register(self.process.kill)  # whatever fails
        first = self.process.stderr.readline()
        self.port = int(re.fullmatch(r"serve: listening on http://127\.0\.0\.1:(\d+)\n", first)[1])
        self.said = []  # lines
        self.listener = threading.Thread(target=lambda: self.said.extend(iter(self.process.stderr.readline, "")), daemon=True)
        self.listener.start()

    def ask(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def post(self, path, fields, status=200, **headers):
        answer, text = self.ask("POST", path, json.dumps(fields), {"Content-Type": "application/json", **headers})
        assert answer.status == status, (answer.status, text)
        return json.loads(text)

    def raw(self, data, patience=PATIENCE):
        """What the server says to these bytes before it closes the connection, or while it does not."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience) as stream:
            stream.sendall(data)
            said = b""
            try:
                while part := stream.recv(65536):
                    said += part
            except TimeoutError:
                pass
            return said

    def metric(self, name):
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", self.ask("GET", "/metrics")[1], re.MULTILINE)
        assert values, name
        return sum(map(float, values))

    def until(self, what, done):
        end = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    def end(self, number=signal.SIGTERM):
        """Ends the server by a signal, and returns what it said since the beginning."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.listener.join(PATIENCE)
        said = "".join(self.said)
        assert self.process.returncode == 0, (self.process.returncode, said)
        return said


def translate(given, *options, model="run", others=()):
    """What `translate` answers."""
    text = "".join(line + "\n" for line in given)
    found = subprocess.run([executable, "translate", "--quiet", *(word for one in (model, *others) for word in ("--model", folder / one)), "--json", *map(str, options)],
                           input=text, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in found.splitlines()]


KINDS = [{}, {"beam": 1}, {"beam": 4, "n_best": 3, "length_penalty": 1.5, "renormalize": True}, {"sample": True, "seed": 7, "n_best": 2, "top_k": 5},
         {"sample": True, "seed": 8, "temperature": 1.5}, {"max_length": 4, "at_max_length": "cut", "no_repeat_ngram": 2}, {"compute_type": "int8"},
         {"token_scores": True, "alignments": "soft", "beam": 3, "n_best": 2}, {"alignments": "hard", "replace_unknowns": True, "token_scores": True},
         {"coverage_penalty": 4, "beam": 4, "n_best": 2}, {"alternatives": True, "n_best": 4, "beam": 2, "min_alternative_probability": 0.01},
         {"sample": True, "mbr": "chrf", "samples": 7, "n_best": 2, "seed": 3}, {"sample": True, "mbr": "bleu", "samples": 5, "alignments": "hard"},
         {"max_length": 3, "at_max_length": "cut", "token_scores": True, "alignments": "soft"}]


def flags(options):
    return [f"--{name.replace('_', '-')}={json.dumps(value).strip(chr(34))}" for name, value in options.items()]


def streamed(server, fields):
    """The events of a streamed answer: (event, data)."""
    text = server.ask("POST", "/v1/translate", json.dumps({**fields, "stream": True}), {"Content-Type": "application/json"})[1]
    events = []
    for block in text.split("\n\n")[:-1]:
        event = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append((event.get("event", "message"), json.loads(event["data"])))
    assert events, text
    return events


def check_answers(server):
    """Requests of all kinds, alone and as lists, at the same time."""
    expected = {json.dumps(kind): translate(lines, *flags(kind)) for kind in KINDS}

    def same(found, one):
        assert found == {name: value for name, value in one.items() if name not in ("line", "source")}, (found, one)

    def alone(number, kind):
        sampled = kind.get("sample")  # its random numbers are those of the line's number in the request
        one = translate([lines[number]], *flags(kind))[0] if sampled else expected[json.dumps(kind)][number]
        same(server.post("/v1/translate", {"q": lines[number], **kind})["translations"][0], one)

    def together(kind):
        for found, one in zip(server.post("/v1/translate", {"q": lines, **kind})["translations"], expected[json.dumps(kind)], strict=True):
            same(found, one)

    def stream(kind):
        events = streamed(server, {"q": lines[:8], **kind})
        assert events[-1] == ("done", {}), events[-1]
        for index, one in enumerate(expected[json.dumps(kind)][:8]):
            mine = [data for event, data in events[:-1] if data["index"] == index]
            last = mine.pop()
            same({name: value for name, value in last.items() if name != "index"}, one)
            ids = [token for data in mine for token in data["ids"]]
            assert one["hypotheses"][0]["ids"][:len(ids)] == ids
            assert one["translation"].startswith("".join(data["text"] for data in mine))
            if kind.get("beam") == 1:  # every token that another follows comes by itself
                assert len(mine) >= len(one["hypotheses"][0]["ids"]) - 1 and all(len(data["ids"]) == 1 for data in mine)

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(alone, number, kind) for kind in KINDS for number in range(0, 3 if kind.get("sample") else 40)]
        asked += [pool.submit(together, kind) for kind in KINDS] + [pool.submit(stream, kind) for kind in KINDS]
        for one in asked:
            one.result()
    prefixes = ["", "su", "a"]
    (folder / "prefixes").write_text("".join(prefix + "\n" for prefix in prefixes))
    forced = translate(lines[:3], "--prefix", folder / "prefixes")
    for found, one in zip(server.post("/v1/translate", {"q": lines[:3], "prefix": prefixes})["translations"], forced, strict=True):
        same(found, one)
    # Words that other translations have, and one of two of them.
    words = [one["translation"].split() for one in expected["{}"]]
    words = sorted({word for some in words for word in some if word.isalpha()})
    wanted = [[], [words[0]], [words[1], [words[2], words[3]]], [[words[4], words[5]], words[6], words[6]]]
    (folder / "constraints").write_text("".join(
        "\t".join(choice if isinstance(choice, str) else " || ".join(choice) for choice in choices) + "\n" for choices in wanted))
    for options in ({}, {"beam": 1}, {"beam": 8, "n_best": 3}):
        forced = translate(lines[:4], "--constraints", folder / "constraints", *flags(options))
        for found, one in zip(server.post("/v1/translate", {"q": lines[:4], "constraints": wanted, **options})["translations"], forced, strict=True):
            same(found, one)
        for line, choices, one in zip(lines, wanted, forced):  # a text by itself has its own list
            same(server.post("/v1/translate", {"q": line, "constraints": choices, **options})["translations"][0], one)
            for hypothesis in one["hypotheses"]:
                assert all(any(word in hypothesis["text"] for word in ([choice] if isinstance(choice, str) else choice)) for choice in choices), (choices, one)
        assert forced[0] == translate(lines[:1], *flags(options))[0]
        objects = [json.dumps({"source": line, "constraints": choices}) for line, choices in zip(lines, wanted)]
        assert [one["hypotheses"] for one in translate(objects, "--json-input", *flags(options))] == [one["hypotheses"] for one in forced]
        events = streamed(server, {"q": lines[:4], "constraints": wanted, **options})
        assert [data["hypotheses"] for _, data in sorted(events[:-1], key=lambda event: event[1]["index"]) if "hypotheses" in data] == [
            one["hypotheses"] for one in forced]
    print(f"{len(asked)} requests got what translate answers")


def check_libretranslate(server):
    best = [one["translation"] for one in translate(lines)]
    # Mastodon: TranslationService::LibreTranslate#languages and #translate.
    answer, text = server.ask("GET", "/languages", headers={"Content-Type": "application/json"})
    assert answer.status == 200 and json.loads(text) == [{"code": "en", "name": "English", "targets": ["fr"]}], text
    texts = [f"<p>{lines[0]}<br />{lines[1]}</p>", f"{lines[2]} <span translate=\"no\">:{lines[3]}:</span>", ""]
    found = server.post("/translate", {"q": texts, "source": "en", "target": "fr", "format": "html", "api_key": ""})
    assert found == {"translatedText": [f"<p>{best[0]}<br />{best[1]}</p>", f"{best[2]} <span translate=\"no\">:{lines[3]}:</span>", ""]}, found
    # Weblate: LibreTranslateTranslation.download_languages and .download_translations.
    answer, text = server.ask("GET", "/languages")
    assert {language["code"] for language in json.loads(text)} == {"en"}
    found = server.post("/translate", {"api_key": "", "q": lines[4], "source": "en", "target": "fr"})
    assert found["translatedText"] == best[4], found
    # A form, several lines, alternatives.
    form = urllib.parse.urlencode({"q": f"{lines[5]}\r\n\n{lines[6]}\n", "source": "en", "target": "fr", "alternatives": "2"})
    answer, text = server.ask("POST", "/translate", form, {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
    others = [[one["text"] for one in entry["hypotheses"]] for entry in translate(lines[5:7], "--n-best", 3)]
    assert json.loads(text)["translatedText"] == f"{best[5]}\r\n\n{best[6]}\n", text
    assert json.loads(text)["alternatives"] == [f"{others[0][k]}\r\n\n{others[1][k]}\n" for k in (1, 2)], text
    answer, _ = server.ask("OPTIONS", "/translate")
    assert answer.status == 204 and answer.headers["Access-Control-Allow-Origin"] == "*"
    settings = json.loads(server.ask("GET", "/frontend/settings")[1])
    assert settings["language"]["target"] == {"code": "fr", "name": "French"} and settings["keyRequired"] is False
    assert json.loads(server.ask("GET", "/health")[1]) == {"status": "ok"}
    assert "<form" in server.ask("GET", "/")[1]
    print("LibreTranslate's clients are served")


def check_documents(server):
    """Paragraphs: each sentence is translated by itself, what is between them stays, and what is too long for the model is cut where it can be."""
    first, second, third = (line.capitalize() for line in lines[:3])
    sentences = [f"{first}.", f"{second}!", f"{third} Dr. Emil?", lines[3]]
    best = [one["translation"] for one in translate(sentences)]
    text = "{}  {}\t{}\r\n\n  {}\n".format(*sentences)
    whole = "{}  {}\t{}\r\n\n  {}\n".format(*best)
    assert server.post("/translate", {"q": text, "source": "en", "target": "fr"}) == {"translatedText": whole}
    (found,) = server.post("/v1/translate", {"q": text, "document": True, "n_best": 2})["translations"]
    assert found["translation"] == whole and [one["source"] for one in found["sentences"]] == sentences, found
    expected = [{name: value for name, value in one.items() if name != "line"} for one in translate(sentences, "--n-best", 2)]
    assert found["sentences"] == expected, (found, expected)
    html = server.post("/translate", {"q": f"<p>{sentences[0]} {sentences[1]}</p>", "source": "en", "target": "fr", "format": "html"})["translatedText"]
    assert html == f"<p>{best[0]} {best[1]}</p>", html
    # A line of 1,500 words has no end of a sentence, and more tokens than the model reads: it is cut at blanks.
    words = (" ".join(lines) + " ") * 12
    words = " ".join(words.split()[:1500])
    (found,) = server.post("/v1/translate", {"q": words, "document": True, "beam": 1})["translations"]
    parts = [one["source"] for one in found["sentences"]]
    assert " ".join(parts) == words and len(parts) > 4, len(parts)
    assert [one["hypotheses"] for one in found["sentences"]] == [one["hypotheses"] for one in translate(parts, "--beam", 1)]
    # `translate` does the same with lines, which end with a line feed.
    run = lambda *options, given=text: subprocess.run([executable, "translate", "--quiet", "--model", folder / "run", "--document", *options], input=given.encode(),
                                                      capture_output=True, check=True).stdout.decode()
    plain = whole.replace("\r", "")
    assert run() == plain and run("--beam=1", given=words + "\n") == found["translation"] + "\n"
    (one, _, other) = map(json.loads, run("--json", "--n-best=2").splitlines())
    assert one["sentences"] + other["sentences"] == expected and one["source"] == text.split("\r")[0] and other["line"] == 3, one
    assert one["translation"] + "\n\n" + other["translation"] + "\n" == plain
    (one,) = map(json.loads, run("--json-input", given=json.dumps({"id": 7, "source": text.split("\n")[0]}) + "\n").splitlines())
    assert one["id"] == 7 and one["translation"] == whole.split("\n")[0] and len(one["sentences"]) == 3, one
    short = json.loads(run("--json", "--document-tokens=8", given=lines[0] + "\n"))["sentences"]
    assert " ".join(one["source"] for one in short) == lines[0] and len(short) > 1, short
    print("the sentences of documents are translated one by one")


def check_refusals(server):
    right = {"q": "x", "source": "en", "target": "fr"}
    for path, fields, status, message in [
            ("/translate", {"q": "x", "target": "fr"}, 400, "missing source"),
            ("/translate", {"source": "en", "target": "fr"}, 400, "missing q"),
            ("/translate", {**right, "q": 5}, 400, "q: expected a string or a list"),
            ("/translate", {**right, "source": "auto"}, 400, "auto is not supported"),
            ("/translate", {**right, "source": "xx"}, 400, "xx is not supported as source"),
            ("/translate", {**right, "target": "en"}, 400, "en is not supported as target"),
            ("/translate", {**right, "format": "pdf"}, 400, "format is not supported"),
            ("/translate", {**right, "alternatives": 1000}, 400, "alternatives: at most 9"),
            ("/translate", {**right, "alternatives": -1}, 400, "alternatives: expected"),
            ("/translate", {**right, "q": "x\n" * 2000}, 413, "2000 sentences"),
            ("/v1/translate", {"q": "x", "bean": 3}, 400, "did you mean 'beam'?"),
            ("/v1/translate", {"q": "x", "beam": 0}, 400, "beam"),
            ("/v1/translate", {"q": "x", "n_best": 9, "beam": 2}, 400, "n_best is larger than beam"),
            ("/v1/translate", {"q": "x", "mbr": "chrf", "samples": 300}, 400, "samples: at most 256 in a request, but 300 were given"),
            ("/v1/translate", {"q": "x", "beam": 60000}, 400, "more than all of the room"),
            ("/v1/translate", {"q": "x", "top_p": 7}, 400, "top_p"),
            ("/v1/translate", {"q": "x", "alignments": "sof"}, 400, "alignments: unknown 'sof'; did you mean 'soft'? known: none, hard, soft"),
            ("/v1/translate", {"q": "x", "alignments": True}, 400, "known: none, hard, soft"),
            ("/v1/translate", {"q": "x", "alignments": {}}, 400, "alignments: expected"),
            ("/v1/translate", {"q": "x", "token_scores": "x"}, 400, "token_scores"),
            ("/v1/translate", {"q": "x", "replace_unknowns": "x"}, 400, "replace_unknowns"),
            ("/v1/translate", {"q": "x", "suppress": {}}, 400, "suppress: expected"),
            ("/v1/translate", {"q": "x", "batch_tokens": 7}, 400, "batch_tokens: is the server's"),
            ("/v1/translate", {"q": "x\ny"}, 400, "a text is one line"),
            ("/v1/translate", {"q": "Xx. Yy. " * 1000, "document": True}, 413, "2000 sentences"),
            ("/v1/translate", {"q": "x", "document": 1}, 400, "document: expected true or false"),
            ("/v1/translate", {"q": "x", "document": True, "stream": True}, 400, "document excludes stream"),
            ("/v1/translate", {"q": "x", "document": True, "prefix": "y"}, 400, "document excludes prefix"),
            ("/v1/translate", {"q": "x", "document": True, "constraints": ["y"]}, 400, "document excludes constraints"),
            ("/v1/translate", {"q": "x", "protect": "("}, 400, "protect: character 2 of '('"),
            ("/v1/translate", {"q": "x", "protect": "y", "sample": True}, 400, "protect excludes sample"),
            ("/v1/translate", {"q": "x", "beam": 1, "min_length": 600, "max_length": 700, "alignments": "hard"}, 400,
             "in its translation; alignments takes at most 512"),
            ("/v1/translate", {"q": "x", "beam": 65, "n_best": 65, "alignments": "hard"}, 400, "alignments takes at most 64 translations of a line"),
            ("/v1/translate", {"q": lines[:60], "beam": 40, "n_best": 40, "alignments": "soft"}, 400, "give fewer lines, or a smaller n_best"),
            ("/v1/translate", {"q": ["x", "y"], "prefix": "x"}, 400, "prefix: expected one for each of the 2"),
            ("/v1/translate", {"q": ["x", "y"], "constraints": ["x"]}, 400, "constraints: expected a list for each of the 2"),
            ("/v1/translate", {"q": ["x"], "constraints": ["x"]}, 400, "constraints: expected a list of phrases"),
            ("/v1/translate", {"q": "x", "constraints": "x"}, 400, "constraints: expected a list of phrases"),
            ("/v1/translate", {"q": "x", "constraints": ["a"] * 65}, 400, "constraints: at most 64 for a line, but 65 were given"),
            ("/v1/translate", {"q": "x", "constraints": [[]]}, 400, "line 1 of constraints: constraint 1 has no phrase"),
            ("/v1/translate", {"q": "x", "constraints": [["a", ""]]}, 400, "line 1 of constraints: constraint 1: one of its phrases is empty"),
            ("/v1/translate", {"q": "x", "constraints": ["a", "\u20ac"]}, 400, "constraint 2: '\u20ac' has a part that the vocabulary does not know"),
            ("/v1/translate", {"q": "x", "constraints": [lines[0]], "max_length": 1}, 400, "give a larger max_length"),
            ("/v1/translate", {"q": "x", "beam": 1, "no_repeat_ngram": 1, "min_length": 200, "max_length": 300}, 400,
             "give fewer suppress or bad_sequences, or a larger no_repeat_ngram"),
            ("/v1/translate", {"q": ["", "x"], "beam": 1, "no_repeat_ngram": 1, "min_length": 200, "max_length": 300}, 400, "line 2, position "),
            ("/v1/translate", {"q": ["", "x"], "constraints": [[], [lines[0]]], "max_length": 1}, 400, "line 2: the constraints need "),
            ("/v1/translate", {"q": ["x", ""], "constraints": [[], ["a", ""]]}, 400, "line 2 of constraints: constraint 2 is empty"),
            ("/v1/translate", {"q": "x", "constraints": ["a"], "sample": True}, 400, "sample does not go with constraints"),
            ("/v1/translate", [], 400, "not a JSON object"),
            ("/nowhere", right, 404, "nothing at '/nowhere'"),
            ("/health", right, 405, "expects GET")]:
        error = server.post(path, fields, status)["error"]
        assert message in error, (path, fields, error)
    for body, kind, status, message in [(b'{"q": "\xff"}', "application/json", 400, "not JSON"), (b'{"q":', "application/json", 400, "not JSON"),
                                        (b"q=%ff&source=en&target=fr", "application/x-www-form-urlencoded", 400, "q: byte 1 is not valid UTF-8"),
                                        (b"[" * 100000, "application/json", 400, "nested"), (b"x", "text/plain", 415, "expected application/json")]:
        answer, text = server.ask("POST", "/translate", body, {"Content-Type": kind})
        assert answer.status == status and message in json.loads(text)["error"], (body[:20], answer.status, text)
    for bytes_, status in [(b"nonsense\r\n\r\n", 400), (b"\x00\x01\x02\r\n\r\n", 400), (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 400),
                           (b"POST /translate HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400), (b"DELETE / HTTP/1.0\r\n\r\n", 405)]:
        said = server.raw(bytes_)
        assert said.split()[1:2] == [b"%d" % status], (bytes_[:30], said)
    half = b'POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"q"'
    assert server.raw(half, 0.5) == b""
    large = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\nConnection: close\r\n\r\n" + b"x" * 8000000
    assert server.raw(large).split()[1] == b"413"
    print("what is wrong is refused with its status and a reason")


def check_details():
    """The options of `serve` are the defaults of requests; what is told beside texts has no place in LibreTranslate's answers. Lines of ids
    have no words."""
    server = Server("--model", folder / "run", "--alignments", "--token-scores")
    try:
        found = server.post("/v1/translate", {"q": lines[0]})["translations"][0]
        assert found["hypotheses"] == translate(lines[:1], "--alignments", "--token-scores")[0]["hypotheses"]
        found = server.post("/v1/translate", {"q": lines[0], "alignments": "none", "token_scores": False})["translations"][0]
        assert found["hypotheses"] == translate(lines[:1])[0]["hypotheses"]
        assert server.post("/translate", {"q": lines[0], "source": "a", "target": "b"}) == {"translatedText": translate(lines[:1])[0]["translation"]}
        # Unknown characters come through, here from a forced beginning.
        odd = "su \u03be\u03bf"
        found = server.post("/v1/translate", {"q": odd, "prefix": "\u03c8", "replace_unknowns": True, "stream": False})["translations"][0]
        (folder / "odd").write_text("\u03c8\n", encoding="utf-8")
        assert found["hypotheses"] == translate([odd], "--prefix", folder / "odd", "--replace-unknowns", "--alignments", "--token-scores")[0]["hypotheses"]
        ids, pieces = found["hypotheses"][0]["ids"], found["hypotheses"][0]["tokens"]
        assert "<unk>" in pieces and "\u2047" not in found["translation"], found
        events = streamed(server, {"q": odd, "prefix": "\u03c8", "replace_unknowns": True, "beam": 1})
        first = "".join(data["text"] for event, data in events[:-2])
        assert events[-1] == ("done", {}) and events[-2][1]["translation"].startswith(first) and "\u2047" not in first, events
        assert len(ids) > 1
    finally:
        server.end()
    server = Server("--model", folder / "run", "--format", "ids")
    try:
        error = server.post("/v1/translate", {"q": "5 3", "replace_unknowns": True}, 400)["error"]
        assert error.startswith("replace_unknowns excludes format ids"), error
        assert "tokens" in server.post("/v1/translate", {"q": "5 3", "token_scores": True})["translations"][0]["hypotheses"][0]
    finally:
        server.end()
    print("details are told where there is a place for them")


def check_unknowns(server):
    """Replacing unknown tokens refuses nothing: what would take too long keeps them, and long documents do not."""
    odd, unknown = "su \u03be\u03bf", "\u03c8"
    (folder / "odd").write_text(unknown + "\n", encoding="utf-8")

    def texts(line, *options):
        return [one["text"] for one in translate([line], "--prefix", folder / "odd", *options)[0]["hypotheses"]]

    options = {"beam": 1, "max_length": 3}
    found = server.post("/v1/translate", {"q": [odd] * 1100, "prefix": [unknown] * 1100, "replace_unknowns": True, **options})["translations"]
    replaced = texts(odd, "--replace-unknowns", *flags(options))
    assert replaced != texts(odd, *flags(options))
    assert [[hypothesis["text"] for hypothesis in one["hypotheses"]] for one in found] == [replaced] * 1100
    long = "su " * 560
    found = server.post("/v1/translate", {"q": [odd, long], "prefix": [unknown] * 2, "replace_unknowns": True, **options})["translations"]
    assert [one["text"] for one in found[0]["hypotheses"]] == replaced
    assert [one["text"] for one in found[1]["hypotheses"]] == texts(long, *flags(options)), found[1]
    many = {"beam": 70, "n_best": 70}
    found = server.post("/v1/translate", {"q": odd, "prefix": unknown, "replace_unknowns": True, **many})["translations"][0]
    assert [one["text"] for one in found["hypotheses"]] == texts(odd, "--replace-unknowns", *flags(many))[:64] + texts(odd, *flags(many))[64:]
    print("unknown tokens of long documents are replaced")


def check_page(server):
    """The page shows translations, and with a check in its box how tokens attend to each other. Node.js runs its script."""
    if not shutil.which("node"):
        print("the page is not run: there is no Node.js", file=sys.stderr)
        return
    text, count = f"{lines[0]}\n\n{lines[3]}", 7
    script = pathlib.Path(__file__).with_name("page.js")
    said = subprocess.run(["node", script, f"http://127.0.0.1:{server.port}/", text, str(count - 1)], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    shown = json.loads(said.stdout)
    found = translate([lines[0], lines[3]], "--alignments=soft", "--n-best", count, "--beam", count)
    assert shown["output"] == "\n\n".join(one["translation"] for one in found), shown
    assert len(shown["maps"]) == 2
    for one, choices in zip(found, shown["maps"], strict=True):
        for hypothesis, (label, table) in zip(one["hypotheses"], choices, strict=True):
            assert label.strip() == hypothesis["text"].strip(), (label, hypothesis)
            rows = [["", *one["source_tokens"]]]
            for token, weights in zip([*hypothesis["tokens"], "(end)"], hypothesis["attention"], strict=True):
                rows.append([token, *(f"{token} \u2190 {column}: {weight:.3f}" for column, weight in zip(one["source_tokens"], weights, strict=True))])
            assert len(table) == len(rows)
            for row, wanted in zip(table, rows):
                assert [cell.rsplit(":", 1)[0] for cell in row] == [cell.rsplit(":", 1)[0] for cell in wanted], (row, wanted)
                for cell, other in zip(row[1:], wanted[1:]):  # Python and JavaScript round halves differently
                    assert wanted is rows[0] or abs(float(cell.rsplit(": ", 1)[1]) - float(other.rsplit(": ", 1)[1])) < 0.0011, (cell, other)
    print("the page draws what tokens attend to")


def check_limits():
    (folder / "keys").write_text("secret\n\nother\n")
    server = Server("--model", folder / "run", "--queue", 6, "--api-keys", folder / "keys", "--timeout", 2, "--idle", 1, "--max-request", 3000,
                    "--batch-sentences", 2, "--max-length", 25)
    try:
        error = server.post("/translate", {"q": lines[0], "source": "a", "target": "b"}, 403)["error"]
        assert "needs an API key" in error
        assert server.post("/translate", {"q": lines[0], "source": "a", "target": "b", "api_key": "secre"}, 403)["error"] == "Invalid API key"
        best = translate(lines[:1], "--max-length", 25)[0]["translation"]
        assert server.post("/translate", {"q": lines[0], "source": "a", "target": "b", "api_key": "other"})["translatedText"] == best
        assert server.post("/v1/translate", {"q": lines[0]}, Authorization="Bearer secret")["translations"][0]["translation"] == best
        assert server.ask("POST", "/translate", "x" * 3001)[0].status == 413

        # More than may wait: those that find no room are told to come again, and get their answer then.
        def insist(number):
            for refused in range(10000):
                answer, text = server.ask("POST", "/v1/translate", json.dumps({"q": lines[number:number + 3], "beam": 8}), {"Authorization": "Bearer other"})
                if answer.status != 429:
                    assert answer.status == 200, text
                    return refused, json.loads(text)["translations"]
                assert answer.headers["Retry-After"] == "1"
                time.sleep(0.002)
        expected = translate(lines, "--beam", 8, "--max-length", 25)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(insist, range(40)))
        assert sum(refused for refused, _ in answers) > 0
        for number, (_, found) in enumerate(answers):
            assert [one["hypotheses"] for one in found] == [one["hypotheses"] for one in expected[number:number + 3]]
        assert server.metric("xfc_queued_lines") == 0

        # Connections on which nothing moves are closed, and hold nobody up meanwhile.
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
        for one in idle[::2]:
            one.sendall(b"POST /translate HTTP/1.1\r\nContent-Le")
        assert server.ask("GET", "/health")[0].status == 200
        for one in idle:
            one.settimeout(PATIENCE)
            assert one.recv(1) in (b"", b"H")
            one.close()
    finally:
        server.end()
    print("keys, the queue, sizes and idle connections are limited")


def check_idle():
    """Ten thousand connections on which nothing comes, or half a request, as far as descriptors allow, take memory but no time, and leave."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = before[1] if before[1] != resource.RLIM_INFINITY else 20000
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 20000), before[1]))
    server = Server("--model", folder / "run")
    count = min(10000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)

    def held(what):
        with open(f"/proc/{server.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(what)) * 1024

    def answers():
        begin = time.monotonic()
        answer = server.post("/v1/translate", {"q": lines[0]})
        assert time.monotonic() - begin < 5, time.monotonic() - begin
        return answer

    expected, memory, descriptors = answers(), held("VmRSS:"), len(os.listdir(f"/proc/{server.process.pid}/fd"))
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
    for half in idle[::2]:
        half.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Le")
    assert answers() == expected
    assert held("VmRSS:") - memory < count * 10000, (memory, held("VmRSS:"))
    for connection in idle:
        connection.close()
    server.until("the connections are closed", lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) <= descriptors + 1)
    assert answers() == expected
    server.end()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def check_leaving(server):
    """Whoever goes frees his places: thousands of long lines would take minutes."""
    before = server.metric("xfc_sentences_total")
    body = json.dumps({"q": [" ".join(lines[:40])[:400]] * 200, "beam": 40, "min_length": 800, "max_length": 1000}).encode()
    head = b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    streams = []
    for _ in range(4):
        streams.append(socket.create_connection(("127.0.0.1", server.port)))
        streams[-1].sendall(head + body)
    server.until("the requests are read", lambda: server.metric("xfc_queued_lines") == 800)
    server.until("lines run", lambda: server.metric("xfc_running_sentences") > 0)
    for stream in streams:
        stream.close()
    server.until("the lines of those who left are forgotten", lambda: server.metric("xfc_queued_lines") == 0)
    server.until("their places are free", lambda: server.metric("xfc_running_sentences") + server.metric("xfc_waiting_sentences") == 0)
    assert server.metric("xfc_sentences_total") - before < 400
    print("those who leave free their places")


def attended(server):
    """A request for about a million pairs of tokens, whose lines all end in the same step."""
    fields = {"q": " ".join(" ".join(lines).split()[:30]), "alignments": "soft", "beam": 1, "min_length": 60, "max_length": 60, "at_max_length": "cut"}
    (one,) = server.post("/v1/translate", fields)["translations"]
    (hypothesis,) = one["hypotheses"]
    assert len(hypothesis["attention"]) == 60, len(hypothesis["attention"])
    return fields | {"q": [fields["q"]] * (1000000 // (60 * len(one["source_tokens"])))}


def check_unread():
    """Whoever goes waits for no more attention, and takes no more from others; nor can answers that nobody reads take any amount of memory."""
    server, unread = Server("--model", folder / "run", "--batch-tokens", 20000, "--timeout", 300), []
    try:
        fields = attended(server)
        count = len(fields["q"])

        def send(fields):
            body = json.dumps(fields).encode()
            stream = socket.socket()
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # or the system would take in what nobody reads
            stream.connect(("127.0.0.1", server.port))
            stream.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            stream.settimeout(4 * PATIENCE)
            return stream

        before = server.metric("xfc_sentences_total")
        with send(fields | {"stream": True}) as stream:
            said = b""
            while b'"translation"' not in said:
                said += stream.recv(4096)
        server.until("the lines of who left are forgotten", lambda: server.metric("xfc_queued_lines") == 0)
        server.until("nothing runs", lambda: server.metric("xfc_running_sentences") + server.metric("xfc_waiting_sentences") == 0)
        time.sleep(0.5)
        told = server.metric("xfc_sentences_total") - before
        assert 0 < told < count, (told, count)

        for _ in range(4):
            unread.append(send(fields))
            assert unread[-1].recv(12) == b"HTTP/1.1 200"  # it is answered
        answer, text = server.ask("POST", "/v1/translate", json.dumps(fields), {"Content-Type": "application/json"})
        assert answer.status == 503 and answer.headers["Retry-After"] == "1" and "no room for more alignments" in text, (answer.status, text[:200])
        assert len(server.post("/v1/translate", fields | {"alignments": "hard"})["translations"]) == count  # links take no room
        for stream in unread:
            stream.close()
        server.until("there is room again", lambda: server.ask("POST", "/v1/translate", json.dumps(fields), {"Content-Type": "application/json"})[0].status == 200)
    finally:
        for stream in unread:
            stream.close()
        server.end()
    print("alignments that nobody reads are bounded")


def check_reload():
    """SIGHUP: no request is lost, and answers change from the old model's to the new one's."""
    live = folder / "live"
    shutil.copytree(folder / "run", live, dirs_exist_ok=True)
    server = Server("--model", f"en-fr={live}")
    try:
        old, new = (translate(lines, model=model) for model in ("run", "run2"))
        differ = [n for n in range(len(lines)) if old[n]["hypotheses"] != new[n]["hypotheses"]]
        assert len(differ) > 20
        stop, seen = [], set()

        def ask(number):
            count = 0
            while not stop:
                n = differ[(number + count) % len(differ)]
                found = server.post("/v1/translate", {"q": lines[n]})["translations"][0]["hypotheses"]
                which = [found == one[n]["hypotheses"] for one in (old, new)]
                assert any(which), (lines[n], found)
                seen.add(which.index(True))
                count += 1
            return count
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(ask, 7 * number) for number in range(8)]
            try:
                time.sleep(0.2)
                for name in ("best.safetensors", "last.safetensors"):
                    if (folder / "run2" / name).exists():
                        shutil.copy(folder / "run2" / name, live / "copy")
                        os.replace(live / "copy", live / name)
                server.process.send_signal(signal.SIGHUP)
                server.until("the new model answers", lambda: 1 in seen)
                (live / "broken").write_bytes(b"not weights")
                for name in ("best.safetensors", "last.safetensors"):
                    shutil.copy(live / "broken", live / "copy")
                    os.replace(live / "copy", live / name)
                server.process.send_signal(signal.SIGHUP)
                server.until("broken weights are refused", lambda: any("was not loaded again" in line for line in server.said))
            finally:
                stop.append(True)
            answered = sum(one.result() for one in asking)
        assert seen == {0, 1}, seen
        assert server.post("/v1/translate", {"q": lines[differ[0]]})["translations"][0]["hypotheses"] == new[differ[0]]["hypotheses"]
    finally:
        said = server.end()
    assert "loaded en-fr again" in said and "not a valid safetensors file" in said, said
    assert answered > 20
    print("no request is lost while weights are replaced")


def check_end(server):
    """SIGTERM: what was asked before is answered, and the server ends; signals that ask for a save, or are of a failure to write, change nothing."""
    asking = lines[:60]
    for number in (signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):
        server.process.send_signal(number)
    expected = translate(asking, "--beam", 12)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.post, "/v1/translate", {"q": asking, "beam": 12}) for _ in range(8)]
        server.until("all are asked", lambda: server.metric("xfc_queued_lines") == 8 * len(asking))
        said = server.end()
        for one in asked:
            assert [found["hypotheses"] for found in one.result()["translations"]] == [entry["hypotheses"] for entry in expected]
    assert said.splitlines() == ["serve: ending: answers what was asked", "serve: stopped"], said
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
        raise AssertionError("somebody still listens")
    except ConnectionRefusedError:
        pass
    print("what was asked before the end is answered")


def check_several():
    """Directions of one executable, some of them of ensembles, one of which has a model of another architecture; and a packed executable."""
    library = folder / "libnarrow.so"
    server = Server("--model", f"en-fr={folder / 'run'}", f"en-de={folder / 'run2'}", f"en-it={folder / 'packed'}", f"en-it={folder / 'run2'}", f"en-de={folder / 'run-narrow'}",
                    "--ensemble-library", "self", library, "--threads", 1)
    try:
        assert json.loads(server.ask("GET", "/languages")[1]) == [{"code": "en", "name": "English", "targets": ["fr", "de", "it"]}]
        for target, given, *members in (("fr", [], "run"), ("de", ["--ensemble-library", library], "run2", "run-narrow"), ("it", [], "run", "run2")):  # packed has the weights of run
            found = server.post("/translate", {"q": lines[:20], "source": "en", "target": target})["translatedText"]
            assert found == [one["translation"] for one in translate(lines[:20], *given, model=members[0], others=members[1:])]
            assert len(members) == 1 or found != [one["translation"] for one in translate(lines[:20], model=members[0])], members
        server.process.send_signal(signal.SIGHUP)  # loads the models again, by the code that is there
        server.until("all are loaded again", lambda: sum(" again" in line for line in server.said) == 3)
        assert server.post("/translate", {"q": lines[:20], "source": "en", "target": "it"})["translatedText"] == found
        assert "missing source" in server.post("/v1/translate", {"q": "x"}, 400)["error"]
    finally:
        server.end(signal.SIGINT)
    refused = subprocess.run([executable, "serve", "--model", f"en-fr={folder / 'run'}", f"en-de={folder / 'run2'}", "--ensemble-library", library], capture_output=True, text=True)
    assert refused.returncode == 1 and "expected one library for each further --model of an ensemble, of which there are 0, but 1 were given" in refused.stderr, refused
    server = Server("--direction", "en-fr", program=folder / "packed")
    try:
        found = server.post("/translate", {"q": lines[:20], "source": "en", "target": "fr"})["translatedText"]
        assert found == [one["translation"] for one in translate(lines[:20])]
    finally:
        server.end(signal.SIGXCPU)
    print("several directions, an ensemble and a packed model are served")


server = Server("--model", f"en-fr={folder / 'run'}", "--max-request", 1000000, "--queue", 1900)
for check in (check_answers, check_libretranslate, check_documents, check_unknowns, check_page, check_refusals, check_leaving, check_end):
    begin = time.monotonic()
    check(server)
    print(f"  {check.__name__}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
server = Server("--model", f"en-fr={folder / 'run'}", "--queue", 1900, "--workers", 3, "--threads", 3)
for check in (check_answers, check_leaving, check_end):
    begin = time.monotonic()
    check(server)
    print(f"  {check.__name__} with 3 workers: {time.monotonic() - begin:.1f} s", file=sys.stderr)
for check in (check_details, check_limits, check_idle, check_unread, check_reload, check_several):
    begin = time.monotonic()
    check()
    print(f"  {check.__name__}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
