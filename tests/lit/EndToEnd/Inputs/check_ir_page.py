"""check_ir_page.py PAGE.html: the page loads nothing, its tags are balanced, and both sides of each part have as many lines. Plain Python."""
import html.parser
import sys

VOID = {"meta", "input", "br"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.sides, self.pairs, self.scripts = [], [], 0, 0

    def handle_starttag(self, tag, attributes):
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in attributes}, f"<{tag} {attributes}> loads something"
        assert not any(name.startswith("on") for name, _ in attributes), f"<{tag} {attributes}>"
        assert tag not in ("link", "img", "iframe"), tag
        self.scripts += tag == "script"
        if tag == "div" and ("class", "pair") in attributes:
            self.sides = []
        if tag == "pre":
            self.sides.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] == "pre":
            self.sides[-1] += data

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}>"
        if tag == "div" and len(self.sides) == 2:
            assert self.sides[0].count("\n") == self.sides[1].count("\n"), self.sides
            self.pairs += 1
            self.sides = []


page = Page()
page.feed(open(sys.argv[1], encoding="utf-8").read())
assert page.open == [] and page.scripts == 1 and page.pairs > 50, (page.open, page.scripts, page.pairs)
print(f"{page.pairs} parts")
