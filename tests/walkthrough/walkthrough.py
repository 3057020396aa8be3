"""Builds the examples of docs/CONTRIBUTING.md.

The examples of that file's sections are patches here. The patches must apply to the tree, one after the other, change no more files than
their sections promise and only those that the sections name, and add the lines that the sections quote. The changed files are then compiled
in a copy of the tree, without generating code, against the output of mlir-tblgen for the copy's definitions.

usage: walkthrough.py ROOT BUILD MLIR_TBLGEN LLVM_INCLUDE_DIR
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import compile_commands

# The heading, its patch, and how many files it may change by hand.
WALKTHROUGHS = [
    ("Add an elementwise op", "add-abs.patch", 5),
    ("Add an activation, as a step of model.json", "add-softsign.patch", 6),
    ("Add a fused op and its pass", "add-multiply-add.patch", 8),
    ("Add a target", "add-sm-87.patch", 2),
    ("Add a GPU core for a further architecture", "add-core.patch", 4),
    ("Add an element type", "add-f16.patch", 8),
]
# Generated files, and the definitions they are generated from.
GENERATED = {
    "XFCEnums.h.inc": ("compiler/Dialect/XFCOps.td", "-gen-enum-decls"),
    "XFCOps.h.inc": ("compiler/Dialect/XFCOps.td", "-gen-op-decls"),
    "XFCOps.cpp.inc": ("compiler/Dialect/XFCOps.td", "-gen-op-defs"),
    "Transforms/Passes.h.inc": ("compiler/Transforms/Passes.td", "-gen-pass-decls", "-name=Transforms"),
}


def run(command, **options):
    """A command's error output; empty if it succeeded."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    return "" if done.returncode == 0 else f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}"


def files_of(patch):
    return re.findall(r"^\+\+\+ b/(.*)$", patch, re.M)


def quoted(section):
    """The lines of code that the section shows, without indentation."""
    blocks = re.findall(r"^ *```(?:cpp|tablegen)\n(.*?)^ *```$", section, re.M | re.S)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def disagreements(document, heading, patch, most):
    """Where the section and the patch differ."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", document, re.M | re.S)
    if not section:
        return [f"has no section '## {heading}'"]
    files, lines = files_of(patch), quoted(section[1])
    added = [line[1:].strip() for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
    problems = [f"promises at most {most} files, and the patch changes {len(files)}"] if len(files) > most else []
    problems += [f"does not name `{file}`, which the patch changes" for file in files if f"`{file}`" not in section[1]]
    problems += [f"quotes a line that the patch does not add: {line}" for line in lines if line not in added]
    return problems if lines else [*problems, "quotes nothing of the patch"]


def compile_command(entries, root, copy, generated, file):
    """The build's compile command for a file, applied to that file of the copy, with the copy's generated files before those of the build. A
    file that only the copy has is compiled like another one in its folder."""
    known = root / file
    if str(known) not in entries:
        known = next(path for path in map(pathlib.Path, entries) if path.parent == known.parent)
    entry = entries[str(known)]
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    if "-o" in words:
        at = words.index("-o")
        words = words[:at] + words[at + 2:]

    def moved(word):
        if word == str(known):
            return str(copy / file)
        flag = "-I" if word.startswith("-I") else ""
        path = pathlib.Path(word[len(flag):])
        inside = path.relative_to(root) if path.is_absolute() and path.is_relative_to(root) else None
        return f"{flag}{copy / inside}" if inside and (copy / inside).exists() else word

    return [words[0], f"-I{generated}", *map(moved, words[1:]), "-fsyntax-only"], entry["directory"]


def prepare(root, folder, patches, tablegen, include):
    """Copies the tree into the folder, applies the patches, and regenerates the files that depend on them. Returns the copy and the generated folder."""
    copy, generated = folder / "xfc", folder / "generated"
    for part in ("compiler", "runtime", "tests/unit", "tests/lit"):
        shutil.copytree(root / part, copy / part)
    for patch in patches:
        # Outside a repository, git applies a patch to the folder's files.
        if complaint := run(["git", "apply", patch], cwd=copy, env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder)}):
            sys.exit(f"error: {patch} does not apply any more; bring it and docs/CONTRIBUTING.md up to date\n{complaint}")
    for output, (definitions, *modes) in GENERATED.items():
        (generated / output).parent.mkdir(parents=True, exist_ok=True)
        source = copy / definitions
        if complaint := run([tablegen, *modes, f"-I{source.parent}", f"-I{include}", source, "-o", generated / output]):
            sys.exit(f"error: {definitions}: {complaint}")
    return copy, generated


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    tablegen, include = sys.argv[3:5]
    here = pathlib.Path(__file__).resolve().parent
    document = (root / "docs/CONTRIBUTING.md").read_text(encoding="utf-8")
    entries = {entry["file"]: entry for entry in compile_commands.entries(build)}
    problems, changed = [], {}
    for heading, name, most in WALKTHROUGHS:
        patch = (here / name).read_text(encoding="utf-8")
        problems += [f"docs/CONTRIBUTING.md, {heading}: {problem}" for problem in disagreements(document, heading, patch, most)]
        changed.update(dict.fromkeys(files_of(patch)))
        print(f"{name}: {len(files_of(patch))} files")
    with tempfile.TemporaryDirectory() as folder:
        copy, generated = prepare(root, pathlib.Path(folder).resolve(), [here / name for _, name, _ in WALKTHROUGHS], tablegen, include)
        commands = [compile_command(entries, root, copy, generated, file) for file in changed if file.endswith(".cpp")]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            problems += filter(None, pool.map(lambda command: run(command[0], cwd=command[1]), commands))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(commands)} files compiled")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
