"""Checks the site of the documents (docs/website.py) as a browser would use it: it builds the site, and follows every link of every page.

usage: links.py ROOT [--search NODE]      (with --search, checks with Node.js what the search finds instead)

No link or image may be dead, each anchor must be there once, every page must be reached from the first one, and nothing may come from a network.
Small sites with one fault each must then be refused, with file and line.
"""
import html.parser
import json
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "docs"))
from website import Site


VOID = ("meta", "link", "input", "img", "br", "hr")  # elements without an end


class Links(html.parser.HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        elif "src" in found or tag == "link":
            self.loaded.append(found.get("src") or found["href"])

    handle_startendtag = handle_starttag

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise ValueError(f"line {self.getpos()[0]}: </{tag}> closes something else")


def check(files):
    """Complaints about a site's files."""
    pages = {name: Links(data.decode()) for name, data in files.items() if name.endswith(".html")}
    for name, page in pages.items():
        for anchor in {anchor for anchor in page.ids if page.ids.count(anchor) > 1}:
            yield f"{name}: has the anchor {anchor} twice"
        for where in page.loaded:
            if urllib.parse.urlsplit(where).netloc or posixpath.normpath(posixpath.join(posixpath.dirname(name), where)) not in files:
                yield f"{name}: loads {where}, which the site does not have"
        for where in page.links:
            parts = urllib.parse.urlsplit(where)
            if parts.scheme:
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), urllib.parse.unquote(parts.path))) if parts.path else name
            if target not in files:
                yield f"{name}: {where} is dead"
            elif parts.fragment and urllib.parse.unquote(parts.fragment) not in pages[target].ids:
                yield f"{name}: {where} leads to no anchor"
    reached, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        if name in pages and name not in reached:
            reached.add(name)
            waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(name), urllib.parse.urlsplit(where).path)) for where in pages[name].links]
    yield from (f"{name}: is reached from no page" for name in sorted(set(pages) - reached))
    for name in ("style.css", "search.js"):
        if found := re.search(rb"https?:|\bfetch\(|XMLHttpRequest|url\(|import\b", files[name]):
            yield f"{name}: {found[0].decode()} may load something"


FAULTS = {
    # The document, the text that is added to it, and what is said.
    "a dead link": ("README.md", "[more](docs/gone.md)", "README.md:3: docs/gone.md: no such file"),
    "a link out of the repository": ("README.md", "[more](../../etc)", "README.md:3: ../../etc: no such file"),
    "a dead anchor": ("docs/one.md", "[more](../README.md#gone)", "docs/one.md:3: ../README.md#gone: README.md has no heading or line with this anchor"),
    "a dead anchor of its own": ("README.md", "[more](#gone)", "README.md:3: #gone: README.md has no heading"),
    "a line that a file does not have": ("README.md", "[more](docs/file.c#L9)", "README.md:3: docs/file.c#L9: docs/file.c has no heading or line"),
    "an image that is not there": ("docs/one.md", "![a curve](curve.svg)", "docs/one.md:3: curve.svg: no such image"),
    "an image from the network": ("README.md", "![a badge](https://example.org/badge.svg)", "README.md:3: https://example.org/badge.svg: an image from the network"),
    "an address without a host": ("README.md", "[more](https:/example.org)", "README.md:3: https:/example.org: is no address"),
    "a link in HTML": ("README.md", '<p><a href="gone.html">more</a></p>', "README.md:3: links and images in HTML are not checked"),
    "an orphan": ("docs/two.md", "# Two", "docs/two.md:1: no page leads to this document"),
    "no title": ("docs/two.md", "## Two", "docs/two.md:1: has no title"),
    "an entry without a document": ("docs/website/navigation.txt", "  docs/three.md", "docs/website/navigation.txt:4: docs/three.md: no such document"),
}


def small_site(folder, fault=None):
    root = pathlib.Path(folder)
    (root / "docs/website").mkdir(parents=True)
    files = {"README.md": "# Begin [here](docs/one.md#a--b)\n\n", "docs/one.md": "# One\n\n", "docs/file.c": "int x;\n", "docs/website/navigation.txt": "All\n  README.md\n  docs/one.md\n"}
    after = "\n\n## A & b\n\n[back](../README.md) ![a dot](dot.svg) [a line](file.c#L1) [a folder](../docs/) <https://example.org/a>\n"
    if fault:
        files[fault[0]] = files.get(fault[0], "") + fault[1] + "\n"
        if fault[0] == "docs/two.md" and fault[2].endswith("title"):
            files["docs/website/navigation.txt"] += "  docs/two.md\n"
    files["docs/one.md"] += after
    for name, text in {**files, "docs/dot.svg": "<svg/>"}.items():
        (root / name).write_text(text, encoding="utf-8")
    site = Site(root)
    return site.build(), site.problems


def check_faults():
    with tempfile.TemporaryDirectory() as folder:
        files, problems = small_site(folder)
        assert not problems and not list(check(files)), (problems, list(check(files)))
        assert {"index.html", "docs/one.html", "docs/file.c.html", "docs/index.html", "docs/dot.svg", "docs/website/index.html"} <= set(files), sorted(files)
    for name, fault in FAULTS.items():
        with tempfile.TemporaryDirectory() as folder:
            _, problems = small_site(folder, fault)
            assert len(problems) == 1 and problems[0].startswith(fault[2]), f"{name}: {problems}"
    # What the generator did not see, the pages show.
    for name, old, new, said in (("docs/one.html", b'href="../index.html"', b'href="../gone.html"', "is dead"), ("index.html", b"one.html#a--b", b"one.html#c", "leads to no anchor"),
                                 ("docs/one.html", b'src="dot.svg"', b'src="https://example.org/dot.svg"', "which the site does not have")):
        with tempfile.TemporaryDirectory() as folder:
            files, _ = small_site(folder)
            assert old in files[name], (name, old)
            files[name] = files[name].replace(old, new)
            found = list(check(files))
            assert found and all(said in one for one in found), (said, found)


# What somebody looks for, and a page that must be among the first three sections found.
QUERIES = {
    "fine-tuning": "index.html#your-own-data", "several processes mpirun": "docs/runs.html", "guided alignment": "docs/runs.html#guided-alignment", "langauge": None,
    "export hugging face": "models/index.html#exported-models", "bleu": "docs/performance.html", "adding a kernel": "compiler/index.html", "--label-smoothing": "models/index.html#training",
    "xfc.attention": "docs/reference/dialect-xfc.html", "prometheus": "docs/serving.html#running-it", "H200 decod": "docs/gpu-h200.html", "wheel": "docs/packages.html",
    "libFuzzer": "tests/fuzz/index.html", "": None, ". ( [ * \\": None,
}
SCRIPT = """
const vm = require('vm'), {makeIndex, search} = require(process.argv[1] + '/search.js');
vm.runInThisContext(require('fs').readFileSync(process.argv[1] + '/sections.js', 'utf8') + ';globalThis.sections = sections');
const index = makeIndex(sections);
console.log(JSON.stringify(JSON.parse(process.argv[2]).map((query) => search(index, query).map(([where]) => where))));
"""


def check_search(node, files):
    if not shutil.which(node):
        print("skipped: Node.js is not installed, which would run the search")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("search.js", "sections.js"):
            (pathlib.Path(folder) / name).write_bytes(files[name])
        said = subprocess.run([node, "-e", SCRIPT, folder, json.dumps(list(QUERIES))], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    for (query, expected), found in zip(QUERIES.items(), json.loads(said.stdout)):
        assert not found if expected is None else any(where.startswith(expected) for where in found[:3]), f"'{query}' finds {found}, and not {expected} first"
    print(f"{len(QUERIES)} queries find what they should")


def main():
    site = Site(ROOT)
    files = site.build()
    complaints = site.problems or list(check(files))
    for complaint in complaints:
        print(f"error: {complaint}", file=sys.stderr)
    if complaints:
        sys.exit(1)
    if "--search" in sys.argv:
        check_search(sys.argv[sys.argv.index("--search") + 1], files)
    else:
        check_faults()
        print(f"{len(files)} files, each link leads somewhere; {len(FAULTS)} faults are found")


if __name__ == "__main__":
    main()
