"""check_report.py REPORT.html TRAIN.jsonl INFO.json TRACE.json: the page loads nothing, and shows the log's numbers and curves, the attention
of a line, the memory that `info` prints and the time of the timeline. Plain Python."""
import html
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

# Each row of the attention adds up to 1, and the labels of the axes do not overlap.
attention = re.search(r"Where the decoder looks</h2>\n<p>[^<]*va:3:[^<]*</p>\n<div class=\"wide\">(<svg.*?</svg>)", page, re.DOTALL)
if not attention:
    failures.append("there is no attention of line 3")
else:
    sums = {}
    for y, weight in re.findall(r'y="([\d.]+)" width="26"[^>]*fill-opacity="([\d.]+)"', attention[1]):
        sums[float(y)] = sums.get(float(y), 0) + float(weight)
    rows = [float(y) for y in re.findall(r'<text [^>]*y="([\d.]+)" text-anchor="end"', attention[1])]
    columns = [float(x) for x in re.findall(r'<text [^>]*translate\(([\d.]+) ', attention[1])]
    if len(sums) != len(rows) or any(abs(total - 1) > 0.0006 * len(columns) for total in sums.values()):
        failures.append(f"{len(rows)} rows of attention add up to {sums}")
    if len(columns) < 3 or any(b - a < 12 for places in (rows, columns) for a, b in zip(places, places[1:])):
        failures.append(f"labels overlap: {rows}, {columns}")

# The memory of a step is what `info` says, and its boxes lie within the arena.
training = json.load(open(sys.argv[3], encoding="utf-8"))["memory"]["training"]
for name, key in (("arena", "arena_bytes"), ("parameters", "parameters_bytes"), ("optimizer", "optimizer_bytes"), ("all of a step", "total_bytes")):
    if f"({training[key]} bytes)" not in parsed.cells.get(name, ""):
        failures.append(f"{name}: {parsed.cells.get(name)}, `info` says {training[key]}")
boxes = [(int(size), int(offset), int(first), int(last))
         for size, offset, first, last in re.findall(r"<title>(\d+) bytes at (\d+), launches (\d+) to (\d+),", page)]
if len(boxes) < 20 or max(size + offset for size, offset, _, _ in boxes) > training["arena_bytes"]:
    failures.append(f"{len(boxes)} buffers reach to {max(size + offset for size, offset, _, _ in boxes)}")
for i, (size, offset, first, last) in enumerate(boxes):
    for other, at, begin, end in boxes[:i]:
        if first <= end and begin <= last and offset < at + other and at < offset + size:
            failures.append(f"buffers at {offset} and {at} overlap")

# The flame graph: parts within their whole, side by side, with text that fits; and the time of the kernels.
flame = re.search(r'<svg class="flame".*?</svg>', page, re.DOTALL)[0]
frames = [(float(x), float(y), float(width), text or "") for x, y, width, text in re.findall(
    r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)".*?</rect>(?:<text [^>]*>([^<]*)</text>)?</g>', flame)]
for i, (x, y, width, text) in enumerate(frames):
    if len(html.unescape(text)) * 6.7 > width:
        failures.append(f"'{text}' does not fit in {width}")
    if y > 0 and not any(ty == y - 18 and tx - 0.02 <= x and x + width <= tx + tw + 0.02 for tx, ty, tw, _ in frames):
        failures.append(f"the frame at {x}, {y} is in none")
    if any(y == oy and x < ox + ow - 0.02 and ox < x + width - 0.02 for ox, oy, ow, _ in frames[:i]):
        failures.append(f"the frame at {x}, {y} overlaps another")
kernels = [event for event in json.load(open(sys.argv[4], encoding="utf-8"))["traceEvents"] if event.get("cat") == "kernel"]
loss = sum(event["dur"] for event in kernels if event["args"]["program"] == "loss_and_gradients") / 3e3
drawn = float(re.search(r"<title>loss_and_gradients: ([\d.]+) ms a step", flame)[1])
if not loss - 0.01 <= drawn <= loss * 10:
    failures.append(f"loss_and_gradients takes {drawn} ms, its kernels {loss}")

if failures:
    sys.exit("\n".join(failures))
print(f"{len(parsed.paths)} curves")
