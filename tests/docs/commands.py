"""Runs the commands of the documents: those in the READMEs, in docs/, and in the examples of --help, which the reference shows.

usage: commands.py ROOT BUILD [DOCUMENT...]

A command is executed here, if each of its programs is in RUN, with a model and numbers that make it cheap. If it cannot be, ELSEWHERE names the
test that executes it, which must contain what is said there, or NOT_RUN says why nothing does. Any other command is an error; so is an entry
that is about no command, and a command in a block that has no language, and is therefore not marked as one (```sh).
"""
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
sys.path.insert(0, str(ROOT / "docs"))
from website import Site

SHELL = {"sh", "bash", "console", "shell"}
RUN = {"xfc", "xfc-opt", "translator", "translate", "packed", "small", "base", "tiny", "teacher", "student", "echo", "printf", "cat", "awk", "cc", "nm", "objcopy", "sed", "source", "man"}
# These look for what they are asked to do in this build, and do not do it: the tests or targets must exist.
DRY = {"ninja", "ctest", "lit-22"}

# Commands, the test that executes them, and what must stand there.
SERVE, GPU_PACK = "tests/lit/EndToEnd/Inputs/check_serve.py", "tests/lit/EndToEnd/gpu-pack.test"
ELSEWHERE = [
    (r"tests/run\.sh", ".ci/run", "exec tests/run.sh"),
    (r"\.ci/setup\.sh -DXFC_BUILD_TESTS=ON", "tests/run.sh", ".ci/setup.sh -DXFC_BUILD_TESTS=ON"),
    (r"\.ci/package\.sh OUT", "tests/packages/run.py", '".ci/package.sh"'),
    (r"xfc demo --minutes 5", "tests/lit/EndToEnd/Inputs/check_demo.py", '[xfc, "demo", "--minutes"'),
    (r"\S*xfc compile .* --target cpu,cuda .*", "tests/lit/EndToEnd/cuda-archs.test", "--target cpu,cuda"),
    (r"\./translator train --device cuda .*", "tests/lit/EndToEnd/Inputs/check_cuda.py", '"--device", device'),
    (r"mpirun -n 4 \./translator train --device cuda .*", "tests/lit/EndToEnd/ranks.test", "Inputs/ranks.py %openmpi %t/gpu"),
    (r"mpirun -n 4 \./translator train --source .*", "tests/lit/EndToEnd/ranks.test", "Inputs/ranks.py %openmpi %t/translator %t/openmpi equal"),
    (r"\./translator serve --model .*|translator serve --model .*", SERVE, '[program, "serve"'),
    (r"\./packed serve --direction en-fr", SERVE, 'program=folder / "packed"'),
    (r"curl .* http://127\.0\.0\.1:5000/translate", SERVE, 'server.post("/translate"'),
    (r"translator selfcheck --promises", "tests/lit/EndToEnd/promises.test", "selfcheck --promises"),
    (r"translator report run other .*", "tests/lit/EndToEnd/text.test", "report %t/run --line 3 --trace"),
    (r"translator forward .*", "tests/lit/EndToEnd/reference-encoder-block.test", "forward --weights"),
    (r"python3 -c \"from transformers import MarianMTModel .*", "tests/lit/EndToEnd/Inputs/check_import.py", ".from_pretrained(exported"),
    (r"tests/promises/sums\.py build/bin/xfc", "tests/lit/EndToEnd/promises.test", "promises/sums.py %xfc"),
    (r"python3 tests/faults/faults\.py .*", "tests/lit/EndToEnd/faults.test", "faults/faults.py %xfc --executables"),
    (r"tests/gpu/pack\.sh .*", GPU_PACK, "pack.sh"),
    (r"python3 -m tarfile -e pack\.tar\.xz gpu", GPU_PACK, "tarfile"),
    (r"python3 gpu/verify\.py correctness", GPU_PACK, "gpu/verify.py correctness"),
    (r"python3 gpu/tables\.py results\.jsonl", GPU_PACK, "gpu/tables.py"),
    (r"tests/sanitizers/run\.sh address", "tests/fuzz/CMakeLists.txt", "tests/sanitizers/run.sh address"),
    (r"tests/fuzz/run\.sh --seconds .*", "tests/fuzz/CMakeLists.txt", "run.sh --seconds"),
    (r"tests/bench/run\.sh --only .*", "tests/lit/EndToEnd/bench.test", "bench/bench.py --quick"),
]
# Commands that no test executes, and why.
NOT_RUN = [
    (r"docs/demo/run\.sh", "installs packages, builds, and trains for minutes; tests run what it calls, .ci/setup.sh and `xfc demo`"),
    (r"(cmake --preset|cmake --build --preset|ctest --preset) asan.*", "builds everything again with a sanitizer, in half an hour; the ctest `sanitized` builds a part"),
    (r"mpirun --host .*|srun .*", "needs several machines"),
    (r"tests/fuzz/run\.sh --(executions|compiler) .*", "fuzzes for hours"),
    (r"tests/bench/curves\.py .*", "draws with matplotlib, which the tests do not install"),
    (r"tests/promises/mixes\.py .*|tests/bench/(train_torch|fusions|serve)\.py .*", "measures for minutes, some of it other libraries"),
]
# What makes a command cheap, or fit what is here; the model that each name means is small, too.
CHANGED = [
    (r" --minutes [\d.]+(?= |$)| --(steps|warmup|batch-tokens|trace-steps) [\d:]+(?= |$)", ""),
    (r"(\./\w+|\btranslator) train\b", r"\1 train --steps 4 --save-every 2 --keep 5 --batch-tokens 512 --warmup 2 --quiet"),
    (r"( train .*) --trace trace.json", r"\1 --trace trace.json --trace-steps 2:3"),
    (r"--size \d+", "--size 60"),
    (r"-v n=100000000", "-v n=300"),
    (r"--set (source|target)_vocab=\d+", r"--set \1_vocab=60"),
    (r" --source \.\.\.", " ... --out initialized"),
    (r" \.\.\.", " --source my.en --target my.fr --vocab spm.model"),
    (r"libgerman\.a", "build/libsmall.a"),
    (r"Apfelbaum\\tRind \|\| Kuh", r"su\\tsu || a"),
    (r"--bad-sequences Rind", "--bad-sequences su"),
    (r"--required-phrases Kuh", "--required-phrases su"),
]
PRELUDE = """set -eo pipefail
ulimit -t 120
trap 'echo "error: $where: this command failed" >&2' ERR
man() { local page; page=$(cat); [[ $page == *.SH* ]]; }
lists() { local said; said=$("${@:2}"); grep -qE "$1" <<<"$said"; }
# In a build of a few targets, unit tests have no names yet.
ctest() { lists 'Total Tests: [1-9]' command ctest -N "${@/#build/$BUILD}" || lists _NOT_BUILT command ctest -N --test-dir "$BUILD"; }
lit-22() { lists " :: .*${*: -1}" command lit-22 --show-tests "${@/#build/$BUILD}"; }
ninja() { command ninja -n "${@/#build/$BUILD}" >/dev/null; }
"""


def logical_lines(text):
    """Commands of a block, with their lines: those that end with a backslash go on, as do here-documents."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        begin = at
        heredoc = re.search(r"<<'?(\w+)'?$", lines[at])
        while at + 1 < len(lines) and (lines[at] != heredoc[1] if heredoc else lines[at].endswith("\\")):
            at += 1
        at += 1
        command = "\n".join(lines[begin:at])
        if command.strip() and not command.startswith("#"):
            yield begin, re.sub(r"\s+# .*", "", command) if not heredoc else command


def looks_like_a_command(line):
    return re.match(r"(\$ |\./\w|(\S*/)?xfc [a-z]|translator [a-z]|(build|tests|docs|\.ci)/\S+ ?|(python3|cmake|ctest|ninja|mpirun|curl|apt\S*|sudo|dpkg|pip) )", line)


def commands_of(site, problems):
    """Document, line and command of each in the documents."""
    for _, pages in site.groups:
        for page in pages:
            for token in page.tokens:
                if token.type not in ("fence", "code_block"):
                    continue
                line = token.map[0] + (2 if token.type == "fence" else 1)
                language = token.info.split()[0] if token.info.strip() else ""
                if language in SHELL:
                    yield from ((page.source, line + offset, command.removeprefix("$ ")) for offset, command in logical_lines(token.content))
                elif page.source.startswith("docs/reference/") and not language:
                    for match in re.finditer(r"^Examples?:\n((?:  .*\n?)+)", token.content, re.M):
                        for offset, command in logical_lines(match[1]):
                            yield page.source, line + token.content[:match.start(1)].count("\n") + offset, command.strip()
                elif not language:
                    problems += [f"{page.source}:{line + offset}: a command in a block that is not marked as ```sh: {text}" for offset, text in enumerate(token.content.splitlines()) if looks_like_a_command(text)]


def programs(command):
    """The programs that a command starts."""
    words = shlex.shlex(command.split("\n")[0] if "<<" in command else command.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&")
    words.whitespace_split = True
    found, begins, skipped = [], True, False
    for word in words:
        if set(word) <= set("();<>|&"):
            begins, skipped = word not in ("<", ">", ">>", "<<"), False
        elif begins:
            found.append(word)
            begins = False
    return found


def classify(places, problems):
    """The commands to execute here."""
    used, executed, elsewhere, not_run = set(), [], 0, 0
    for document, line, command in places:
        entry = next((entry for entry in ELSEWHERE + NOT_RUN if all(re.fullmatch(entry[0], part) for part in re.split(r" && ", command))), None)
        if entry:
            used.add(entry)
            elsewhere, not_run = elsewhere + (len(entry) == 3), not_run + (len(entry) == 2)
        elif unknown := [name for name in programs(command) if os.path.basename(name) not in RUN | DRY]:
            problems.append(f"{document}:{line}: nothing executes this, since {unknown[0]} is not in RUN; add it to RUN, ELSEWHERE or NOT_RUN of tests/docs/commands.py: {command}")
        else:
            executed.append((document, line, command))
    for entry in ELSEWHERE + NOT_RUN:
        if entry not in used:
            problems.append(f"tests/docs/commands.py: no document has a command like {entry[0]}")
    for pattern, test, part in ELSEWHERE:
        if not (ROOT / test).exists() or part not in (ROOT / test).read_text(encoding="utf-8"):
            problems.append(f"{test}: does not contain '{part}' any more, which executes {pattern}")
    print(f"{len(places)} commands: {len(executed)} executed here, {elsewhere} by other tests, {not_run} by none")
    return executed


def prepare(folder):
    """The files that the documents take for granted: text, a vocabulary, small models under the names of all that ship, and one of them trained."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("build/bin", "build/share/xfc", "models"):
        (folder / part).mkdir(parents=True)
    shutil.copy2(BUILD / "bin/xfc", folder / "build/bin/xfc")  # looks for models beside itself
    (folder / "build/bin/xfc-opt").symlink_to(BUILD / "bin/xfc-opt")
    for part in ("lib", "include"):
        if (BUILD / part).exists():
            (folder / "build" / part).symlink_to(BUILD / part)
    (folder / "build/share/xfc/models").symlink_to("../../../models")
    for part in ("docs", "tests"):
        (folder / part).symlink_to(ROOT / part)
    model = json.loads((ROOT / "models/original.json").read_text(encoding="utf-8"))
    model["params"].update(d_model=16, heads=2, encoder_layers=1, decoder_layers=1, d_ff=32)
    for name in [*(path.name for path in (ROOT / "models").glob("*.json") if path.name != "schema.json"), "../model.json", "../student.json"]:
        (folder / "models" / name).write_text(json.dumps(model), encoding="utf-8")
    pairs = subprocess.run([sys.executable, ROOT / "tests/lit/EndToEnd/Inputs/make_text.py", "1", "200"], capture_output=True, text=True, check=True).stdout.splitlines()
    sides = ["".join(pair.split("\t")[side] + "\n" for pair in pairs) for side in (0, 1)]
    for stem in ("my", "a", "b", "train", "valid", "test"):
        for side, language in enumerate(("en", "fr")):
            (folder / f"{stem}.{language}").write_text(sides[side])
    for name, text in {"en-de.en": sides[0], "en-de.de": sides[1], "en-fr.en": sides[0], "en-fr.fr": sides[1], "lines": sides[0][:200], "ids": "5 6 7\n", "a.weights": "1\n" * len(pairs),
                       "a.links": "0-0\n" * len(pairs)}.items():
        (folder / name).write_text(text)
    (folder / "script").write_text(PRELUDE + """where='the preparation'
xfc vocab --input my.en my.fr --size 60 -o spm.model 2>&1
xfc compile original --vocab spm.model --distillation 8 -o translator 2>&1
cp spm.model vocab.model
./translator train --source my.en --target my.fr --vocab spm.model --out run --steps 4 --save-every 2 --keep 5 --batch-tokens 512 --warmup 2 --quiet
./translator pack --model run -o packed
for name in small base teacher student; do ln translator $name; done
for name in run-de run2 from-end other teacher-run student-run; do cp -r run $name; done
xfc export run --to hf -o opus-mt-en-de
""")
    return execute(folder)


def execute(folder):
    environment = {**os.environ, "PATH": f"{folder}/build/bin:{folder}:{os.environ['PATH']}", "XFC_CACHE": str(BUILD / "tests/docs/cache"), "BUILD": str(BUILD)}
    with open(folder / "said", "w+", encoding="utf-8", errors="replace") as said:
        done = subprocess.run(["bash", "script"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, timeout=500)
        said.seek(0)
        return [] if done.returncode == 0 else [line.rstrip() for line in said.readlines()[-8:]]


def script_of(places):
    lines = [PRELUDE]
    for document, line, command in places:
        for pattern, replacement in CHANGED:
            command = re.sub(pattern, replacement, command)
        lines.append(f"where={document}:{line}")
        # A new run wants a new folder.
        if new := re.search(r"\btrain\b.* --out (\S+)", command):
            lines.append(f"rm -rf {new[1]}")
        lines.append(command)
    return "\n".join(lines) + "\n"


def main():
    site, problems = Site(ROOT), []
    site.read_navigation()
    executed = classify(list(commands_of(site, problems)), problems)
    work = BUILD / "tests/docs/work"
    (BUILD / "tests/docs/cache").mkdir(parents=True, exist_ok=True)
    if complaint := prepare(work / "template"):
        sys.exit("\n".join(complaint))
    for document in sys.argv[3:] or dict.fromkeys(document for document, _, _ in executed):
        folder = work / "here"
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["cp", "-al", work / "template", folder], check=True)
        for name in ("script", "said"):
            (folder / name).unlink()
        (folder / "script").write_text(script_of([place for place in executed if place[0] == document]), encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        complaint = execute(folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{document}: {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} CPU seconds", flush=True)
        if complaint:
            problems.append("\n".join(complaint))
    for problem in problems:
        print(problem if "error:" in problem else f"error: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
