"""check_browser.py CHROMIUM TRANSLATOR RUN: drives the page of `serve` as somebody does who types and clicks, and compares what it shows with `translate`.

Chromium is told what to do through pipes, in its DevTools protocol: JSON objects, each followed by a zero byte. Plain Python."""
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time

chromium, translator, run = sys.argv[1:]
PATIENCE = 60  # seconds
TEXT = "Anna berta. Carl dora emil!"
SENTENCES = ["Anna berta.", "Carl dora emil!"]


class Browser:
    def __init__(self, profile):
        ours, its = os.pipe(), os.pipe()  # what we write, and what it writes
        for end in (ours[0], its[1]):
            os.set_inheritable(end, True)

        def take():  # it reads from 3 and writes to 4
            read, write = os.dup(ours[0]), os.dup(its[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                                         f"--user-data-dir={profile}", "about:blank"], preexec_fn=take, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(its[1])
        self.write, self.read, self.rest, self.count, self.session, self.problems = ours[1], its[0], b"", 0, None, []

    def message(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            part = os.read(self.read, 1 << 20) if ready else b""
            assert part, "the browser says nothing"
            self.rest += part
        first, self.rest = self.rest.split(b"\0", 1)
        return json.loads(first)

    def ask(self, method, **parameters):
        self.count += 1
        asked = {"id": self.count, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        while (said := self.message()).get("id") != self.count:
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(said["params"])
        assert "error" not in said, (method, said)
        return said["result"]

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    def until(self, expression):
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, (expression, self.value("document.body.innerText"))
            time.sleep(0.05)

    def click(self, selector):
        x, y = self.value(f"(() => {{ const at = document.querySelector('{selector}'); at.scrollIntoView(); const box = at.getBoundingClientRect();"
                          " return [box.x + box.width / 2, box.y + box.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector, text):
        self.click(selector)
        self.value(f"document.querySelector('{selector}').select()")
        self.ask("Input.insertText", text=text)


def shown_maps(browser):
    """Of each sentence: the translations to choose from, which one is chosen, and the cells of its table with their background."""
    return browser.value("""[...document.querySelectorAll('#maps > table')].map(table => ({
        choices: [...table.previousSibling.querySelectorAll('label')].map(label => label.textContent.trim()),
        chosen: [...table.previousSibling.querySelectorAll('input')].findIndex(input => input.checked),
        head: [...table.rows[0].cells].map(cell => cell.textContent),
        rows: [...table.rows].slice(1).map(row => [row.cells[0].textContent, ...[...row.cells].slice(1).map(cell => getComputedStyle(cell).backgroundColor)])}))""")


def opacity(color):
    parts = [float(number) for number in re.findall(r"[\d.]+", color)]
    return parts[3] if len(parts) == 4 else 1.0


def check_map(found, shown, chosen):
    assert shown["choices"] == [hypothesis["text"].strip() for hypothesis in found["hypotheses"]] and shown["chosen"] == chosen, (shown, found)
    assert shown["head"] == ["", *found["source_tokens"]]
    hypothesis = found["hypotheses"][chosen]
    assert [row[0] for row in shown["rows"]] == [*hypothesis["tokens"], "(end)"]
    for row, weights in zip(shown["rows"], hypothesis["attention"], strict=True):
        for color, weight in zip(row[1:], weights, strict=True):
            assert abs(opacity(color) - weight) < 0.005, (color, weight)


server = subprocess.Popen([translator, "serve", "--port", "0", "--model", f"en-fr={run}", "--beam", "4"], stderr=subprocess.PIPE, text=True)
with tempfile.TemporaryDirectory() as profile:
    try:
        address = re.search(r"http://\S+", server.stderr.readline())[0]
        answer = subprocess.run([translator, "translate", "--quiet", "--model", run, "--json", "--beam", "4", "--n-best", "3", "--alignments=soft"],
                                input="".join(sentence + "\n" for sentence in SENTENCES), capture_output=True, text=True, check=True).stdout
        found = [json.loads(line) for line in answer.splitlines()]
        browser = Browser(profile)
        try:
            target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
            browser.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                browser.ask(f"{domain}.enable")
            browser.ask("Page.navigate", url=address)
            browser.until("document.readyState === 'complete' && !document.querySelector('#directions').hidden")
            assert browser.value("document.querySelector('#direction').selectedOptions[0].textContent") == "en to fr"
            browser.type("#text", TEXT)
            browser.click("button")
            best = " ".join(one["translation"] for one in found)
            browser.until(f"document.querySelector('#output').textContent === {json.dumps(best)}")
            assert browser.value("document.querySelector('#others').textContent + document.querySelector('#maps').textContent") == ""
            browser.type("#alternatives", "2")
            browser.click("#attention")
            browser.click("button")
            browser.until("document.querySelectorAll('#maps > table').length === 2")
            others = [" ".join(one["hypotheses"][k]["text"] for one in found) for k in (1, 2)]
            assert browser.value("document.querySelector('#others').textContent").split("\n\n") == [other for other in dict.fromkeys(others) if other != best]
            for one, shown in zip(found, shown_maps(browser), strict=True):
                check_map(one, shown, 0)
            browser.click("#maps > div:nth-of-type(2) label:nth-of-type(3) input")  # another translation of the second sentence
            maps = shown_maps(browser)
            check_map(found[0], maps[0], 0)
            check_map(found[1], maps[1], 2)
            # What the server refuses is shown as an error.
            browser.value("document.querySelector('#text').value = 'x\\n'.repeat(2000)")
            browser.click("button")
            browser.until("document.querySelector('#output').className === 'error'")
            assert "2000 sentences" in browser.value("document.querySelector('#output').textContent")
            problems = [problem for problem in browser.problems if "413" not in json.dumps(problem)]
            assert not problems, problems
        finally:
            browser.process.kill()
            browser.process.wait()
    finally:
        server.kill()
        server.wait()
print(f"the page shows {len(found)} sentences, {len(found[0]['hypotheses'])} translations of each, and their attention")
