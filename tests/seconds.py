#!/usr/bin/env python3
"""Collects how long each test took, from the reports of ctest and lit, and prints the slowest.

usage: seconds.py BUILD    (reads BUILD/tests/seconds/*.xml, writes BUILD/tests/seconds.tsv: seconds, suite, test; the slowest first)

Of two reports in which a test stands, it keeps the longer time: ctest counts a lit suite as one test, and lit its tests.
"""
import pathlib
import sys
import xml.etree.ElementTree as tree

SHOWN = 20


def times(report):
    """(suite, test) and seconds of every test of a JUnit report that ran. An unreadable report has none: its suite was ended."""
    try:
        cases = tree.parse(report).iter("testcase")
    except tree.ParseError:
        print(f"{report}: cannot be read; the tests in it are left out", file=sys.stderr)
        return
    for case in cases:
        if case.find("skipped") is None and case.get("status") not in ("notrun", "disabled"):
            folder = (case.get("classname") or "").split(".", 1)[-1]
            name = case.get("name") if report.stem == "ctest" else f"{folder}/{case.get('name')}"
            yield (report.stem, name), float(case.get("time") or 0)


def main():
    build = pathlib.Path(sys.argv[1])
    longest = {}
    for report in sorted((build / "tests/seconds").glob("*.xml")):
        for test, seconds in times(report):
            longest[test] = max(seconds, longest.get(test, 0))
    rows = sorted(((seconds, *test) for test, seconds in longest.items()), reverse=True)
    table = build / "tests/seconds.tsv"
    table.write_text("".join(f"{seconds:.2f}\t{suite}\t{test}\n" for seconds, suite, test in rows))
    print(f"The slowest of {len(rows)} tests; {table} lists all:")
    for seconds, suite, test in rows[:SHOWN]:
        print(f"{seconds:9.2f} s  {suite}  {test}")


if __name__ == "__main__":
    main()
