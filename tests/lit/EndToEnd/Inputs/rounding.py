"""rounding.py XFC_INTERPRET MODULE WEIGHTS WORK_FOLDER EXECUTABLE...: an executable rounds what the interpreter rounds.

MODULE is what the executable was compiled from, as `--emit differentiated` prints it, with the types of its target's rows (--xfc-types). For
a few random pairs of sentences, the executable must compute the loss and the gradients that the interpreter computes in f64 with the operands
of the same products, and the same rows, rounded to bf16. If an f32 lies so close to a tie that it rounds to the other neighbor than the f64,
whatever follows from it differs in the third digit, or more if an activation changes its sign. That happens in some of the pairs, in most of
them if rows are rounded, too; in a third of them at least, results must agree as they do in f32. If any kind of product rounds nothing, they
must not agree, so a product that rounds at another point is found. Plain Python.
"""
import json
import math
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

PAIRS = 9
SAME = 1e-4  # of a gradient's norm
ROUNDED_OTHERWISE = 1e-3


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\nexited {result.returncode}:\n{result.stderr}")


def norm(numbers):
    return math.sqrt(sum(x * x for x in numbers))


class Check:
    def __init__(self, interpret, module, weights, work, *executable):
        self.interpret, self.weights, self.executable = interpret, weights, executable
        self.path = {part: os.path.join(work, "rounding." + part) for part in ("mlir", "in", "json", "out", "result.json")}
        with open(module) as file:
            self.module = file.read()
        self.parameters = {name: list(values) for name, (_, values) in tensors.read(weights).items()}
        self.vocab = len(self.parameters["output.bias"])

    def executed(self, pair):
        tensors.write(self.path["in"], {name: ("I32", [1, len(ids)], ids) for name, ids in pair.items()})
        run(*self.executable, "forward", "--weights", self.weights, "--input", self.path["in"], "--output", self.path["out"], "--gradients",
            "--label-smoothing", "0.1")
        return {name: values for name, (_, values) in tensors.read(self.path["out"]).items() if name == "loss" or name.startswith("grad.")}

    def interpreted(self, module, pair):
        count = len(pair["labels"])
        with open(self.path["mlir"], "w") as file:
            file.write(module)
        with open(self.path["json"], "w") as file:
            json.dump(dict(source=[pair["source"]], target=[pair["target"]],
                           inputs=dict(self.parameters, labels=pair["labels"], smoothing=0.1, loss_scale=[1 / count] * count)), file)
        run(self.interpret, self.path["mlir"], self.path["json"], "--function", "loss_and_gradients", "-o", self.path["result.json"])
        with open(self.path["result.json"]) as file:
            results = {result["name"]: result["data"] for result in json.load(file)["results"] if result["name"] != "nll"}
        return dict(results, loss=[sum(results["loss"]) / count])

    def difference(self, found, wanted):
        """The largest difference of a tensor relative to its norm, or to a thousandth of the largest norm: some gradients are sums of zero."""
        if found.keys() != wanted.keys():
            sys.exit(f"results of other names: {sorted(found.keys() ^ wanted.keys())}")
        floor = max(map(norm, wanted.values())) / 1000
        return max(norm(a - b for a, b in zip(found[name], values, strict=True)) / max(floor, norm(values)) for name, values in wanted.items())

    def run(self):
        generator = random.Random(1)
        agreeing = []
        for _ in range(PAIRS):
            pair = {name: [generator.randrange(4, self.vocab) for _ in range(length)] for name, length in (("source", 3), ("target", 2))}
            pair["labels"] = [generator.randrange(4, self.vocab) for _ in pair["target"]]
            found = self.executed(pair)
            error = self.difference(found, self.interpreted(self.module, pair))
            print(f"differs by {error:.1e}")
            if error <= SAME:
                agreeing.append((pair, found))
        if len(agreeing) < PAIRS / 3:
            sys.exit(f"the executable and the interpreter agree on only {len(agreeing)} of {PAIRS} pairs")
        pair, found = agreeing[0]
        rounding = re.compile(r"(xfc\.\w+)(?= )([^:\n]*) in bf16")
        begin = self.module.index("@loss_and_gradients(")
        end = self.module.find("func.func", begin)
        kinds = sorted({match[1] for match in rounding.finditer(self.module, begin, end if end > 0 else len(self.module))})
        if len(kinds) < 4:
            sys.exit(f"only {kinds} round, expected at least linear, its two gradients, and a loss")
        for kind in kinds:
            without = rounding.sub(lambda match, kind=kind: match[1] + match[2] if match[1] == kind else match[0], self.module)
            error = self.difference(found, self.interpreted(without, pair))
            print(f"differs by {error:.1e} if {kind} rounds nothing")
            if not error > ROUNDED_OTHERWISE:
                sys.exit(f"whether {kind} rounds its operands makes no difference")


Check(*sys.argv[1:]).run()
