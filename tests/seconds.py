#!/usr/bin/env python3
"""Collects how long each test took, from the reports of ctest and lit, and prints the slowest, and those that did not run.

usage: seconds.py BUILD    (reads BUILD/tests/seconds/*, writes BUILD/tests/seconds.tsv: seconds, CPU seconds, suite, test; the costliest first)

CPU seconds, which hardly depend on what else runs, are known of lit's tests only. Of two reports in which a test stands, it keeps
the longer time: ctest counts a lit suite as one test, and lit its tests.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as tree

SHOWN = 20
UNCHANGED = "unchanged:"  # what unchanged.py prints in place of a test's output


def times_of_ctest(report):
    for case in tree.parse(report).iter("testcase"):
        if case.find("skipped") is None and case.get("status") not in ("notrun", "disabled"):
            yield ("ctest", case.get("name")), (float(case.get("time") or 0), None)


def times_of_lit(suite, tests):
    for name, test in tests.items():
        if "cpu" in test.get("metrics", {}) and test["code"] != "UNSUPPORTED":  # or else it did not run
            yield (suite, name), (test["elapsed"], test["metrics"]["cpu"])


def waiting(tests):
    """The tests of lit whose turn is another commit."""
    return [name for name, test in tests.items() if test["code"] == "UNSUPPORTED" and "turn-" in test["output"]]


def read(report):
    """(suite, test) and (seconds, CPU seconds or None) of every test of a report that ran, the names of those that wait for their turn, and
    the number of those of whose inputs nothing has changed (unchanged.py). An unreadable report has none: its suite was ended."""
    try:
        if report.suffix == ".xml":
            outputs = [output.text or "" for output in tree.parse(report).iter("system-out")]
            return list(times_of_ctest(report)), [], sum(output.startswith(UNCHANGED) for output in outputs)
        tests = {test["name"].split(" :: ", 1)[1]: test for test in json.loads(report.read_text(encoding="utf-8"))["tests"]}
        return list(times_of_lit(report.stem, tests)), waiting(tests), sum(test["output"].startswith(UNCHANGED) for test in tests.values())
    except (tree.ParseError, json.JSONDecodeError):
        print(f"{report}: cannot be read; the tests in it are left out", file=sys.stderr)
        return [], [], 0


def main():
    build = pathlib.Path(sys.argv[1])
    longest, later, unchanged = {}, [], 0
    for report in sorted((build / "tests/seconds").iterdir()):
        times, waits, kept = read(report)
        later += waits
        unchanged += kept
        for test, (seconds, cpu) in times:
            longest[test] = max((seconds, cpu), longest.get(test, (0, None)), key=lambda pair: pair[0])
    rows = sorted(((*pair, *test) for test, pair in longest.items()), key=lambda row: -(row[0] if row[1] is None else row[1]))
    rows = [(f"{seconds:.2f}", "" if cpu is None else f"{cpu:.2f}", *test) for seconds, cpu, *test in rows]
    table = build / "tests/seconds.tsv"
    table.write_text("".join("\t".join(row) + "\n" for row in rows))
    print(f"The costliest of {len(rows)} tests, in seconds and CPU seconds; {table} lists all:")
    for seconds, cpu, suite, test in rows[:SHOWN]:
        print(f"{seconds:>9} s {cpu:>9}  {suite}  {test}")
    if unchanged:
        print(f"{unchanged} tests did not run, since nothing that they depend on has changed since they passed (XFC_UNCHANGED=run runs them).")
    if later:
        print("These run in every third commit, of which this is none (XFC_TURNS=all runs them): " + ", ".join(sorted(later)))


if __name__ == "__main__":
    main()
