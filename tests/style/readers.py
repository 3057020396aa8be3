#!/usr/bin/env python3
"""Checks that files from outside are read in one way: no source but the readers calls the JSON library's parsers, or opens a file to read it,
and messages quote what the files say in one way.

    readers.py SOURCES

runtime/support/Json.cpp bounds size and depth of what it parses; runtime/support/Files.cpp bounds sizes, refuses devices, and keeps outputs from
replacing inputs. Whatever goes round them has none of that. runtime/support/Quoted.cpp bounds and escapes names that have any length and any
character in foreign files.
"""
import pathlib
import re
import sys

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"', re.DOTALL)
# The parsers of nlohmann, under any alias of the type. Parsers of ops in MLIR take an AsmParser.
PARSER = re.compile(r"\b(?:\w*[jJ]son\w*|nlohmann::\w+|Value|J)\s*::\s*(?:parse|accept|sax_parse|from_(?:cbor|msgpack|ubjson|bjdata|bson))\s*\("
                    r"|\bsax_parse\s*[(<]|\bjson_sax\w*|\bdetail::(?:parser|lexer)\b|>>\s*\w*[jJ]son\w*\b|\"_json\b")
ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*nlohmann::(?:ordered_)?json\b|\bnlohmann::(?:ordered_)?json\s+(\w+)\s*;|\bnamespace\s+(\w+)\s*=\s*nlohmann\b")
OPENING = re.compile(r"\b(?:std::)?(?:ifstream|fstream|filebuf)\b|\b(?:std::)?(?:fopen|freopen|fdopen)\s*\(|\bMemoryBuffer::getFile\w*|::open(?:at)?\s*\([^;]*?O_RDONLY")

PARSERS = {"runtime/support/Json.cpp"}
# Who else opens files, and why the readers do not serve.
OPENERS = {
    "runtime/support/Files.cpp": "is the reader",
    "runtime/support/Unfinished.cpp": "opens folders, to remove what is in them",
    "runtime/decode/Packed.cpp": "reads the executable that is running, part by part",
    "compiler/Foreign/Pickles.cpp": "looks at the first 512 bytes of a regular file",
    "compiler/Link/Link.cpp": "reads what the linker said into a file of ours",
    "runtime/device/cpu/AvailableMemory.cpp": "reads /proc and /sys line by line",
    "runtime/device/cpu/Features.cpp": "reads /proc line by line",
    "runtime/app/BenchCommand.cpp": "reads /proc line by line",
}

# Quotation marks put round a value, in the folders that read names from foreign files.
QUOTING = re.compile(r"""(?:'|\\")"\s*\+(?!\+)""")
QUOTED = ("compiler/Foreign/", "runtime/tensors/")
QUOTERS = {"compiler/Foreign/Weights.cpp": "shows a command with a path, to be copied"}


def problems_of(root):
    used = set()
    for top in ("runtime", "compiler"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            name = path.relative_to(root).as_posix()
            text = COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), path.read_text(encoding="utf-8"))
            aliases = {alias for found in ALIAS.findall(text) for alias in found if alias}
            through = re.compile(r"\b(?:%s)\s*(?:::\s*\w+\s*::|::|\.)\s*(?:parse|accept|sax_parse)\s*\(" % "|".join(map(re.escape, aliases))) if aliases else None
            for pattern, allowed, instead in ((PARSER, PARSERS, "parseJson() of support/Json.h"), (through, PARSERS, "parseJson() of support/Json.h"),
                                              (OPENING, OPENERS, "readFile(), MappedFile or LineReader of support/Files.h"),
                                              (QUOTING if name.startswith(QUOTED) else None, QUOTERS, "inQuotes() of support/Quoted.h")):
                for found in pattern.finditer(text) if pattern else ():
                    if name in allowed:
                        used.add(name)
                    else:
                        yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: '{found.group().strip()}': use {instead}"
    for name in sorted((PARSERS | OPENERS.keys() | QUOTERS.keys()) - used):
        if (root / name).exists():
            yield f"{name}: is listed in readers.py, and neither reads nor quotes anything itself; take it off the list"


def main():
    problems = sorted(set(problems_of(pathlib.Path(sys.argv[1]).resolve())))
    for problem in problems:
        print(problem)
    print(f"{len(problems) or 'no'} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
