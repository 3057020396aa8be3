"""Turns the documents of the repository into a folder of web pages, with a search, that needs neither a network nor a server.

usage: website.py OUT      (the folder is written anew)

Every Markdown file is a page, in the order and under the headings of docs/website/navigation.txt. Links between documents become links between
pages, files and folders that documents link to become pages that show them, and images are copied. A link, an anchor, an image or an entry of
the navigation that leads nowhere is an error with file and line, as is a document that the navigation does not list; then nothing is written.
"""
import dataclasses
import html
import json
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

try:
    from markdown_it import MarkdownIt
except ImportError:
    sys.exit("error: Python's library markdown-it is missing; .ci/setup.sh installs it (Debian: python3-markdown-it)")

ASSETS = pathlib.Path(__file__).resolve().parent / "website"
ROOT = ASSETS.parent.parent
DOCUMENTS = ["*.md", *(f"{folder}/**/*.md" for folder in ("compiler", "docs", "models", "python", "runtime", "tests"))]
IMAGES = {".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp"}
EXTERNAL = re.compile(r"https?://[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[^\s<>\"]*)?|mailto:[^\s@]+@[^\s@]+\.[^\s@]+", re.I)


@dataclasses.dataclass
class Page:
    source: str  # the file or folder, from the root of the repository
    output: str  # the page, from the root of the site
    title: str
    tokens: list = dataclasses.field(default_factory=list)
    headings: list = dataclasses.field(default_factory=list)  # (level, anchor, text)
    anchors: set = dataclasses.field(default_factory=set)
    sections: list = dataclasses.field(default_factory=list)  # (anchor, title, text), which the search finds


def plain(token):
    """The text of an inline token, as a reader sees it."""
    return "".join(" " if child.type in ("softbreak", "hardbreak") else plain(child) if child.children else child.content for child in token.children or [])


def slug(text, taken):
    """The anchor that GitHub gives a heading, which links in the documents use."""
    name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    number, unique = 0, name
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique)
    return unique


class Site:
    def __init__(self, root):
        self.root, self.problems = pathlib.Path(root).resolve(), []
        self.markdown = MarkdownIt("commonmark").enable("table")
        # Wide tables scroll by themselves, so that the page does not.
        self.markdown.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
        self.markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
        self.pages, self.images, self.groups = {}, set(), []

    def problem(self, source, line, what):
        self.problems.append(f"{source}:{line}: {what}")

    def read_navigation(self):
        path = self.root / "docs/website/navigation.txt"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.startswith(" "):
                self.groups.append((line, []))
                continue
            found = sorted(str(file.relative_to(self.root)) for file in self.root.glob(line.strip()))
            if not found:
                self.problem("docs/website/navigation.txt", number, f"{line.strip()}: no such document")
            for source in found:
                if source not in self.pages:
                    self.pages[source] = self.document(source)
                    self.groups[-1][1].append(self.pages[source])
        for source in sorted({str(file.relative_to(self.root)) for pattern in DOCUMENTS for file in self.root.glob(pattern)} - set(self.pages)):
            self.problem(source, 1, "no page leads to this document; list it in docs/website/navigation.txt")

    def document(self, source):
        path = pathlib.PurePosixPath(source)
        output = str(path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html"))
        page = Page(source, output, source)
        page.tokens = self.markdown.parse((self.root / source).read_text(encoding="utf-8"))
        page.tokens = [token for token in page.tokens if not (token.type == "html_block" and token.content.startswith("<!--"))]
        anchor, title, texts, taken = "", "", [], set()
        for at, token in enumerate(page.tokens):
            if token.type == "heading_open":
                if texts or title:
                    page.sections.append((anchor, title, " ".join(texts)))
                title, texts = plain(page.tokens[at + 1]), []
                anchor = slug(title, taken)
                token.attrSet("id", anchor)
                page.headings.append((int(token.tag[1]), anchor, title))
            elif token.type == "inline" and page.tokens[at - 1].type != "heading_open":
                texts.append(plain(token))
            elif token.type in ("fence", "code_block"):
                texts.append(token.content)
            elif token.type == "html_block":
                texts.append(html.unescape(re.sub(r"<[^>]*>", " ", token.content)))
        page.sections.append((anchor, title, " ".join(texts)))
        page.anchors = taken
        page.title = next((text for level, _, text in page.headings if level == 1), "")
        if not page.title:
            self.problem(source, 1, "has no title (a line that begins with #)")
        return page

    def shown(self, target):
        """The page of a file or a folder that is no document."""
        source = str(target.relative_to(self.root))
        if source not in self.pages:
            page = Page(source, f"{source}/index.html" if target.is_dir() else f"{source}.html", source)
            self.pages[source] = page
            if target.is_file():
                page.anchors = {f"L{number}" for number in range(1, len(target.read_text(encoding="utf-8").splitlines()) + 1)}
        return self.pages[source]

    def resolve(self, page, line, link, image):
        """Where a link of a document leads, from its page."""
        if urllib.parse.urlsplit(link).scheme:
            if image:
                self.problem(page.source, line, f"{link}: an image from the network; put it into the repository")
            elif not EXTERNAL.fullmatch(link):
                self.problem(page.source, line, f"{link}: is no address of the form https://host/path")
            return link
        path, _, anchor = link.partition("#")
        target = pathlib.Path(os.path.normpath(self.root / os.path.dirname(page.source) / urllib.parse.unquote(path))) if path else self.root / page.source
        if not target.exists() or not target.is_relative_to(self.root):
            self.problem(page.source, line, f"{link}: no such {'image' if image else 'file'}")
            return link
        source = str(target.relative_to(self.root))
        if target.suffix in IMAGES:
            self.images.add(source)
            return os.path.relpath(source, os.path.dirname(page.output) or ".")
        if image:
            self.problem(page.source, line, f"{link}: is no image")
            return link
        if target.is_dir() and f"{source}/README.md" in self.pages:
            source += "/README.md"
        found = self.pages.get(source) or self.shown(target)
        if anchor and anchor not in found.anchors:
            self.problem(page.source, line, f"{link}: {found.source} has no heading or line with this anchor")
        where = os.path.relpath(found.output, os.path.dirname(page.output) or ".") if found is not page or not anchor else ""
        return where + (f"#{anchor}" if anchor else "")

    def rewrite_links(self, page):
        lines = (self.root / page.source).read_text(encoding="utf-8").splitlines()
        for token in page.tokens:
            if token.type == "html_block" and re.search(r"<(a|img|script|link)\b", token.content):
                self.problem(page.source, token.map[0] + 1, "links and images in HTML are not checked; write them in Markdown")
            for child in token.children or []:
                name = {"link_open": "href", "image": "src"}.get(child.type)
                if name:
                    link = str(child.attrGet(name))
                    first, end = token.map
                    line = next((number for number in range(first, end) if link in urllib.parse.unquote(lines[number]) or link in lines[number]), first)
                    child.attrSet(name, self.resolve(page, line + 1, link, child.type == "image"))

    def body(self, page):
        """What a page shows."""
        target = self.root / page.source
        if page.tokens:
            return self.markdown.renderer.render(page.tokens, self.markdown.options, {})
        if target.is_dir():
            entries = sorted(entry for entry in target.iterdir() if not entry.name.startswith((".", "__pycache__")))
            links = (f'<li><a href="{html.escape(self.resolve_entry(page, entry))}">{html.escape(entry.name)}</a></li>' for entry in entries)
            return f'<h1>{html.escape(page.source)}</h1>\n<ul>\n{"".join(links)}\n</ul>\n'
        lines = target.read_text(encoding="utf-8").splitlines()
        text = "".join(f'<span id="L{number}">{html.escape(line)}\n</span>' for number, line in enumerate(lines, 1))
        return f'<h1>{html.escape(page.source)}</h1>\n<pre class="source"><code>{text}</code></pre>\n'

    def resolve_entry(self, page, entry):
        return self.resolve(dataclasses.replace(page, source=f"{page.source}/."), 1, entry.name, False)

    def render(self, template, page):
        up = os.path.relpath(".", os.path.dirname(page.output) or ".")
        link = lambda other: html.escape(os.path.relpath(other.output, os.path.dirname(page.output) or "."))
        current = lambda other: ' aria-current="page"' if other is page else ""
        groups = "".join(f"<h2>{html.escape(name)}</h2>\n<ul>\n" + "".join(f'<li><a href="{link(other)}"{current(other)}>{html.escape(other.title)}</a></li>\n' for other in pages) + "</ul>\n"
                         for name, pages in self.groups)
        contents = "".join(f'<li class="level{level}"><a href="#{html.escape(anchor)}">{html.escape(text)}</a></li>\n' for level, anchor, text in page.headings if level in (2, 3))
        parts = {"title": html.escape(page.title), "up": up, "navigation": groups, "contents": f"<h2>On this page</h2>\n<ul>\n{contents}</ul>\n" if contents else "", "body": self.body(page)}
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)

    def build(self):
        """The site's files by name, as bytes."""
        self.read_navigation()
        for page in list(self.pages.values()):
            self.rewrite_links(page)
        if self.problems:
            return {}
        template = (ASSETS / "page.html").read_text(encoding="utf-8")
        files, done = {}, 0
        while done < len(self.pages):  # pages of folders add those of their files
            page = list(self.pages.values())[done]
            files[page.output] = self.render(template, page).encode()
            done += 1
        documents = [page for _, pages in self.groups for page in pages]
        sections = [[page.output + (f"#{anchor}" if anchor else ""), page.title, title, re.sub(r"\s+", " ", text).strip()] for page in documents for anchor, title, text in page.sections]
        files["sections.js"] = f"const sections = {json.dumps(sections, ensure_ascii=False, separators=(',', ':'))};\n".encode()
        files.update({name: (ASSETS / name).read_bytes() for name in ("search.js", "style.css")})
        files.update({name: (self.root / name).read_bytes() for name in self.images})
        return files


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site, out = Site(ROOT), pathlib.Path(sys.argv[1])
    files = site.build()
    if site.problems:
        sys.exit("\n".join(f"error: {problem}" for problem in site.problems))
    # Only what an earlier call wrote is removed.
    if (out / "sections.js").exists():
        shutil.rmtree(out)
    for name, data in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    print(f"wrote {out / 'index.html'}: {len(files)} files")


if __name__ == "__main__":
    main()
