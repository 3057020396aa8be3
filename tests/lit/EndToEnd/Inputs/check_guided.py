"""Compares steps of training that are guided by word alignments with PyTorch (reference.py).

usage: check_guided.py XFC MODELS_FOLDER WORK_FOLDER LAYER HEAD [extra arguments of xfc compile...]

LAYER is last or a number from 1, HEAD mean or a number from 1."""
import json
import math
import os
import random
import subprocess
import sys

import torch

sys.path.insert(0, os.path.dirname(__file__))
import check  # noqa: E402

STEPS, SMOOTHING, WEIGHT, LINKS, EPSILON = 10, 0.1, 0.7, 3, 1e-6


def random_links(sources, targets):
    """For each pair, up to LINKS sources for each target token; some tokens and some pairs have none. The source's eos is no token of a line
    of ids, which is taken verbatim, so it may be linked, too."""
    generator = random.Random(5)
    pairs = []
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        links = [(s, t) for t in range(len(target))
                 for s in generator.sample(range(len(source)), generator.randint(0, min(LINKS, len(source))))]
        pairs.append(links if i % 5 else [])
    return pairs


def main():
    xfc, models, work, layer, head, *extra = sys.argv[1:]
    check.dtype = torch.float64 if "f64" in extra else torch.float32
    torch.set_num_threads(1)
    subprocess.run(["rm", "-rf", work], check=True)
    os.makedirs(work)
    path = lambda name: os.path.join(work, name)  # noqa: E731
    executable, model = check.compile_model(
        xfc, models, "tiny", work,
        [*extra, "--set", "dropout=0", "--guided-alignment", LINKS, "--guided-alignment-layer", layer, "--guided-alignment-head", head])

    sources, targets = check.corpus()
    aligned = random_links(sources, targets)
    for name, rows in (("a", sources), ("b", targets)):
        check.write_ids(path(name), rows)
    weights = [0.5 + i % 5 / 4 for i in range(len(sources))]
    with open(path("weights"), "w") as file:
        file.writelines(f"{weight}\n" for weight in weights)
    with open(path("links"), "w") as file:  # in another order, and one of them twice
        file.writelines(" ".join(f"{s}-{t}" for s, t in reversed(links + links[:1])) + "\n" for links in aligned)
    flags = ["--format", "ids", "--source", path("a"), "--target", path("b"), "--data-weighting", path("weights"), "--guided-alignment",
             path("links"), "--guided-alignment-weight", WEIGHT, "--batch-tokens", 4096, "--label-smoothing", SMOOTHING, "--seed", 3,
             "--optimizer", "sgd", "--lr", 0.5, "--momentum", 0, "--clip-norm", 0, "--schedule", "constant", "--warmup", 0]

    def train(steps):
        out = path(f"run{steps}")
        check.run(executable, "train", *flags, "--out", out, "--steps", steps)
        return out

    first = check.load(os.path.join(train(0), "last.safetensors"))
    leaves = {key: value.double().requires_grad_() for key, value in first.items()}
    optimizer = torch.optim.SGD(leaves.values(), lr=0.5)
    source = check.padded(sources)
    target = check.padded([[check.START, *row] for row in targets])
    labels = check.padded([[*row, check.EOS] for row in targets])
    counted = (labels != check.PAD).sum().item()
    number = model.decoder_layers - 1 if layer == "last" else int(layer) - 1
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits, _, attentions = model.forward(leaves, source, target)
        p = attentions[f"decoder.layers.{number}.cross_attn"]
        p = p.mean(1) if head == "mean" else p[:, int(head) - 1]
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=SMOOTHING, reduction="none",
                                                   ignore_index=check.PAD).view(labels.shape)
        total = (torch.tensor(weights)[:, None] * losses).sum()
        alignment = 0
        for i, links in enumerate(aligned):
            for s, t in links:
                share = WEIGHT / sum(other == t for _, other in links)
                alignment = alignment - weights[i] * share * torch.log(p[i, t, s] + EPSILON)
        ((total + alignment) / counted).backward()
        expected.append(((total + alignment).item() / counted, alignment.item() / counted))
        optimizer.step()
    out = train(STEPS)
    trained = check.load(os.path.join(out, "last.safetensors"))
    with torch.no_grad():
        want = model.forward({key: value.detach() for key, value in leaves.items()}, source, target)[0]
        got = model.forward({key: value.double() for key, value in trained.items()}, source, target)[0]
    error = check.compare(f"logits after {STEPS} steps", got, want, target != check.PAD)
    records = [json.loads(line) for line in open(os.path.join(out, "train.jsonl"))]
    logged = [record for record in records if "alignment" in record][-1]
    means = [sum(values) / STEPS for values in zip(*expected)]
    for name, mean in zip(("loss", "alignment"), means):
        if not math.isclose(logged[name], mean, rel_tol=1e-5):
            check.failures.append(f"{name} {logged[name]}, expected {mean}")
    if not expected[-1][1] < expected[0][1]:
        check.failures.append(f"the links are not learned: {expected[0][1]} before, {expected[-1][1]} after")
    print(f"logits after {STEPS} steps: {error:.1e}; loss {means[0]:.6f}, alignment {means[1]:.6f}")
    if check.failures:
        sys.exit(f"{len(check.failures)} differences:\n  " + "\n  ".join(check.failures[:20]))


if __name__ == "__main__":
    main()
