"""check_report.py REPORT.html TRAIN.jsonl: the page loads nothing, and shows the log's numbers and curves. Plain Python."""
import html.parser
import json
import re
import sys

page = open(sys.argv[1], encoding="utf-8").read()
records = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
failures = []

# Attributes and elements for which a browser loads something.
LOADING = {"src", "href", "xlink:href", "srcset", "data", "action", "poster", "background"}
ELEMENTS = {"script", "link", "iframe", "object", "embed", "base", "img", "video", "audio", "image"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.cells, self.paths, self.open = {}, [], []
        self.heading = self.key = ""

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag in ELEMENTS or LOADING & {name for name, _ in attributes}:
            failures.append(f"the page loads something: <{tag} {attributes}>")
        if any(re.search(r"url\(|@import|^on", f"{name}") or re.search(r"url\((?!#)|@import", value or "") for name, value in attributes):
            failures.append(f"the page loads something: <{tag} {attributes}>")
        if tag == "path" and dict(attributes).get("fill") == "none":
            points = re.findall(r"[ML]([\d.]+) ([\d.]+)", dict(attributes)["d"])
            self.paths.append((self.heading, [tuple(map(float, point)) for point in points]))

    def handle_data(self, data):
        if self.open and self.open[-1] == "style" and re.search(r"url\(|@import", data):
            failures.append("the style loads something")
        if self.open and self.open[-1] == "h2":
            self.heading = data
        if self.open and self.open[-1] == "th":
            self.key = data
        if self.open and self.open[-1] == "td":
            self.cells.setdefault(self.key, data)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass


parsed = Page()
parsed.feed(page)


def series(key):
    return [(record["step"], record[key]) for record in records if key in record]


for name, key, pattern in (("steps", "step", "{:.0f}"), ("loss", "loss", "{:.4f}"), ("target tokens per second", "wps", "{:.0f}"),
                           ("perplexity, validation", "valid_ppl", "{:.3f}"), ("BLEU, validation", "bleu", "{:.2f}"), ("chrF, validation", "chrf", "{:.2f}"),
                           ("TER, validation", "ter", "{:.2f}")):
    want = pattern.format(series(key)[-1][1])
    if parsed.cells.get(name) != want:
        failures.append(f"{name}: {parsed.cells.get(name)}, the log says {want}")

# The curves show the log's numbers, on linear axes that all curves of a chart share.
curves = [points for heading, points in parsed.paths if heading == "Loss per target token"]
values = [series("loss"), series("valid_loss")]
if [len(points) for points in curves] != [len(one) for one in values]:
    failures.append(f"curves of {[len(points) for points in curves]} points, the log has {[len(one) for one in values]}")
else:
    drawn, logged = ([point for one in many for point in one] for many in (curves, values))
    for axis in (0, 1):
        low, high = (choose(range(len(logged)), key=lambda i: logged[i][axis]) for choose in (min, max))
        scale = (drawn[high][axis] - drawn[low][axis]) / (logged[high][axis] - logged[low][axis])
        if (scale > 0) != (axis == 0):
            failures.append(f"axis {axis} runs the other way")
        for at, point in zip(drawn, logged):
            if abs(drawn[low][axis] + scale * (point[axis] - logged[low][axis]) - at[axis]) > 0.2:
                failures.append(f"the curve is off at step {point[0]}")
                break
for sample in next(record["samples"] for record in reversed(records) if "samples" in record):
    if sample["source"] not in page:
        failures.append(f"the sample '{sample['source']}' is missing")

if failures:
    sys.exit("\n".join(failures))
print(f"{len(parsed.paths)} curves")
