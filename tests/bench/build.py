#!/usr/bin/env python3
"""Measures what a build costs, in CPU seconds of each compilation: unlike the times in .ninja_log, they hardly depend on what else runs.

usage: build.py LOG COMPILER ARGUMENT...    as a launcher: -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/tests/bench/build.py;$PWD/LOG", in place of ccache
       build.py --table LOG                 prints seconds and files for each folder, and the ten slowest files
"""
import collections
import os
import pathlib
import resource
import subprocess
import sys


def launch(log, command):
    status = subprocess.run(command, check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else "?"
    with open(log, "a", encoding="utf-8") as file:  # one short write: compilations do not mix their lines
        file.write(f"{usage.ru_utime + usage.ru_stime:.2f}\t{os.path.relpath(output)}\n")
    return status


def print_table(log):
    seconds, files = collections.Counter(), collections.Counter()
    rows = [line.split("\t") for line in pathlib.Path(log).read_text(encoding="utf-8").splitlines()]
    for cost, output in rows:
        folder = output.split("/CMakeFiles/")[0]
        seconds[folder] += float(cost)
        files[folder] += 1
    for folder, cost in seconds.most_common():
        print(f"{cost:8.0f} s  {files[folder]:4} files  {folder}")
    print(f"{sum(seconds.values()):8.0f} s  {len(rows):4} files  in all; the slowest:")
    for cost, output in sorted(rows, key=lambda row: -float(row[0]))[:10]:
        print(f"{float(cost):8.1f} s  {output}")


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        print_table(sys.argv[2])
    else:
        sys.exit(launch(sys.argv[1], sys.argv[2:]))
