"""Compares an executable of xfc with PyTorch (reference.py): forward, gradients, twenty steps of each optimizer, greedy search.

Usage: check.py XFC MODELS_FOLDER MODEL WORK_FOLDER VARIANT...
A variant is one or more of forward, train and greedy, followed by arguments of `xfc compile`, all separated by blanks; one process
checks all of them, since importing PyTorch takes longer than most checks. With `--dtype f64` among the arguments, values and gradients must agree to 1e-12.
Prints the largest error of each kind of tensor, relative to the tensor's largest value; exits 1 above the tolerance.
"""
import math
import os
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.optimization import Adafactor

sys.path.insert(0, os.path.dirname(__file__))
from reference import MODELS  # noqa: E402

TOLERANCES = {torch.float32: 3e-5, torch.float64: 1e-12}
dtype = torch.float32  # the executable's
PAD, START, EOS = 0, 2, 3
SIZES = dict(d_model=32, d_ff=24, encoder_layers=2, decoder_layers=2, source_vocab=11, target_vocab=10, max_length=20)
failures = []


def sizes_of(name, extra):
    """The sizes of the reference, and the values for `--set`."""
    sizes = dict(SIZES)
    if not MODELS[name].translates:
        settings = dict(d_model=32, encoder_layers=2, **({} if name == "plain-attention" else dict(heads=4, d_ff=24)))
        settings.update((key, int(value)) for key, value in (word.split("=") for flag, word in zip(extra, extra[1:]) if flag == "--set"))
        return {**sizes, **settings, "encoder_heads": settings.get("heads"), "decoder_heads": 0}, settings
    if MODELS[name].tied:
        sizes["source_vocab"] = sizes["target_vocab"]
    heads = {"encoder_heads": 4, "decoder_heads": 2 if name == "memory-norm" else 4}
    settings = dict(sizes)
    if name == "memory-norm":
        settings.update(heads)
    else:
        settings["heads"] = 4
    if name == "free-head-dims":
        settings.update(key_dim=5, value_dim=7)
        sizes.update(key_dim=5, value_dim=7)
    return {**sizes, **heads}, settings


def run(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexited {result.returncode}:\n{result.stderr}")
    return result.stdout


def compare(kind, got, want, rows=None):
    got, want = got.double(), want.double()
    if got.shape != want.shape:
        failures.append(f"{kind}: shape {tuple(got.shape)}, expected {tuple(want.shape)}")
        return 0.0
    if rows is not None:
        got, want = got[rows], want[rows]
    error = ((got - want).abs().max() / want.abs().max().clamp_min(1e-30)).item() if got.numel() else 0.0
    if not error <= TOLERANCES[dtype]:
        failures.append(f"{kind}: {error:.2e}")
    return error


def load(file):
    tensors = load_file(file)
    failures.extend(f"{name} is {tensor.dtype}" for name, tensor in tensors.items() if tensor.dtype != dtype)
    return tensors


def compile_model(xfc, models, name, work, extra):
    sizes, settings = sizes_of(name, extra)
    executable = os.path.join(work, name)
    run(xfc, "compile", os.path.join(models, name + ".json"), "-o", executable, *extra,
        *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")))
    return executable, MODELS[name](**sizes)


def random_parameters(model, seed):
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, shape in model.shapes().items():
        value = torch.randn(shape, generator=generator, dtype=torch.float64)
        # Norm gains are near 1; everything else is large enough for the nonlinearities to matter.
        value = 1 + 0.2 * value if "norm.weight" in name else value * (0.3 if len(shape) == 2 else 0.2)
        parameters[name] = value.to(dtype)
    return parameters


def batch():
    """Lengths 1 to 9, pads at the end and inside, a source that is all pads, and a target of one token."""
    generator = torch.Generator().manual_seed(7)
    source = torch.randint(4, 10, (6, 9), generator=generator)
    target = torch.randint(4, 10, (6, 7), generator=generator)
    labels = torch.randint(4, 10, (6, 7), generator=generator)
    target[:, 0] = START
    for row, (s, t) in enumerate([(9, 7), (1, 3), (5, 1), (8, 6), (4, 7), (0, 4)]):
        source[row, s:] = PAD
        target[row, t:] = PAD
        labels[row, t:] = PAD
    source[3, 2] = source[3, 5] = PAD
    target[3, 3] = PAD
    labels[0, 2] = PAD
    return source, target, labels


def loss_of(logits, labels, smoothing):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=smoothing)


def check_rows(executable, model, name, work):
    """Rows of numbers through a model that is only an encoder: one row, and numbers of rows that do not fill blocks or tiles."""
    parameters = random_parameters(model, 1)
    weights, inputs, output = (os.path.join(work, f"{name}.{part}.safetensors") for part in ("w", "in", "out"))
    save_file(parameters, weights)
    for batch, columns in ((1, 1), (3, 37), (2, 130)):
        rows = torch.randn(batch, columns, model.d_model, generator=torch.Generator().manual_seed(columns), dtype=torch.float64)
        rows = (rows * model.d_model**-0.25).to(dtype)  # scores near 1, so that no softmax picks one key alone
        save_file({"source": rows}, inputs)
        run(executable, "forward", *(["--weights", weights] if parameters else []), "--input", inputs, "--output", output, "--attention")
        out = load(output)
        encoded, attentions = model.forward_rows({key: value.double() for key, value in parameters.items()}, rows.double())
        if set(out) != {"encoder_output"} | {f"attention.{key}" for key in attentions}:
            failures.append(f"the output holds {sorted(out)}")
            continue
        worst = max(compare(f"attention.{key}", out[f"attention.{key}"], value) for key, value in attentions.items())
        print(f"{name} {batch} x {columns}: encoder_output {compare('encoder_output', out['encoder_output'], encoded):.1e}, attention {worst:.1e}")


def check_forward(executable, model, name, work):
    if not model.translates:
        return check_rows(executable, model, name, work)
    parameters = random_parameters(model, 1)
    source, target, labels = batch()
    weights, inputs = os.path.join(work, name + ".w.safetensors"), os.path.join(work, name + ".in.safetensors")
    save_file(parameters, weights)
    save_file({"source": source.int(), "target": target.int(), "labels": labels.int()}, inputs)
    leaves = {key: value.double().requires_grad_() for key, value in parameters.items()}
    logits, encoded, attentions = model.forward(leaves, source, target)
    real = (target != PAD) | (labels != PAD)
    rows = torch.zeros_like(real)
    for b in range(len(real)):  # all columns up to the last one that is not padding
        if real[b].any():
            rows[b, : real[b].nonzero().max() + 1] = True
    for smoothing in (0.0, 0.1):
        output = os.path.join(work, name + ".out.safetensors")
        run(executable, "forward", "--weights", weights, "--input", inputs, "--output", output, "--attention", "--gradients",
            "--label-smoothing", smoothing)
        out = load(output)
        for value in leaves.values():
            value.grad = None
        loss = loss_of(logits, labels, smoothing)
        loss.backward(retain_graph=True)
        worst = {
            "logits": compare("logits", out["logits"], logits.detach(), rows),
            "encoder_output": compare("encoder_output", out["encoder_output"], encoded.detach() * (source != PAD)[..., None]),
            "loss": compare("loss", out["loss"].reshape(()), loss.detach()),
        }
        worst["attention"] = 0.0
        for key, value in attentions.items():
            if f"attention.{key}" not in out:
                failures.append(f"attention.{key} is missing")
                continue
            queries = (source != PAD) if key.startswith("encoder") else rows
            keep = queries[:, None, :].expand(-1, value.shape[1], -1)
            worst["attention"] = max(worst["attention"], compare(f"attention.{key}", out[f"attention.{key}"], value.detach(), keep))
        worst["gradient"] = 0.0
        for key, value in leaves.items():
            if f"grad.{key}" not in out:
                failures.append(f"grad.{key} is missing")
                continue
            grad = value.grad if value.grad is not None else torch.zeros_like(value)
            if grad.abs().max() < 1e-12:  # a key's bias does not change the softmax, so there is nothing to be relative to
                if out[f"grad.{key}"].abs().max() > TOLERANCES[dtype] / 20:
                    failures.append(f"grad.{key}: not 0")
                continue
            worst["gradient"] = max(worst["gradient"], compare(f"grad.{key}", out[f"grad.{key}"], grad))
        for key, value in out.items():
            if not torch.isfinite(value).all():
                failures.append(f"{key} is not finite")
        print(f"{name} smoothing {smoothing}: " + ", ".join(f"{kind} {error:.1e}" for kind, error in worst.items()))


def write_ids(file, rows):
    with open(file, "w") as stream:
        stream.writelines(" ".join(map(str, row)) + "\n" for row in rows)


def corpus():
    generator = torch.Generator().manual_seed(11)
    draw = lambda: torch.randint(4, 10, (int(torch.randint(1, 9, (1,), generator=generator)),), generator=generator).tolist()  # noqa: E731
    return [draw() + [EOS] for _ in range(24)], [draw() for _ in range(24)]


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


class Lion(torch.optim.Optimizer):
    """Lion as in its paper (Chen et al., 2023, algorithm 2); PyTorch does not have it."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, settings)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p -= group["lr"] * (torch.lerp(p.grad, mean, beta1).sign() + group["weight_decay"] * p)
                mean.lerp_(p.grad, 1 - beta2)


# The flags of an optimizer, whose name is what precedes a colon; the same optimizer in PyTorch; and the limit for elements of a gradient.
OPTIMIZERS = {
    "adam": (["--lr", 1e-3, "--betas", "0.9,0.98", "--adam-eps", "1e-9"], lambda leaves: torch.optim.Adam(leaves, lr=1e-3, betas=(0.9, 0.98), eps=1e-9), math.inf),
    "adam:decayed": (["--lr", 1e-3, "--betas", "0.8,0.95", "--adam-eps", "1e-4", "--weight-decay", 0.1, "--ema", 0.7],
                     lambda leaves: torch.optim.Adam(leaves, lr=1e-3, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1), math.inf),
    "adamw": (["--lr", 1e-3, "--betas", "0.85,0.9", "--adam-eps", "1e-5", "--weight-decay", 0.2, "--clip-value", 0.02],
              lambda leaves: torch.optim.AdamW(leaves, lr=1e-3, betas=(0.85, 0.9), eps=1e-5, weight_decay=0.2), 0.02),
    "sgd": (["--lr", 0.1, "--momentum", 0.8, "--weight-decay", 0.01, "--clip-value", 0.02, "--ema", 0.7], lambda leaves: torch.optim.SGD(leaves, lr=0.1, momentum=0.8, weight_decay=0.01), 0.02),
    "lion": (["--lr", 1e-3, "--betas", "0.9,0.99", "--weight-decay", 0.1, "--ema", 0.7], lambda leaves: Lion(leaves, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1), math.inf),
    "adafactor": (["--lr", 1e-3, "--weight-decay", 0.1, "--clip-threshold", 0.5, "--decay-rate", -0.6, "--ema", 0.7],
                  lambda leaves: Adafactor(leaves, lr=1e-3, relative_step=False, scale_parameter=False, weight_decay=0.1, clip_threshold=0.5, decay_rate=-0.6), math.inf),
    "adafactor:scaled": (["--lr", 0.01, "--scale-parameter", "--weight-decay", 0.01, "--adafactor-eps", "1e-20,0.05", "--clip-value", 0.02],
                         lambda leaves: Adafactor(leaves, lr=0.01, relative_step=False, scale_parameter=True, weight_decay=0.01, eps=(1e-20, 0.05)), 0.02),
}


def train(executable, work, name, steps, optimizer):
    sources, targets = corpus()
    a, b, out = (os.path.join(work, f"{name}.{part}") for part in ("src", "tgt", f"run{steps}.{optimizer.replace(':', '.')}"))
    write_ids(a, sources)
    write_ids(b, targets)
    subprocess.run(["rm", "-rf", out], check=True)
    run(executable, "train", "--source", a, "--target", b, "--format", "ids", "--out", out, "--steps", steps, "--batch-tokens", 4096,
        "--schedule", "constant", "--warmup", 0, "--clip-norm", 1.0, "--label-smoothing", 0.1, "--seed", 3,
        "--optimizer", optimizer.split(":")[0], *OPTIMIZERS[optimizer][0])
    return out


# The steps of these agree only if both sides compute in f64. Lion's are the signs of numbers that may be near 0. Those of Adafactor are large here:
# after a few, it shows which inputs of a ReLU that are near 0 are rounded to positive numbers.
EXACT = ("lion", "adafactor:scaled")
# Whether an update rule is right does not depend on the model: these run for one of them, to save time.
ONCE = ("adam:decayed", "adamw")


def check_train(executable, model, name, work):
    for rule in OPTIMIZERS:
        if (rule not in EXACT or dtype == torch.float64) and (rule not in ONCE or name == "tiny"):
            check_optimizer(executable, model, name, work, rule)


def check_optimizer(executable, model, name, work, rule):
    first = load(os.path.join(train(executable, work, name, 0, rule), "last.safetensors"))
    leaves = {key: value.double().requires_grad_() for key, value in first.items()}
    if set(leaves) != set(model.shapes()):
        sys.exit(f"the parameters differ: {sorted(set(leaves) ^ set(model.shapes()))}")
    sources, targets = corpus()
    source, target = padded(sources), padded([[START] + row for row in targets])
    labels = padded([row + [EOS] for row in targets])
    optimizer = OPTIMIZERS[rule][1](leaves.values())
    average = {key: value.detach().double().clone() for key, value in first.items()}
    for step in range(1, 21):
        optimizer.zero_grad()
        loss_of(model.forward(leaves, source, target)[0], labels, 0.1).backward()
        for value in leaves.values():
            if value.grad is None:
                value.grad = torch.zeros_like(value)
        norm = torch.nn.utils.get_total_norm([value.grad for value in leaves.values()])
        for value in leaves.values():  # clip_grad_norm_ divides by the norm + 1e-6
            value.grad *= min(1, 1 / norm)
        torch.nn.utils.clip_grad_value_(leaves.values(), OPTIMIZERS[rule][2])
        optimizer.step()
        for key, value in leaves.items():
            average[key].lerp_(value.detach(), 1 - min(0.7, (1 + step) / (10 + step)))
    out = train(executable, work, name, 20, rule)
    for file, expected in (("last", leaves), ("ema", average)):
        if file == "ema" and "--ema" not in OPTIMIZERS[rule][0]:
            continue
        trained = load(os.path.join(out, file + ".safetensors"))
        with torch.no_grad():
            want = model.forward({key: value.detach() for key, value in expected.items()}, source, target)[0]
            got = model.forward({key: value.double() for key, value in trained.items()}, source, target)[0]
            error = compare(f"logits of {file} after 20 steps of {rule}", got, want, labels != PAD)
        print(f"{name}: logits of {file} after 20 steps of {rule} {error:.1e}")


def check_greedy(executable, model, name, work):
    parameters = random_parameters(model, 5)
    weights = os.path.join(work, name + ".greedy.safetensors")
    save_file(parameters, weights)
    sources = [row for row in corpus()[0] if len(row) < 9]
    file, limit = os.path.join(work, name + ".greedy.src"), 12
    write_ids(file, sources)
    got = run(executable, "translate", "--weights", weights, "--input", file, "--format", "ids", "--beam", 1, "--max-length", limit).splitlines()
    doubles = {key: value.double() for key, value in parameters.items()}
    for row, line in zip(sources, got, strict=True):
        ids = [START]
        with torch.no_grad():
            while len(ids) <= limit:
                logits = model.forward(doubles, torch.tensor([row]), torch.tensor([ids]))[0][0, -1]
                logits[[PAD, START]] = -math.inf
                best = int(logits.argmax())
                if best == EOS:
                    break
                ids.append(best)
        if line.split() != [str(i) for i in ids[1:]]:
            failures.append(f"{row}: {line}, expected {ids[1:]}")
    print(f"{name}: {len(sources)} greedy translations")


def check(xfc, models, name, work, variant):
    global dtype
    words = variant.split()
    flags = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    dtype = torch.float64 if "f64" in words else torch.float32
    executables = {}
    for what in words[:flags]:
        extra = tuple(words[flags:]) + (("--set", "dropout=0") if what == "train" else ())
        if extra not in executables:
            executables[extra] = compile_model(xfc, models, name, work, extra)
        CHECKS[what](*executables[extra], name, work)
        if failures:
            sys.exit(f"{name}, {what} {' '.join(extra)}: {len(failures)} differences:\n  " + "\n  ".join(failures[:20]))
        print(f"{name}: {what} {' '.join(extra)} agrees")


CHECKS = {"forward": check_forward, "train": check_train, "greedy": check_greedy}


def main():
    xfc, models, name, work, *variants = sys.argv[1:]
    os.makedirs(work, exist_ok=True)
    torch.set_num_threads(1)
    for variant in variants:
        check(xfc, models, name, work, variant)


if __name__ == "__main__":
    main()
