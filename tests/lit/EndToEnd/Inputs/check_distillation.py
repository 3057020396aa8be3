"""Compares the distributions that `prepare` stores, and steps of training with them, with PyTorch (reference.py).

usage: check_distillation.py XFC MODELS_FOLDER WORK_FOLDER [extra arguments of xfc compile...]"""
import json
import math
import os
import subprocess
import sys

import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.dirname(__file__))
import check  # noqa: E402
import prepared  # noqa: E402

STEPS, SMOOTHING, SHARE, TOKENS = 10, 0.1, 0.7, 4


def check_teacher(executable, model, parameters, file):
    """The stored tokens are the first ones of the distribution, and their probabilities are those of the whole softmax."""
    worst = 0.0
    for source, target, _, distributions in prepared.read(file):
        with torch.no_grad():
            logits = model.forward(parameters, torch.tensor([source]), torch.tensor([target[:-1]]))[0][0]
        for row, found in zip(torch.softmax(logits, -1), distributions, strict=True):
            wanted = sorted(((-p, token) for token, p in enumerate(row.tolist())))[:TOKENS]
            for (token, p), (best, expected) in zip(found, wanted, strict=True):
                if token != expected and not math.isclose(row[token].item(), -best, rel_tol=1e-5):
                    check.failures.append(f"token {token}, expected {expected}")
                worst = max(worst, abs(p + best) / -best)
    if not worst <= check.TOLERANCES[torch.float32]:  # they are stored in f32
        check.failures.append(f"probabilities: {worst:.1e}")
    return worst


def losses(logits, labels, distributions):
    """For each label, (1 - W) times the smoothed cross-entropy and W times the sum of p (-log q); without a distribution, all of the former."""
    log_q = torch.log_softmax(logits, -1)
    ordinary = -(1 - SMOOTHING) * log_q.gather(-1, labels[:, None])[:, 0] - SMOOTHING * log_q.mean(-1)
    if not distributions:
        return ordinary
    tokens = torch.tensor([[token for token, _ in found] for found in distributions])
    p = torch.tensor([[probability for _, probability in found] for found in distributions], dtype=torch.float64)
    return (1 - SHARE) * ordinary - SHARE * (p * log_q.gather(-1, tokens)).sum(-1)


def main():
    xfc, models, work, *extra = sys.argv[1:]
    check.dtype = torch.float64 if "f64" in extra else torch.float32
    torch.set_num_threads(1)
    folders = [os.path.join(work, name) for name in ("teacher", "student")]
    for folder in folders:
        subprocess.run(["rm", "-rf", folder], check=True)
        os.makedirs(folder)
    path = lambda name: os.path.join(work, name)  # noqa: E731
    teacher, model = check.compile_model(xfc, models, "tiny", folders[0], extra)
    student, _ = check.compile_model(xfc, models, "tiny", folders[1], [*extra, "--set", "dropout=0", "--distillation", TOKENS + 1])

    parameters = check.random_parameters(model, 1)
    save_file(parameters, path("w.safetensors"))
    sources, targets = check.corpus()
    for name, rows in (("a", sources), ("b", targets)):
        check.write_ids(path(name), rows)
    with open(path("weights"), "w") as file:
        file.writelines(f"{0.5 + i % 5 / 4}\n" for i in range(len(sources)))
    common = ["--format", "ids", "--source", path("a"), "--target", path("b")]
    check.run(teacher, "prepare", *common, "--data-weighting", path("weights"), "--weights", path("w.safetensors"), "--distribution", TOKENS,
              "--out", path("taught"))
    check.run(teacher, "prepare", *common, "--out", path("plain"))
    worst = check_teacher(teacher, model, {key: value.double() for key, value in parameters.items()}, path("taught"))
    print(f"probabilities of the teacher: {worst:.1e}")

    # Half of the pairs have no distribution and no weight. All are in one batch.
    pairs = [pair for name in ("taught", "plain") for pair in prepared.read(path(name))]
    flags = ["--data", path("taught"), path("plain"), "--format", "ids", "--batch-tokens", 4096, "--label-smoothing", SMOOTHING, "--seed", 3]
    step = ["--optimizer", "sgd", "--lr", 0.5, "--momentum", 0, "--clip-norm", 0, "--schedule", "constant", "--warmup", 0, "--distillation", SHARE]

    def train(steps):
        out = path(f"run{steps}")
        subprocess.run(["rm", "-rf", out], check=True)
        check.run(student, "train", *flags, *step, "--out", out, "--steps", steps)
        return out

    first = check.load(os.path.join(train(0), "last.safetensors"))
    leaves = {key: value.double().requires_grad_() for key, value in first.items()}
    optimizer = torch.optim.SGD(leaves.values(), lr=0.5)
    source, target = check.padded([pair[0] for pair in pairs]), check.padded([pair[1][:-1] for pair in pairs])
    counted = sum(len(pair[1]) - 1 for pair in pairs)
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model.forward(leaves, source, target)[0]
        total, nll = 0, 0
        for i, (_, ids, weights, distributions) in enumerate(pairs):
            labels, own = torch.tensor(ids[1:]), logits[i, : len(ids) - 1]
            total = total + (weights[0] if len(weights) else 1) * losses(own, labels, distributions).sum()
            nll += torch.nn.functional.cross_entropy(own, labels, reduction="sum").item()
        (total / counted).backward()
        expected.append((total.item() / counted, nll / counted))
        optimizer.step()
    out = train(STEPS)
    trained = check.load(os.path.join(out, "last.safetensors"))
    with torch.no_grad():
        want = model.forward({key: value.detach() for key, value in leaves.items()}, source, target)[0]
        got = model.forward({key: value.double() for key, value in trained.items()}, source, target)[0]
    error = check.compare(f"logits after {STEPS} steps", got, want, target != check.PAD)
    records = [json.loads(line) for line in open(os.path.join(out, "train.jsonl"))]
    logged = [record for record in records if "nll" in record and "loss" in record][-1]
    means = [sum(values) / STEPS for values in zip(*expected)]
    for name, mean in zip(("loss", "nll"), means):
        if not math.isclose(logged[name], mean, rel_tol=1e-5):
            check.failures.append(f"{name} {logged[name]}, expected {mean}")
    print(f"logits after {STEPS} steps: {error:.1e}; loss {means[0]:.6f}, nll {means[1]:.6f}")
    if check.failures:
        sys.exit(f"{len(check.failures)} differences:\n  " + "\n  ".join(check.failures[:20]))


if __name__ == "__main__":
    main()
