#!/usr/bin/env python3
"""Checks that link lines are the architecture, in runtime/ and compiler/.

    includes.py --root SOURCES --targets FILE

FILE is what CMake wrote about its libraries and executables, one a line: name|folder|sources|what it links itself, with
';' between sources and between links. A file may include a header of its own target, or of one that its target links
itself; whatever comes by way of another library does not count, and neither does a link that no include uses. No folder
may be reached from itself through includes.
"""
import argparse
import os
import re
import sys
from collections import defaultdict

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def included(path):
    with open(path, encoding="utf-8") as file:
        return INCLUDE.findall(file.read())


def circles(edges):
    """Folders that are reached from themselves: the strongly connected parts of more than one."""
    reach = {}
    for start in edges:
        seen, waiting = set(), [start]
        while waiting:
            for other in edges.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        reach[start] = seen
    return sorted({tuple(sorted(f for f in reach[start] if start in reach.get(f, ()))) for start in edges if start in reach[start]})


class Target:
    def __init__(self, line, root):
        self.name, folder, sources, links = line.rstrip("\n").split("|")
        self.links = set(filter(None, links.split(";")))
        self.sources = {os.path.normpath(os.path.join(folder, s)) for s in sources.split(";") if s and "$<" not in s}
        self.sources = {s for s in self.sources if s.startswith(root) and s.endswith((".cpp", ".h", ".td"))}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--targets", required=True)
    options = parser.parse_args()
    root = os.path.realpath(options.root)
    with open(options.targets, encoding="utf-8") as file:
        targets = [Target(line, root) for line in file if line.strip()]

    # Whose a header is: of the target that has a source of the same name beside it, else of the only one of the folder.
    tops = [os.path.join(root, top) for top in ("runtime", "compiler")]
    folders = defaultdict(list)
    for target in targets:
        for source in target.sources:
            if target not in folders[os.path.dirname(source)]:
                folders[os.path.dirname(source)].append(target)
    owner, problems = {}, []
    for top in tops:
        for folder, _, files in os.walk(top):
            for file in sorted(files):
                if not file.endswith((".h", ".cpp")):
                    continue
                path = os.path.join(folder, file)
                stem = os.path.splitext(path)[0]
                owners = [t for t in folders[folder] if stem + ".cpp" in t.sources or path in t.sources]
                if not owners and folder.endswith("/xfc"):
                    owners = [t for t in targets if t.name == "xfc_abi"]
                owners = owners or (folders[folder] if len(folders[folder]) == 1 else [])
                if not owners:
                    problems.append(f"{os.path.relpath(path, root)}: belongs to no target, or to several; "
                                    "give its folder one library, or name it as one of its sources")
                owner[path] = owners

    by_name = {os.path.basename(path): path for path in owner}

    def find(path, name):
        for base in (os.path.dirname(path), *tops, os.path.join(root, "runtime/abi"), os.path.join(root, "runtime/include")):
            candidate = os.path.normpath(os.path.join(base, name))
            if candidate in owner:
                return candidate
        return by_name.get(name)  # None: generated, or another project's

    edges, used = defaultdict(dict), defaultdict(set)
    for path in sorted(owner):
        here = os.path.relpath(path, root)
        for name in included(path):
            header = find(path, name)
            if not header:
                continue
            if name.startswith(".") or ("/" not in name and os.path.dirname(header) != os.path.dirname(path)):
                problems.append(f'{here}: includes "{name}"; includes begin at runtime/ or compiler/')
            for target in owner[path]:
                for other in owner[header]:
                    if target in owner[header]:
                        continue
                    used[target.name].add(other.name)
                    if other.name not in target.links:
                        problems.append(f'{here}: includes "{name}" of {other.name}, which {target.name} does not link')
            folder, other = os.path.dirname(here), os.path.dirname(os.path.relpath(header, root))
            if folder != other:
                edges[folder].setdefault(other, here)
    names = {t.name for t in targets}
    for target in targets:
        for link in sorted((target.links & names) - used[target.name]):
            if any(t.name == link and any(s in owner for s in t.sources) for t in targets) and target.sources & owner.keys():
                problems.append(f"{target.name}: links {link}, of which it includes nothing")
    for circle in circles(edges):
        ways = [f"{a} includes {b} in {edges[a][b]}" for a in circle for b in edges[a] if b in circle]
        problems.append("folders in a circle: " + "; ".join(ways))

    for problem in sorted(set(problems)):
        print(problem)
    print(f"{len(owner)} files of {len(targets)} targets: {len(set(problems)) or 'no'} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
