#!/usr/bin/env python3
"""Checks that a program meets what is outside it in one way: no source but the readers calls the JSON library's parsers, or opens a file to read
it; none but the writer opens or names a file to write it; one table says what signals mean; weights are compared with the model that they are
for; and messages quote foreign files in one way.

    readers.py SOURCES

runtime/support/Json.cpp bounds size and depth of what it parses; the readers of runtime/support bound sizes, refuse devices, and keep outputs from
replacing inputs. Whatever goes round them has none of that. runtime/support/Signals.cpp has the table of signals, which holds in every verb and
from the first instruction on, unless a verb changes it. runtime/support/Quoted.cpp bounds and escapes names that have any length and any character
in foreign files. compiler/Import/ModuleLimits.cpp bounds what is nested in a module.
"""
import pathlib
import re
import sys

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"', re.DOTALL)
# The parsers of nlohmann, under any alias of the type. Parsers of ops in MLIR take an AsmParser.
PARSER = re.compile(r"\b(?:\w*[jJ]son\w*|nlohmann::\w+|Value|J)\s*::\s*(?:parse|accept|sax_parse|from_(?:cbor|msgpack|ubjson|bjdata|bson))\s*\("
                    r"|\bsax_parse\s*[(<]|\bjson_sax\w*|\bdetail::(?:parser|lexer)\b|>>\s*\w*[jJ]son\w*\b|\"_json\b")
ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*nlohmann::(?:ordered_)?json\b|\bnlohmann::(?:ordered_)?json\s+(\w+)\s*;|\bnamespace\s+(\w+)\s*=\s*nlohmann\b")
OPENING = re.compile(r"\b(?:std::)?(?:ifstream|fstream|filebuf)\b|\b(?:std::)?(?:fopen|freopen|fdopen)\s*\(|\bMemoryBuffer::getFile\w*|\bparseSourceFile\w*\s*[<(]"
                     r"|(?:(?<![\w:.>])|(?<!\w)::)open(?:at)?\s*\([^;]*?O_RDONLY")

PARSERS = {"runtime/support/Json.cpp"}
# Who else opens files, and why the readers do not serve.
OPENERS = {
    "runtime/support/Descriptor.cpp": "opens what is read as a whole",
    "runtime/support/Descriptor.h": "opens what is read otherwise",
    "runtime/support/LineReader.cpp": "is the reader of lines",
    "runtime/support/Files.cpp": "opens folders, to sync them",
    "runtime/support/FileWriter.cpp": "opens what a writer has left, to see whether it is still written",
    "runtime/support/Unfinished.cpp": "opens folders, to remove what is in them",
    "runtime/decode/Packed.cpp": "reads the executable that is running, part by part",
    "compiler/Foreign/Pickles.cpp": "looks at the first 512 bytes of a regular file",
    "compiler/Link/Link.cpp": "reads what the linker said into a file of ours",
    "compiler/Tools/xfc-interpret.cpp": "reads a module of ours, for tests",
    "compiler/Tools/xfc-ptx.cpp": "reads a module of ours, for tests",
    "runtime/device/cpu/AvailableMemory.cpp": "reads /proc and /sys line by line",
    "runtime/device/cpu/Features.cpp": "reads /proc line by line",
    "runtime/measure/BenchCommand.cpp": "reads /proc line by line",
}

# LLVM's streams write files, as the C++ library's do; a rename replaces a file, and so does a copy.
WRITING = re.compile(r"\b(?:std::)?ofstream\b|\braw_fd_(?:ostream|stream)\b|\bToolOutputFile\b|\bopenOutputFile\b|\bFileOutputBuffer\b"
                     r"|(?<![\w:.>])(?:creat|truncate|symlink)\s*\(|(?<!\w)::(?:creat|truncate|link|linkat|symlink|symlinkat|mkostemps?|mkstemps?)\s*\("
                     r"|(?:(?<![\w:.>])|(?<!\w)::)open(?:at)?\s*\([^;]*?\bO_(?:WRONLY|RDWR|CREAT)\b|(?:\bstd::|\bfs::|(?<!\w)::)rename(?:at2?)?\s*\(|(?<![\w:.>])rename\s*\(\s*\w+\.c_str"
                     r"|\bfs::(?:copy|copy_file)\s*\(|\bfilesystem::(?:rename|copy|copy_file)\s*\(")
WRITERS = {
    "runtime/support/FileWriter.cpp": "is the writer",
    "runtime/support/FileLock.cpp": "makes files that hold nothing but who holds them",
    "runtime/train/Log.cpp": "appends to a file that the writer has begun",
    "runtime/train/EventFile.cpp": "appends to a file that the writer has begun",
    "runtime/train/Checkpoint.cpp": "renames a state within the folder of its run",
    "compiler/Foreign/NewFolder.cpp": "renames a folder that it has made",
    "compiler/Link/Link.cpp": "writes objects for the linker into a folder that it has made",
}

# Whoever says what a signal does, or holds signals back.
SIGNALS = re.compile(r"\b(?:pthread_sigmask|sigprocmask)\s*\(|(?:\bstd::|(?<![\w:])::|(?<![\w:.>]))(?:signal|sigaction|bsd_signal|sysv_signal|sigset)\s*\(\s*(?:\w+\.)*\w+\s*,")
SIGNALLERS = {
    "runtime/support/Signals.cpp": "has the table",
    "runtime/support/Unfinished.cpp": "holds signals back while it removes what is unfinished",
    "runtime/support/MappedFile.cpp": "handles SIGBUS for the table",
    "runtime/support/CommandLine.cpp": "ends a process by the signal that has stopped its work",
    "runtime/train/Distill.cpp": "lets a teacher ignore what is meant for its student",
}

# Whoever reads weights, which belong to one model and to its vocabularies.
WEIGHTS = re.compile(r"\bparseSafetensors\s*\(")
WEIGHERS = {
    "runtime/tensors/Safetensors.h": "declares the parser",
    "runtime/tensors/Safetensors.cpp": "is the parser",
    "runtime/engine/Safetensors.cpp": "compares the model",
    "runtime/train/Checkpoint.cpp": "compares model and vocabularies with a run's state",
    "compiler/Foreign/OurModel.cpp": "compares model and vocabularies with the weights beside them",
    "compiler/Foreign/Weights.cpp": "reads foreign weights, which name no model",
    "runtime/app/ReportCommand.cpp": "compares the weights of a run with the model, and reads no numbers",
}

# Whoever parses modules of MLIR, whose parser recurses, or has MLIR print what is wrong with them, which opens what a location names.
MODULES = re.compile(r"\bparse(?:Asm)?Source(?:File|String)\w*\s*[<(]|\bSourceMgrDiagnosticHandler\b")
MODULE_READERS = {
    "compiler/Import/Module.cpp": "measures the text before",
    "compiler/Tools/xfc-interpret.cpp": "reads a module of ours, for tests",
    "compiler/Tools/xfc-ptx.cpp": "reads a module of ours, for tests",
}

# Quotation marks put round a value, in the folders that read names from foreign files.
QUOTING = re.compile(r"""(?:'|\\")"\s*\+(?!\+)""")
QUOTED = ("compiler/Foreign/", "runtime/tensors/")
QUOTERS = {"compiler/Foreign/Weights.cpp": "shows a command with a path, to be copied"}

# What is looked for, who may have it, and what all others use.
RULES = (
    (PARSER, PARSERS, "parseJson() of support/Json.h"),
    (OPENING, OPENERS, "readFile(), MappedFile or LineReader of runtime/support"),
    (WRITING, WRITERS, "writeFile() or FileWriter of support/FileWriter.h"),
    (SIGNALS, SIGNALLERS, "the table of support/Signals.cpp"),
    (WEIGHTS, WEIGHERS, "loadWeights() of engine/Safetensors.h"),
    (MODULES, MODULE_READERS, "parseModule() of Import/Import.h, and Diagnostics of Tools/Diagnostics.h"),
    (QUOTING, QUOTERS, "inQuotes() of support/Quoted.h"),
)


def problems_of(root):
    used = set()
    for top in ("runtime", "compiler"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            name = path.relative_to(root).as_posix()
            text = COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), path.read_text(encoding="utf-8"))
            aliases = {alias for found in ALIAS.findall(text) for alias in found if alias}
            names = "|".join(map(re.escape, aliases))
            through = rf"\b(?:{names})\s*(?:::\s*\w+\s*::|::|\.)\s*(?:parse|accept|sax_parse)\s*\(|>>\s*(?:{names})\s*;" if aliases else "(?!)"
            for pattern, allowed, instead in RULES:
                if pattern is QUOTING and not name.startswith(QUOTED):
                    continue
                places = [*pattern.finditer(text), *(re.finditer(through, text) if pattern is PARSER else ())]
                if places and name in allowed:
                    used.add((name, instead))
                elif places:
                    for found in places:
                        yield f"{name}:{text.count(chr(10), 0, found.start()) + 1}: '{found.group().strip()}': use {instead}"
    for _, allowed, instead in RULES:
        for name in allowed:
            if (name, instead) not in used and (root / name).exists():
                yield f"{name}: is listed in readers.py, and needs not to be: it has nothing in place of {instead}; take it off the list"


def main():
    problems = sorted(set(problems_of(pathlib.Path(sys.argv[1]).resolve())))
    for problem in problems:
        print(problem)
    print(f"{len(problems) or 'no'} problems", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
