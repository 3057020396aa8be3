"""Finds duplicated code: runs of equal lines in two places of compiler/, runtime/ and tests/.

A run has at least MINIMUM lines, not counting blank lines, comments, includes and lines without a letter or digit.
duplicates.txt lists the accepted pairs, one per line: the two files, the number of equal lines, and the reason. The test
fails for a pair that is not listed or has grown, and for an entry that is too large or no longer needed, so duplication
cannot change unnoticed.

usage: duplicates.py ROOT [--list]    (--list prints entries for all pairs found, without reasons)
"""
import collections
import pathlib
import re
import sys

MINIMUM = 8
SUFFIXES = {".cpp", ".h", ".td", ".py", ".sh"}
FOLDERS = ("compiler", "runtime", "tests")


def lines_of(path):
    """Yields (line number, text) of the lines that are compared."""
    comment = re.compile(r"^(//|#|/\*|\*)")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = " ".join(line.split())
        if re.search(r"\w", text) and not comment.match(text):
            yield number, text


def runs(files):
    """Yields the longest run of equal lines for each pair of places, as (length, first file and line, second file and line)."""
    windows = collections.defaultdict(list)
    for name, lines in files.items():
        for at in range(len(lines) - MINIMUM + 1):
            windows[tuple(text for _, text in lines[at:at + MINIMUM])].append((name, at))
    seen = set()
    for places in windows.values():
        for i, first in enumerate(places):
            for second in places[i + 1:]:
                before = ((first[0], first[1] - 1), (second[0], second[1] - 1))
                if before in seen:  # within a run already reported
                    seen.add((first, second))
                    continue
                seen.add((first, second))
                a, b = files[first[0]], files[second[0]]
                length = 0
                while (first[1] + length < len(a) and second[1] + length < len(b)
                       and a[first[1] + length][1] == b[second[1] + length][1]
                       and not (first[0] == second[0] and first[1] + length >= second[1])):
                    length += 1
                if length >= MINIMUM:
                    yield length, (first[0], a[first[1]][0]), (second[0], b[second[1]][0])


def longest(files):
    """{(file, file): (lines, where)} with the longest run of each pair of files."""
    found = {}
    for length, first, second in runs(files):
        pair = tuple(sorted((first[0], second[0])))
        if length > found.get(pair, (0,))[0]:
            found[pair] = (length, f"{first[0]}:{first[1]} and {second[0]}:{second[1]}")
    return found


def accepted(path):
    entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            first, second, count, _ = line.split(maxsplit=3)
            entries[tuple(sorted((first, second)))] = int(count)
    return entries


def main():
    root = pathlib.Path(sys.argv[1])
    files = {str(path.relative_to(root)): list(lines_of(path)) for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in SUFFIXES and path.is_file()}
    found = longest(files)
    if "--list" in sys.argv:
        for pair, (length, _) in sorted(found.items()):
            print(*pair, length)
        return
    allowed = accepted(root / "tests/style/duplicates.txt")
    errors = [f"{length} equal lines at {where}: share them, or add the pair to tests/style/duplicates.txt with a reason"
              for pair, (length, where) in sorted(found.items()) if length > allowed.get(pair, 0)]
    errors += [f"tests/style/duplicates.txt: {' and '.join(pair)} share {found.get(pair, (0,))[0]} lines, not {count}: lower or delete the entry"
               for pair, count in sorted(allowed.items()) if found.get(pair, (0,))[0] < count]
    print("\n".join(errors) or f"{len(files)} files, {len(found)} accepted pairs")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
