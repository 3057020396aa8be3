"""out_of_memory.py XFC [OPTION...]: lets allocations of memory fail in the commands of an executable.

Each command runs again and again; in each run another allocation fails: that one alone, or also all later ones that are as large.
The command has to end with status 1 and a message, or, where it can do without that memory, with status 0 and the same results
(`report` may leave out its drawing, and says so); never by a signal, and never without a word. Then `train` runs under limits of its address space: it refuses to start, or trains and
saves to the end. Needs a C compiler for allocate.c. Plain Python.
"""
import argparse
import hashlib
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120  # seconds; no run takes that long
SIZES = ["source_vocab=40", "target_vocab=40", "d_model=16", "d_ff=32", "encoder_layers=1", "decoder_layers=1"]
MODEL = ["--weights", "../run/last.safetensors", "--format", "ids", "--threads", "2"]
PAIRS = ["--source", "../a", "--target", "../b"]

# What runs in an empty folder beside those of the data and of a run.
COMMANDS = {
    "prepare": ["prepare", "--format", "ids", *PAIRS, "--out", "pairs"],
    "train": ["train", "--format", "ids", *PAIRS, "--out", "run", "--steps", "3", "--save-every", "2", "--batch-tokens", "60", "--threads", "2",
              "--valid-source", "../a", "--valid-target", "../b", "--valid-every", "2"],
    "translate": ["translate", *MODEL, "--input", "../a", "--output", "translations", "--beam", "2"],
    "words": ["translate", "--weights", "../run/last.safetensors", "--vocab", "../vocab.model", "--threads", "2", "--input", "../text", "--output",
              "translations", "--beam", "2"],
    "encode": ["encode", "--vocab", "../vocab.model", "--input", "../text", "--output", "ids"],
    "score": ["score", *MODEL, *PAIRS],
    "evaluate": ["evaluate", *MODEL, *PAIRS],
    "average": ["average", "../run/last.safetensors", "../run/best.safetensors", "--output", "average.safetensors"],
    "report": ["report", "../run", "--output", "report.html"],
}


class Bench:
    def __init__(self, options):
        self.work = pathlib.Path(options.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.case, self.library, self.executable = self.work / "case", self.work / "allocate.so", self.work / "tiny"
        subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", self.library, HERE / "allocate.c"], check=True)
        if not self.executable.exists():
            sizes = [word for size in SIZES for word in ("--set", size)]
            subprocess.run([options.xfc, "compile", HERE / "../../models/tiny.json", "-o", self.executable, *sizes], check=True, stderr=subprocess.DEVNULL)
        generator = random.Random(1)
        for name in ("a", "b"):
            lines = (" ".join(str(generator.randrange(4, 40)) for _ in range(generator.randint(1, 6))) for _ in range(12))
            (self.work / name).write_text("".join(line + "\n" for line in lines))
        words = ("".join(generator.choices("abcdefghijklmnop", k=generator.randint(1, 5))) for _ in range(1000))
        (self.work / "text").write_text("".join(" ".join(line) + "\n" for line in zip(*[words] * 5)))
        subprocess.run([options.xfc, "vocab", "--input", self.work / "text", "--size", "40", "-o", self.work / "vocab.model"], check=True,
                       stderr=subprocess.DEVNULL)
        (self.work / "text").write_text("".join((self.work / "text").read_text().splitlines(True)[:12]))
        shutil.rmtree(self.work / "run", ignore_errors=True)
        self.run("train")
        shutil.move(self.case / "run", self.work / "run")

    def run(self, command, limit=None, **variables):
        """Runs a command in an empty folder, with so many bytes of address space; returns its status, its messages and its results."""
        shutil.rmtree(self.case, ignore_errors=True)
        self.case.mkdir()
        environment = dict(os.environ, LD_PRELOAD=str(self.library), **{"XFC_ALLOCATIONS_" + key: str(value) for key, value in variables.items()})
        run = subprocess.run([self.executable, *COMMANDS[command]], cwd=self.case, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, timeout=PATIENCE,
                             preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))))
        return run.returncode, run.stderr.decode(errors="replace"), run.stdout + self.results()

    def results(self):
        """A digest of the files; states and logs name times, and are left out."""
        digest = hashlib.sha256()
        for path in sorted(self.case.rglob("*")):
            if path.is_file() and path.suffix not in (".lock", ".jsonl", ".json") and path.parent.name != "state":
                digest.update(f"{path.relative_to(self.case)}\n".encode() + path.read_bytes())
        return digest.digest()

    def count(self, command):
        file = self.work / "count"
        status, error, results = self.run(command, COUNT=file)
        if status != 0:
            sys.exit(f"error: {command} ends with {status}: {error}")
        return int(file.read_text()), results


def limited(bench):
    """Looks for the least address space in which `train` starts; returns the number of runs, and what went wrong."""
    refused, starts, runs, wrong = 8 << 20, 4 << 30, 0, []
    while starts - refused > 1 << 20:
        limit = (refused + starts) // 2
        status, error, _ = bench.run("train", limit=limit)
        runs += 1
        begun = (bench.case / "run/train.jsonl").exists()
        if status == 0 and (bench.case / "run/last.safetensors").exists():
            starts = limit
        else:
            refused = limit
            if status != 1 or "error: " not in error or begun:
                wrong.append(f"train in {limit >> 20} MB: status {status}{' after it had begun' if begun else ''}: {error or 'no message'}")
    return runs, starts, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xfc", help="the compiler")
    parser.add_argument("--work", help="folder for the runs; one in memory makes it fast (default: a temporary one)")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="which, between commas")
    parser.add_argument("--sample", type=int, default=0, help="so many of each command's allocations (default: all)")
    parser.add_argument("--first", type=int, default=0, help="and all of the first ones, up to this number")
    parser.add_argument("--kinds", default="once,on", help="which, between commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    temporary = None if options.work else tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    options.work = options.work or temporary.name
    bench, generator = Bench(options), random.Random(options.seed)
    line = "{:12}{:>13}{:>8}{:>10}{:>10}{:>10}"
    print(line.format("command", "allocations", "runs", "messages", "did without", "findings"))
    failed = False
    for command in options.commands.split(","):
        allocations, expected = bench.count(command)
        numbers = range(1, allocations + 1)
        if options.sample and options.sample < allocations:
            numbers = sorted({*generator.sample(numbers, options.sample), *numbers[:options.first]})
        runs = messages = without = findings = 0
        for number in numbers:
            for kind in options.kinds.split(","):
                status, error, results = bench.run(command, AT=number, KIND=kind)
                runs += 1
                if (status == 1 and "error: " in error) or (status == 0 and "report: leaving out the drawing" in error):
                    messages += 1
                elif status == 0 and results == expected:
                    without += 1
                else:
                    findings += 1
                    print(f"{command}: allocation {number} of {allocations}, {kind}: status {status}, "
                          f"{'other results' if status == 0 else error or 'no message'}", file=sys.stderr)
        failed |= findings > 0
        print(line.format(command, allocations, runs, messages, without, findings), flush=True)
    runs, least, wrong = limited(bench)
    print(f"train with limits of its address space: {runs} runs, the least in which it starts is {least >> 20} MB, findings: {len(wrong)}")
    print("\n".join(wrong), file=sys.stderr)
    sys.exit(failed or bool(wrong))


if __name__ == "__main__":
    main()
