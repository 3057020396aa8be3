"""Runs clang-tidy with the checks of .clang-tidy over the C++ files of a folder, and compiles them with clang's warnings; each warning fails.

Folders take turns, since checking all of them takes minutes: a folder is checked if one of the last commits or an edit touched it, and
otherwise in every nth commit; the exit status is 77, which ctest shows as skipped, if it is not. With XFC_TIDY=all in the environment, or without a commit history, every folder is checked.

Reading MLIR's headers takes longer than all checks, so clang-tidy reads one generated file that includes all .cpp files of the folder. Files
that one of the last commits or an edit touched are also compiled alone, so that each includes what it needs.
Files with a name that would hide or redefine another file's go into separate generated files. A clean result is recorded in the build
folder under a hash of everything that was read, so that a second run takes no time.

usage: tidy.py ROOT BUILD CLANG_TIDY FOLDER TURN    (FOLDER: relative to ROOT, e.g. compiler/GPU; TURN: number/count, e.g. 3/20)
"""
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import compile_commands

RECENT = 4  # commits whose folders are checked
# Where custom-unordered-ops is checked.
ORDERED = {"compiler/CPU", "compiler/CPU/Builder", "compiler/CPU/Products", "compiler/Codegen", "compiler/GPU", "compiler/Import", "compiler/Kernels", "compiler/Plain", "compiler/Schedule", "compiler/Transforms"}


def git(root, *words):
    """git's output, or None if there is no repository or the history is too short."""
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def edited(root, folder):
    """The C++ files of the folder that one of the last commits or an edit touched, or none if the history is too short."""
    changed = git(root, "diff", "--name-only", "--diff-filter=d", f"HEAD~{RECENT}", "--", f"{folder}/") or ""
    return [root / name for name in changed.split() if name.endswith(".cpp") and pathlib.Path(name).parent == pathlib.Path(folder)]


def is_due(root, folder, turn):
    """Whether the folder is to be checked in this run."""
    if os.environ.get("XFC_TIDY") == "all":
        return True
    commits = git(root, "rev-list", "--count", "HEAD")
    changed = git(root, "diff", "--name-only", f"HEAD~{RECENT}", "--", f"{folder}/")
    mine, turns = map(int, turn.split("/"))
    return commits is None or changed is None or changed != "" or int(commits) % turns == mine


def flags_of(root, build, folder):
    """Include paths, definitions and warnings of the folder's compile commands. Generated and external headers become system headers: they are not checked."""
    flags = {}
    for entry in compile_commands.entries(build):
        if pathlib.Path(entry["file"]).parent != root / folder:
            continue
        words = iter(shlex.split(entry["command"]))
        for word in words:
            if word == "-isystem" or word.startswith("-I"):
                path = pathlib.Path(next(words) if word == "-isystem" else word[2:]).resolve()
                ours = path.is_relative_to(root) and not path.is_relative_to(build)
                flags[f"-I{path}" if ours else f"-isystem{path}"] = None
            elif word.startswith(("-D", "-std=")) or word.startswith("-W") and "error" not in word:
                flags[word] = None
    return list(flags)


def read(root, flags, path, seen):
    """{path: text} of a file and of all files of the tree that it includes; for generated ones, of their .td files."""
    if path in seen:
        return seen
    seen[path] = text = path.read_text(encoding="utf-8")
    for name in re.findall(r'^#include "([^"]+)"', text, re.M):
        bases = [path.parent, *(pathlib.Path(flag[2:]) for flag in flags if flag.startswith("-I"))]
        found = next((base / name for base in bases if (base / name).is_file()), None)
        if found:
            read(root, flags, found.resolve(), seen)
        elif name.endswith(".inc"):
            seen.update({td: td.read_text(encoding="utf-8") for td in root.glob("compiler/*/*.td")})
    return seen


def names_of(text):
    """The names that a file declares at namespace scope, and those of them that are local to it. In formatted code, both begin in the first column."""
    everywhere, local, hidden = set(), set(), False
    for line in text.splitlines():
        if line.startswith(("namespace {", "} // namespace")):
            hidden = line == "namespace {"
        elif re.match(r"[A-Za-z]", line) and not line.startswith(("namespace", "using namespace")):
            pattern = r"(?<!:)\b([a-z_]\w*\(.*)" if "(" in line else r"(?<!:)\b([a-z_]\w*)(?=\[|;| [={]|$)"
            names = set(re.findall(pattern, line, re.I))
            everywhere |= names
            if hidden or line.startswith("static"):
                local |= names
    return everywhere, local


def groups_of(root, flags, files):
    """Groups of files that can be read together: no file sees another's local names."""
    groups = []
    for file in files:
        visible = set().union(*(names_of(text)[0] for text in read(root, flags, file, {}).values()))
        local = names_of(file.read_text(encoding="utf-8"))[1]
        group = next((g for g in groups if not local & g["visible"] and not visible & g["local"]), None)
        if not group:
            groups.append(group := {"files": [], "visible": set(), "local": set()})
        group["files"].append(file)
        group["visible"] |= visible
        group["local"] |= local
    return [group["files"] for group in groups]


def check(tidy, root, flags, work, files):
    """clang-tidy's findings in these files, or an empty string."""
    unity = work / (re.sub(r"\W", "_", str(files[0].relative_to(root))) + ".cpp")
    unity.write_text("".join(f'#include "{file}"\n' for file in files))
    # libstdc++ 12 uses deprecated parts of itself in its algorithms.
    quiet = ["-Wno-unknown-warning-option", "-Wno-deprecated-declarations", "-Wno-missing-field-initializers"]
    words = [tidy, "--quiet", f"--config-file={root}/.clang-tidy", "--checks=-bugprone-suspicious-include", "--warnings-as-errors=*"]
    if str(files[0].parent.relative_to(root)) in ORDERED:
        words.append("--experimental-custom-checks")
    done = subprocess.run([*words, unity, "--", *flags, "-fPIC", *quiet], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    said = done.stdout.strip() or done.stderr.strip()
    if "[clang-diagnostic-error]" not in said or len(files) == 1:
        return said
    # Either names clash in a way that groups_of does not detect, or a file does not compile: then it does not compile alone either.
    wrong = {name for name in re.findall(r"^(/[^:]+):\d+:\d+: error: .*\[clang-diagnostic-error\]", said, re.M)}
    apart = [file for file in files if str(file) in wrong] or files[len(files) // 2:]
    rest = [file for file in files if file not in apart]
    parts = [rest, apart] if rest else [[file] for file in apart]
    return "\n".join(filter(None, (check(tidy, root, flags, work, part) for part in parts)))


def main():
    root, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    tidy, folder, turn = sys.argv[3:]
    if not pathlib.Path(tidy).exists():
        sys.exit("clang-tidy-22 was not found: apt-get install clang-tidy-22")
    if not is_due(root, folder, turn):
        print(f"no commit of the last {RECENT} touched it, and it is not its turn; XFC_TIDY=all checks it")
        sys.exit(77)
    files, flags = sorted((root / folder).glob("*.cpp")), flags_of(root, build, folder)
    if not files or not flags:
        sys.exit(f"{folder} has no file that {build}/compile_commands.json names")

    inputs = {}
    for file in files:
        read(root, flags, file, inputs)
    sha = hashlib.sha256(subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout)
    for path in [pathlib.Path(__file__), root / ".clang-tidy", *sorted(inputs)]:
        sha.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    sha.update("\0".join(flags).encode())
    work = build / "tests/style/tidy"
    work.mkdir(parents=True, exist_ok=True)
    stamp = work / (folder.replace("/", "_") + ".clean")
    if stamp.exists() and stamp.read_text() == sha.hexdigest():
        print(f"{len(files)} files, clean since the last run")
        return

    groups = groups_of(root, flags, files)
    said = [text for text in (check(tidy, root, flags, work, group) for group in groups) if text]
    # Neither here nor in the build (XFC_UNITY) is a file compiled alone, which finds what it uses without including it.
    alone = [] if said else edited(root, folder)
    for file in alone:
        done = subprocess.run([tidy.replace("clang-tidy", "clang++"), "-fsyntax-only", "-w", *flags, file], capture_output=True, text=True)
        if done.returncode:
            said.append(done.stderr.strip())
    if said:
        sys.exit("\n".join(said).replace(f"{root}/", ""))
    stamp.write_text(sha.hexdigest())
    print(f"{len(files)} files, read in {len(groups)} runs" + (f", {len(alone)} also alone" if alone else ""))


if __name__ == "__main__":
    main()
