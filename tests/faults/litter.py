"""litter.py XFC [OPTION...]: sends signals to commands while they read and make files, and looks for what they leave.

Each command runs again and again; in each run, a signal comes at another operation on the files of a folder, which is also
that of temporary files. The process has to die of the signal, and to leave nothing but files that are complete: the folder
holds what was there before, and what the command has already finished. SIGUSR1, which asks for a save, and SIGPIPE and SIGXFSZ,
which are errors of what is written to, do not disturb it. Needs a C compiler for interpose.c. Plain Python.
"""
import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile

from faults import HERE, PATIENCE, operations, walk

SIZES = ["d_model=16", "d_ff=32", "encoder_layers=1", "decoder_layers=1"]
TINY = os.path.realpath(os.path.join(HERE, "../../models/tiny.json"))
MODEL = ["--model", "../run", "--threads", "1"]
VOCABULARY = ["--vocab", "../vocab.model"]

# What runs in an empty folder; XFC and EXE stand for the compiler and for an executable with its model in ../run.
COMMANDS = {
    "prepare": ["EXE", "prepare", "--source", "../text", "--target", "../text", *VOCABULARY, "--out", "pairs"],
    "average": ["EXE", "average", "../run/last.safetensors", "../run/best.safetensors", "--output", "average.safetensors"],
    "translate": ["EXE", "translate", *MODEL, "--input", "../text", "--output", "translations", "--beam", "1", "--attention-svg", "attention.svg"],
    "encode": ["EXE", "encode", *VOCABULARY, "--input", "../text", "--output", "ids"],
    "shortlist": ["EXE", "shortlist", *VOCABULARY, "--source", "../text", "--target", "../text", "--output", "lexicon"],
    "forward": ["EXE", "forward", *MODEL, "--input", "../batch.safetensors", "--output", "results.safetensors"],
    "report": ["EXE", "report", "../run", "--output", "report.html"],
    "pack": ["EXE", "pack", *MODEL, "--output", "packed"],
    "selfcheck": ["EXE", "selfcheck", "--promises", "--mixes", "1", "--threads", "1"],
    "compile": ["XFC", "compile", TINY, *VOCABULARY, *(word for size in SIZES for word in ("--set", size)), "--output", "compiled"],
    "export": ["XFC", "export", "../run", "--to", "ctranslate2", "--output", "exported"],
    "import": ["XFC", "import", "../exported", "--output", "imported"],
    "vocab": ["XFC", "vocab", "--input", "../text", "--size", "30", "--output", "vocab.model"],
    "inspect": ["XFC", "inspect", "../run", "--svg", "graph.svg"],
    "info": ["EXE", "info", "--model", "../run"],
    "score": ["EXE", "score", *MODEL, "--source", "../text", "--target", "../text"],
    "bench": ["EXE", "bench", "decode", "--beam", "1", "--steps", "1", "--threads", "1", "--trace", "trace.json"],
}
# What ends a command, and what does not (runtime/support/Signals.h).
ENDING = ["TERM", "INT", "HUP", "QUIT", "XCPU", "ALRM", "USR2"]
PASSING = ["USR1", "PIPE", "XFSZ"]


class Bench:
    def __init__(self, options):
        self.xfc, self.work = os.path.realpath(options.xfc), os.path.realpath(options.work)
        self.case, self.interposer, self.executable = (os.path.join(self.work, name) for name in ("case", "interpose.so", "tiny"))
        os.makedirs(self.work, exist_ok=True)
        subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", self.interposer, os.path.join(HERE, "interpose.c")], check=True)
        generator = random.Random(1)
        with open(os.path.join(self.work, "text"), "w") as file:
            for _ in range(200):
                print(*("".join(generator.choices("abcdefgh", k=generator.randint(1, 4))) for _ in range(generator.randint(1, 6))), file=file)
        with open(os.path.join(self.work, "batch.safetensors"), "wb") as file:
            header = b'{"source":{"dtype":"I32","shape":[1,2],"data_offsets":[0,8]},"target":{"dtype":"I32","shape":[1,2],"data_offsets":[8,16]}}'
            file.write(len(header).to_bytes(8, "little") + header + b"".join(id.to_bytes(4, "little") for id in (5, 6, 2, 5)))
        self.make([self.xfc, "vocab", "--input", "text", "--size", "30", "--output", "vocab.model"])
        self.make([self.xfc, *(self.executable if word == "compiled" else word.replace("../", "") for word in COMMANDS["compile"][1:])])
        self.make([self.executable, "train", "--source", "text", "--target", "text", "--vocab", "vocab.model", "--out", "run", "--steps", "4",
                   "--batch-tokens", "200", "--threads", "1", "--valid-source", "text", "--valid-target", "text", "--valid-every", "4"])
        self.make([self.xfc, "export", "run", "--to", "ctranslate2", "--output", "exported"])

    def make(self, command):
        done = subprocess.run(command, cwd=self.work, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"error: {' '.join(command)} ends with {done.returncode}: {done.stderr}")

    def run(self, command, links={}, **faults):
        """Runs a command in a folder that holds nothing but links; returns its status, its messages and what it leaves, as walk() does."""
        with tempfile.TemporaryDirectory(dir=self.work) as self.case:
            os.mkdir(os.path.join(self.case, "temporary"))
            for name, target in links.items():
                os.symlink(target, os.path.join(self.case, name))
            environment = dict(os.environ, LD_PRELOAD=self.interposer, XFC_FAULTS_FOLDER=self.work, TMPDIR=os.path.join(self.case, "temporary"))
            environment.update({"XFC_FAULTS_" + key: str(value) for key, value in faults.items()})
            words = [{"EXE": self.executable, "XFC": self.xfc}.get(word, word).replace("../", self.work + "/") for word in COMMANDS[command]]
            done = subprocess.run(words, cwd=self.case, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
            return done.returncode, done.stderr.decode(errors="replace"), walk(self.case)

    def count(self, command):
        """The number of a command's operations, and the names that it leaves when it is not disturbed."""
        record = os.path.join(self.work, "record")
        status, error, names = self.run(command, RECORD=record)
        if status != 0:
            sys.exit(f"error: {command} ends with {status}: {error}")
        return len(operations(record, self.work)), set(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xfc", help="the compiler")
    parser.add_argument("--work", help="folder for the runs (default: a temporary one)")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="which, between commas")
    parser.add_argument("--signals", default="TERM", help="which, between commas; they take turns. all: each that the table of signals has")
    parser.add_argument("--sample", type=int, default=0, help="so many of each command's operations (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    temporary = None if options.work else tempfile.TemporaryDirectory()
    options.work = options.work or temporary.name
    for name in ENDING:  # the caller may ignore some, and so would the commands
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)
    bench, generator = Bench(options), random.Random(options.seed)
    print("{:12}{:>12}{:>8}{:>10}".format("command", "operations", "runs", "findings"))
    failed = False
    names = itertools.cycle(ENDING + PASSING if options.signals == "all" else options.signals.split(","))
    for command in options.commands.split(","):
        count, complete = bench.count(command)
        numbers = range(1, count + 1)
        if options.sample and options.sample < count:
            numbers = sorted(generator.sample(numbers, options.sample))
        findings = 0
        for number in numbers:
            name = next(names)
            sent = getattr(signal, "SIG" + name)
            status, error, left = bench.run(command, AT=number, KIND="signal", SIGNAL=int(sent))
            left = set(left)
            undisturbed = status == 0 and left == complete
            if not undisturbed if name in PASSING else status != -sent or left - complete:
                findings += 1
                print(f"{command}: SIG{name} at operation {number} of {count}: status {status}, leaves {sorted(left - complete)}: {error}", file=sys.stderr)
        failed |= findings > 0
        print(f"{command:12}{count:12}{len(numbers):8}{findings:10}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
