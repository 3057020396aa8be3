#!/usr/bin/env python3
"""Checks that no function of compiler/ and runtime/ is longer than 120 lines, and that no class has more than 25 fields.

    sizes.py SOURCES

Sources are formatted by clang-format, so indentation tells where what begins ends. What exceeds this is listed in sizes.txt, with its size
and the reason. It must not grow, and whoever makes it smaller lowers the number.
"""
import pathlib
import re
import sys

MOST_LINES, MOST_FIELDS = 120, 25
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
STRING = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
RECORD = re.compile(r"(?:template\b.*?>\s*)?(?:struct|class|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)[^()]*\{")
FUNCTION = re.compile(r"([\w~]+)\s*\(")
STATEMENT = re.compile(r"(?:if|for|while|switch|else|do|try|return|case|namespace|extern|enum|static const|const)\b(?!.*\) \{$)|(?:if|for|while|switch)\b")
ACCESS = re.compile(r"\s*(?:public|private|protected):")
# The first word of a statement that is no declaration of a field.
NO_FIELD = re.compile(r"(?:using|typedef|friend|static|template|enum|struct|class|union|return|public|private|protected|namespace|extern|static_assert|operator)\b")


def blanked(text):
    """The text with comments and the contents of strings as blanks, line for line."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    def emptied(match):
        return '"' + re.sub(r"[^\n]", " ", match[0][1:-1]) + '"' if len(match[0]) > 1 else match[0]
    return COMMENT.sub(blank, STRING.sub(emptied, text))


def indent_of(line):
    return len(line) - len(line.lstrip())


def blocks(lines):
    """Each block that begins at the end of a line: its first line of all, the line with its brace, and its last line."""
    for at, line in enumerate(lines):
        if not line.rstrip().endswith("{") or line.lstrip().startswith("}"):
            continue
        inner = next((other for other in lines[at + 1:] if other.strip()), "")
        indent = indent_of(inner) - (0 if ACCESS.match(inner) or inner.lstrip().startswith("}") else 2)
        if indent < 0: # a namespace, whose contents are not indented
            continue
        end = next((end for end in range(at + 1, len(lines)) if lines[end].startswith(" " * indent + "}")), None)
        if end is None:
            continue
        first = at
        while first > 0 and indent_of(lines[first]) > indent:
            first -= 1
        yield first, at, end, indent


def fields_of(lines, first, end, indent):
    """How many fields a class declares on its own level."""
    count, statement = 0, ""
    inside = " " * (indent + 2)
    for line in lines[first + 1:end]:
        if line.startswith(inside) and not line.startswith(inside + " ") and not statement:
            statement = line.strip()
        elif statement:
            statement += " " + line.strip()
        if not statement:
            continue
        if statement.endswith(("{", "}", ":")):
            statement = ""
        elif statement.endswith(";"):
            count += declared(statement)
            statement = ""
    return count


def declared(statement):
    statement = re.sub(r"^(?:mutable|const|constexpr|inline|alignas\([^)]*\))\s+", "", statement)
    if NO_FIELD.match(statement) or statement.startswith(("}", "~", "#", ")")):
        return 0
    # An initial value may have commas, as may arguments of templates. A parenthesis before it makes a function.
    flat, before = statement, None
    while flat != before:
        before, flat = flat, re.sub(r"<[^<>;=]*>|\{[^{}]*\}|\[[^\[\]]*\]", "", flat)
    if "(" in flat.split("=")[0]:
        return 0
    return 1 + re.sub(r"\([^()]*\)", "", flat).count(",")


def sizes(root):
    """Each function and class of the sources: where it is, its name, its lines or fields, and what these are."""
    for top in ("compiler", "runtime"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            lines = blanked(path.read_text(encoding="utf-8")).splitlines()
            where = path.relative_to(root).as_posix()
            for first, brace, end, indent in blocks(lines):
                head = " ".join(line.strip() for line in lines[first:brace + 1])
                record = RECORD.match(head)
                if record:
                    yield where, first + 1, record[1], fields_of(lines, brace, end, indent), "fields"
                elif (name := FUNCTION.search(head)) and not STATEMENT.match(head):
                    yield where, first + 1, name[1], end - first + 1, "lines"


def exceptions(file):
    """What may exceed the limits, by file and name: its size."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    words = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    return {(where, name): int(size) for where, name, size, _ in words}


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, met = [], set()
    allowed = exceptions(root / "tests/style/sizes.txt")
    for where, line, name, size, unit in sizes(root):
        most = MOST_LINES if unit == "lines" else MOST_FIELDS
        if size <= most:
            continue
        met.add((where, name))
        listed = allowed.get((where, name), most)
        if size > listed:
            problems.append(f"{where}:{line}: {name} has {size} {unit}, and may have {listed}: split it")
        elif size < listed:
            problems.append(f"{where}:{line}: {name} has {size} {unit}, not {listed}; correct tests/style/sizes.txt")
    problems += [f"{where}: {name} is not too large any more, or gone; remove it from tests/style/sizes.txt" for where, name in allowed.keys() - met]
    print("".join(f"{problem}\n" for problem in sorted(problems)), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
