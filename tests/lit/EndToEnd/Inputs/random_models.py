"""random_models.py XFC XFC_OPT XFC_INTERPRET WORK_FOLDER FIRST_SEED COUNT: random models of the whole language, one per seed.

The fused executable, the one with `--no-fuse` and the interpreter must agree on logits, the encoder's output, the loss and
every gradient, in f64; the one with `--recompute=most` must equal the fused one bitwise. A failing seed is named, and its model is kept. Plain Python.
"""
import json
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

PAD = 0
TOLERANCE = 1e-10


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0
        self.padding = True  # every mask drops pads, so that sequences may differ in length
        # Each distinct shape means another kernel to compile, so a model has only one of each of these.
        self.hidden, self.key_dim, self.value_dim, self.divided = self.pick(5, 8, 19), self.pick(1, 3, 5), self.pick(2, 7), self.pick(1, 2, 2)
        self.norms = self.pick("layer_norm", "layer_norm", "rms_norm")
        self.variance, self.eps_in = self.pick("biased", "unbiased"), self.pick("variance", "std")
        self.function = self.pick("relu", "squared_relu", "gelu", "gelu_tanh", "silu", "tanh")

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, *choices):
        return self.random.choice(choices)

    def name(self, stem):
        self.names += 1
        return f"{stem}{self.names}"

    def norm(self):
        if self.norms == "rms_norm":
            return {"op": "rms_norm", "name": self.name("norm"), "eps": 1e-3}
        return {"op": "layer_norm", "name": self.name("norm"), "eps": 1e-3, "variance": self.variance, "eps_in": self.eps_in}

    def activation(self):
        return {"op": self.function}

    def linear(self, features):
        return {"op": "linear", "name": self.name("linear"), "features": features, "bias": self.chance(0.6)}

    def feed_forward(self, d):
        hidden = self.hidden
        if self.chance(0.4):
            first = [{"op": "gated", "name": self.name("gated"), "features": hidden, "activation": self.activation()["op"], "bias": self.chance(0.5)}]
        else:
            first = [self.linear(hidden), self.activation()]
        return first + self.dropout() + [self.linear(d)]

    def dropout(self):
        return [{"op": "dropout", "rate": 0.1}] if self.chance(0.3) else []

    def attention(self, d, cross):
        step = {"op": "attention", "name": self.name("attention"), "mask": self.pick(["padding"], ["padding"], ["padding", "causal"], ["causal"], [])}
        if cross:
            step["memory"] = "encoder"
            step["mask"] = self.pick(["padding"], ["padding"], [])
            if self.chance(0.4):
                step["memory_body"] = self.pick([self.norm()], [self.linear(self.hidden), self.norm()], [self.activation()])
        if "padding" not in step["mask"]:
            self.padding = False
        if not cross and self.chance(0.15):
            return {**step, "projections": False}
        step["heads"] = self.divided
        if self.chance(0.3):
            step.update(key_dim=self.key_dim, value_dim=self.value_dim)
        if self.chance(0.5):
            step["bias"] = self.pick(False, {"q": False, "v": False}, {"k": False})
        if self.chance(0.4):
            step["scale"] = self.pick("sqrt_model_dim", 1.5)
        if self.chance(0.3):
            step["dropout"] = 0.1
        if not cross and self.chance(0.4):
            step.update(distance_bias=self.pick("buckets", "slopes"), max_length=9)
            if step["distance_bias"] == "buckets":
                step.update(buckets=6, max_distance=5)
        if step["heads"] > 1 and self.chance(0.4):
            step["kv_heads"] = 1
        if not cross and self.chance(0.3):
            step["window"] = self.pick(1, 2, 4)
        features = step.get("key_dim", d // step["heads"])
        if not cross and features > 1 and self.chance(0.4):
            step.update(rotary=self.pick("interleaved", "halves"), rotary_base=self.pick(10000, 20), rotary_dim=2 * self.random.randint(1, features // 2), max_length=9)
        return {**step, "return_weights": self.chance(0.2)}

    def recurrence(self):
        bias = self.pick(True, False, {"value": False}, {"gate": False})
        return [{"op": "recurrence", "name": self.name("recurrence"), "bias": bias}] + self.pick([], [self.activation()])

    def sublayer(self, d, cross):
        if not cross and self.chance(0.2):
            body = self.recurrence()
        else:
            body = [self.attention(d, cross)] if cross or self.chance(0.5) else self.feed_forward(d)
        body += self.dropout()
        shape = self.random.random()
        if shape < 0.4:
            return [{"op": "residual", "body": [self.norm()] + body}]
        if shape < 0.8:
            return [{"op": "residual", "body": body}, self.norm()]
        return body + [{"op": "residual", "body": [{"op": "residual", "body": self.feed_forward(d)}, self.activation()]}]

    def stack(self, side, d, vocab, rows):
        steps = [] if rows else [{"op": "embedding", "name": "embed", "vocab": vocab, "dim": d, "scale": self.pick("none", "sqrt_dim", 0.7)}]
        if self.chance(0.3):
            steps.append({"op": "positions", "kind": "learned", "max_length": 9, "offset": self.pick(0, 2)})
        elif self.chance(0.6):
            steps.append({"op": "positions", "kind": "sinusoidal", "max_length": 9, "base": self.pick(10000, 50),
                          "offset": self.pick(0, 1), "layout": self.pick("interleaved", "halves"), "exponent_multiplier": self.pick(1, 2), "cosine_offset": self.pick(0, 1)})
        if self.chance(0.3):
            steps.append(self.norm())
        steps += self.dropout()
        if self.chance(0.2):
            d = self.pick(6, 8)
            steps.append(self.linear(d))
        sublayers = [False] * self.pick(1, 2) + ([True] if side == "decoder" else []) + [False] * self.pick(0, 1)
        layer = [step for cross in sublayers for step in self.sublayer(d, cross)]
        return {"input": steps, "layers": self.pick(1, 2, 2), "layer": layer, "output": self.pick([], [self.norm()])}, d

    def model(self):
        width, vocab = self.pick(6, 8, 12), self.pick(7, 17)
        rows = self.chance(0.15)
        encoder, _ = self.stack("encoder", width, vocab, rows)
        decoder, d = self.stack("decoder", width, vocab, False)
        head = self.pick([], [self.norm()], [{"op": "scale", "by": self.pick("rsqrt_dim", "sqrt_dim", 0.7)}], [self.linear(d), self.activation()]) + [self.linear(vocab)]
        model = {"format": "xfc-model/1", "name": "random", "params": {"d_model": width}, "encoder": encoder, "decoder": decoder, "head": head}
        share = [self.shared_tables(side, model[side]) for side in ("encoder", "decoder")]
        if not rows and d == width and self.chance(0.5):
            share.append(["decoder.embed.weight", self.pick("encoder.embed.weight", head[-1]["name"] + ".weight")])
        if any(share):
            model["share"] = [group for group in share if group]
        return model, width, vocab, rows

    def shared_tables(self, side, stack):
        """The tables of distance biases of all layers, half of the time, if there are several."""
        def named(steps):
            for step in steps:
                yield from named(step.get("body", []))
                if step.get("distance_bias") == "buckets":
                    yield step["name"], step["heads"]

        tables = [(f"{side}.layers.{i}.{name}.distance_bias.weight", heads) for name, heads in named(stack["layer"]) for i in range(stack["layers"])]
        share = [name for name, heads in tables if heads == tables[0][1]]
        return share if len(share) > 1 and self.chance(0.5) else []

    def ids(self, lengths, vocab):
        """Random ids, with pads among them, but never at the end."""
        return [[self.pick(PAD, *range(1, vocab)) for _ in range(length - 1)] + [self.random.randrange(1, vocab)] for length in lengths]


def run(*command):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexited {result.returncode}:\n{result.stderr}")
    return result.stdout


def rectangle(rows, width, fill=0):
    return [value for row in rows for value in row + [fill] * (width - len(row))]


def check(seed, xfc, opt, interpret, work):
    generator = Generator(seed)
    model, width, vocab, float_rows = generator.model()
    path = {part: os.path.join(work, f"{seed}.{part}") for part in
            ("json", "imported.mlir", "gradients.mlir", "weights", "in", "inputs.json", "fused", "plain", "again", "out", "result.json")}
    json.dump(model, open(path["json"], "w"), indent=1)
    compile_ = [xfc, "compile", path["json"], "--dtype", "f64", "--mode", "train"]
    run(*compile_, "-o", path["fused"])
    run(*compile_, "--no-fuse", "-o", path["plain"])
    run(*compile_, "--recompute=most", "-o", path["again"])
    run(*compile_, "--emit", "imported", "-o", path["imported.mlir"])
    run(opt, path["imported.mlir"], "--xfc-differentiate", "-o", path["gradients.mlir"])

    shapes = {name: [int(n) for n in shape.split("x")[:-1]] for shape, name in
              re.findall(r'tensor<([0-9x]+xf64)> \{xfc.name = "([^"]+)", xfc.role = "parameter"', open(path["imported.mlir"]).read())}
    parameters = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        # Norm gains are near 1.
        base, spread = (1, 0.2) if re.search(r"norm\d+\.weight$", name) else (0, 0.5)
        parameters[name] = [base + generator.random.gauss(0, spread) for _ in range(count)]
    lengths = [(5, 4), (1, 2), (4, 6)] if generator.padding else [(5, 4)] * 3
    source, target = (generator.ids([pair[side] for pair in lengths], vocab) for side in (0, 1))
    labels = generator.ids([len(row) for row in target], vocab)
    if float_rows:
        lengths = [(5, t) for _, t in lengths]
        numbers = [generator.random.gauss(0, 1) for _ in range(3 * 5 * width)]
        given = ("F64", [3, 5, width], numbers)
    else:
        given = ("I32", [3, 5], rectangle(source, 5))
    columns = max(map(len, target))
    tensors.write(path["weights"], {name: ("F64", shapes[name], values) for name, values in parameters.items()})
    tensors.write(path["in"], {"source": given, "target": ("I32", [3, columns], rectangle(target, columns)),
                               "labels": ("I32", [3, columns], rectangle(labels, columns))})
    flat = [label if label != PAD else -1 for row in labels for label in row]
    counted = sum(label >= 0 for label in flat)
    inputs = dict(parameters, labels=flat, smoothing=0.1, loss_scale=[1 / counted] * len(flat), **({"source": numbers} if float_rows else {}))
    json.dump({"source": [5] * 3 if float_rows else source, "target": target, "inputs": inputs}, open(path["inputs.json"], "w"))

    want = {}
    for function in ("forward", "loss_and_gradients"):
        run(interpret, path["gradients.mlir"], path["inputs.json"], "--function", function, "-o", path["result.json"])
        want.update((result["name"], result["data"]) for result in json.load(open(path["result.json"]))["results"])
    want["loss"] = [sum(want["loss"]) / counted]
    features = len(want["encoder_output"]) // sum(s for s, _ in lengths)
    kept = [float_rows or token != PAD for row in ([[1] * 5] * 3 if float_rows else source) for token in row]
    want["encoder_output"] = [x for i, x in enumerate(want["encoder_output"]) if kept[i // features]]

    # Squared activations one after another give numbers for which rounding decides what the model answers.
    if not max(map(abs, want["encoder_output"] + want["logits"])) < 1e6:
        print(f"seed {seed}: left out, since its numbers are too large")
        return False
    # Where large terms cancel, as in a softmax of one large score, rounding leaves more than a small result allows.
    rounding = 1e-12 * max(1, max(abs(x) for name, values in want.items() if name.startswith("grad.") for x in values))
    worst, written = 0.0, {}
    for kind in ("fused", "plain", "again"):
        run(path[kind], "forward", "--weights", path["weights"], "--input", path["in"], "--output", path["out"], "--gradients",
            "--label-smoothing", 0.1)
        out = tensors.read(path["out"])
        written[kind] = open(path["out"], "rb").read()
        got = {"loss": out["loss"][1]}
        for name, widest, side in (("logits", columns, 1), ("encoder_output", 5, 0)):
            (_, _, size), data = out[name]
            rows = [(b * widest + i) * size for b in range(3) for i in range(lengths[b][side])]
            rows = [row for row, keep in zip(rows, kept if name == "encoder_output" else [True] * len(rows), strict=True) if keep]
            got[name] = [x for row in rows for x in data[row : row + size]]
        got.update((name, out[name][1]) for name in out if name.startswith("grad."))
        if {name for name in got if name.startswith("grad.")} != {"grad." + name for name in parameters}:
            sys.exit(f"seed {seed}, {kind}: gradients of other parameters")
        for name, values in got.items():
            expected = want.get(name, [0.0] * len(values))  # 0 for a parameter on which the loss does not depend
            largest = max(map(abs, expected), default=0)
            error = max((abs(a - b) for a, b in zip(values, expected, strict=True)), default=0)
            if not error <= TOLERANCE * largest + rounding:
                sys.exit(f"seed {seed}, {kind}: {name} differs by {error:.2e}, largest {largest:.2e}; the model is {path['json']}")
            worst = max(worst, error / max(largest, 1e-3, rounding / TOLERANCE))
    if written["again"] != written["fused"]:
        sys.exit(f"seed {seed}: what is computed again is not the same, bit for bit; the model is {path['json']}")
    if not any(any(abs(x) > 1e-3 for x in values) for name, values in want.items() if name.startswith("grad.")):
        sys.exit(f"seed {seed}: every gradient is 0")
    print(f"seed {seed}: {len(parameters)} parameters, error {worst:.1e}")
    return True


def main():
    *tools, work, first, count = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    checked, seed = 0, int(first)
    while checked < int(count):
        checked += check(seed, *tools, work)
        seed += 1


main()
