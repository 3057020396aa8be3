"""outputs.py XFC: gives each command of litter.py an output that is a link to one of its inputs, and looks whether the input is still there.

Each output of a command is such a link in one run for each file that the command reads, the program itself among them. The command has to refuse
that with a message that says so, before it has made anything else, and the input keeps its bytes. Verbs that are in no command of
litter.py have to be known here, with the reason: whoever adds a verb decides whether it writes. Plain Python.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

from litter import COMMANDS, Bench

# What writes no file that the user names, or is tried elsewhere.
OTHERS = {"decode": "writes as encode does", "evaluate": "writes no file", "serve": "writes no file", "train": "writes into a run, as tests/faults/faults.py tries",
          "demo": "works in a folder of its own", "import": "makes a new folder", "export": "makes a new folder", "models": "writes no file", "phases": "writes no file", "completion": "writes no file", "man": "writes no file"}
OUTPUTS = ("--out", "--output", "--attention-svg", "--svg", "--trace")
REFUSED = re.compile(r"error: (\S+): is (the same file as \S+, )?(an input of this command|the program that is running)")


def verbs(program):
    said = subprocess.run([program, "none"], capture_output=True, text=True).stderr
    return set(re.search(r"verbs: (.*)", said)[1].split(", "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xfc", help="the compiler")
    parser.add_argument("--work", help="folder for the runs (default: a temporary one)")
    options = parser.parse_args()
    temporary = None if options.work else tempfile.TemporaryDirectory()
    options.work = options.work or temporary.name
    bench = Bench(options)
    known = verbs(bench.xfc) | verbs(bench.executable)
    unknown = known - set(COMMANDS) - set(OTHERS)
    problems = [f"{verb}: a verb that is in neither COMMANDS of litter.py nor OTHERS of outputs.py" for verb in sorted(unknown)]
    tried = 0
    for command, words in COMMANDS.items():
        inputs = [os.path.join(bench.work, word[3:]) for word in words if word.startswith("../")]
        inputs = [name for given in inputs for name in ([given] if os.path.isfile(given) else [os.path.join(given, "best.safetensors")])]
        inputs = [name for name in inputs if os.path.isfile(name)] + ([bench.executable] if words[0] == "EXE" else [])
        outputs = [word for option, word in zip(words, words[1:]) if option in OUTPUTS and command not in OTHERS]
        for output in outputs:
            for name in dict.fromkeys(inputs):
                with open(name, "rb") as file:
                    before = file.read()
                status, error, left = bench.run(command, links={output: name})
                with open(name, "rb") as file:
                    same = file.read() == before
                tried += 1
                if status != 1 or not REFUSED.search(error) or not same or set(left) - {output, "temporary"}:
                    problems.append(f"{command}: {output} is a link to {name}: status {status}, {'' if same else 'the input has changed, '}leaves {sorted(left)}: {error}")
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{tried} outputs that are inputs, {len(problems)} findings")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
