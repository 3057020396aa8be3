"""check_attention.py TRANSLATOR WORK_FOLDER: compares the model of attention-steps.test in PyTorch, in f64 and sentence by
sentence, with logits, loss and gradients of `forward`. Here, rotary pairs are complex numbers, or turned by HF's rotate_half; windows are masks; slopes are numbers; recurrences are
sums weighted by products of gates."""
import math
import os
import subprocess
import sys

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

translator, work = sys.argv[1:]
torch.manual_seed(1)
PAD, VOCAB, D = 0, 9, 16
SLOPES = [2 ** -2.0, 2 ** -4.0, 2 ** -6.0, 2 ** -8.0, 2 ** -1.0, 2 ** -3.0]  # ALiBi's for 6 heads: those of 4, and every second one of 8


def as_complex_numbers(x, base):
    positions, pairs = (torch.arange(0, n, step, dtype=torch.float64) for n, step in ((x.shape[0], 1), (x.shape[-1], 2)))
    turn = torch.exp(1j * torch.outer(positions, base ** (-pairs / x.shape[-1])))
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turn[:, None]).flatten(-2)


def by_rotate_half(x, base, rotated):
    turned, rest = x[..., :rotated], x[..., rotated:]
    inverse = 1 / base ** (torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    angles = torch.outer(torch.arange(x.shape[0], dtype=torch.float64), torch.cat([inverse, inverse]))[:, None]
    half = torch.cat([-turned[..., rotated // 2 :], turned[..., : rotated // 2]], -1)
    return torch.cat([turned * angles.cos() + half * angles.sin(), rest], -1)


def attention(w, name, x, memory, heads, kv_heads, seen, rotate=lambda x: x, bias=0):
    """`seen` is [queries, keys]; query heads that share keys are adjacent."""
    q = rotate((x @ w[f"{name}.q.weight"].T).unflatten(-1, (heads, -1)))
    k = rotate((memory @ w[f"{name}.k.weight"].T).unflatten(-1, (kv_heads, -1)))
    v = (memory @ w[f"{name}.v.weight"].T).unflatten(-1, (kv_heads, -1))
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = torch.einsum("ihf,jhf->hij", q, k) / math.sqrt(q.shape[-1]) + bias
    p = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hij,jhf->ihf", p, v).flatten(1) @ w[f"{name}.o.weight"].T


def recurrence(w, name, x):
    f = torch.sigmoid(x @ w[f"{name}.gate.weight"].T + w[f"{name}.gate.bias"])
    value = x @ w[f"{name}.value.weight"].T + w.get(f"{name}.value.bias", 0)
    return torch.stack([sum(((1 - f[s]) * value[s] * f[s + 1 : t + 1].prod(0) for s in range(t + 1))) for t in range(len(x))])


def logits(w, source, target):
    def distances(n):
        return torch.arange(n)[:, None] - torch.arange(n)

    x = w["encoder.embed.weight"][source]
    keys = torch.tensor(source) != PAD
    for i in range(2):
        seen = (distances(len(source)).abs() <= 2) & keys
        x = x + attention(w, f"encoder.layers.{i}.self_attn", x, x, 4, 2, seen, lambda x: by_rotate_half(x, 10000, 4))
        x = recurrence(w, f"encoder.layers.{i}.rnn", x)
    y = w["decoder.embed.weight"][target]
    for i in range(2):
        back = distances(len(target))
        y = y + attention(w, f"decoder.layers.{i}.self_attn", y, y, 2, 1, (back >= 0) & (back < 3), lambda x: as_complex_numbers(x, 50))
        y = y + recurrence(w, f"decoder.layers.{i}.rnn", y).relu()
        y = y + attention(w, f"decoder.layers.{i}.near_attn", y, y, 6, 6, back >= 0, bias=-torch.tensor(SLOPES)[:, None, None] * back)
        y = y + attention(w, f"decoder.layers.{i}.cross_attn", y, x, 4, 2, keys.expand(len(target), -1))
    return y @ w["output.weight"].T + w["output.bias"]


shapes = {"encoder.embed.weight": (VOCAB, D), "decoder.embed.weight": (VOCAB, D), "output.weight": (VOCAB, D), "output.bias": (VOCAB,)}
for name, q, k, v in (("encoder.layers.{}.self_attn", 24, 12, 10), ("decoder.layers.{}.self_attn", 16, 8, 8), ("decoder.layers.{}.cross_attn", 16, 8, 8)):
    for i in range(2):
        at = name.format(i)
        shapes |= {f"{at}.q.weight": (q, D), f"{at}.k.weight": (k, D), f"{at}.v.weight": (v, D), f"{at}.o.weight": (D, q // 6 * 5 if q == 24 else 16)}
for i in range(2):
    for at, biased in ((f"encoder.layers.{i}.rnn", ("gate", "value")), (f"decoder.layers.{i}.rnn", ("gate",))):
        shapes |= {f"{at}.{part}.weight": (D, D) for part in ("gate", "value")} | {f"{at}.{part}.bias": (D,) for part in biased}
for i in range(2):
    at = f"decoder.layers.{i}.near_attn"
    shapes |= {f"{at}.q.weight": (18, D), f"{at}.k.weight": (18, D), f"{at}.v.weight": (24, D), f"{at}.o.weight": (D, 24)}
weights = {name: (0.2 * torch.randn(shape)).double().requires_grad_() for name, shape in shapes.items()}
sources = [[4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 3], [7, 3], [5, 6, PAD, 8, 6, 7, 3, 3]]
targets = [[2, 8, 7, 6, 5, 4], [2, 4, 4, 5, 5, 6, 6, 7, 7, 8], [2]]
labels = [[(t + 1) % 8 + 1 for t in target] for target in targets]


def rectangle(rows):
    width = max(map(len, rows))
    return "I32", [len(rows), width], [x for row in rows for x in row + [PAD] * (width - len(row))]


path = {part: os.path.join(work, part) for part in ("weights", "in", "out")}
tensors.write(path["weights"], {name: ("F32", list(w.shape), w.flatten().tolist()) for name, w in weights.items()})
tensors.write(path["in"], {"source": rectangle(sources), "target": rectangle(targets), "labels": rectangle(labels)})
subprocess.run([translator, "forward", "--weights", path["weights"], "--input", path["in"], "--output", path["out"], "--gradients",
                "--label-smoothing", "0"], check=True)
found = tensors.read(path["out"])

worst = {"logits": 0, "loss": 0, "gradients": 0}
total, (_, width, _) = 0, found["logits"][0]
for b, (source, target) in enumerate(zip(sources, targets)):
    want = logits(weights, source, target)
    got = torch.tensor(found["logits"][1][b * width * VOCAB :][: len(target) * VOCAB]).view(-1, VOCAB)
    worst["logits"] = max(worst["logits"], (got - want).abs().max().item())
    total = total + F.cross_entropy(want, torch.tensor(labels[b]), reduction="sum")
loss = total / sum(map(len, targets))
loss.backward()
worst["loss"] = abs(found["loss"][1][0] - loss.item())
for name, w in weights.items():
    got = torch.tensor(found["grad." + name][1]).view(w.shape)
    worst["gradients"] = max(worst["gradients"], ((got - w.grad).abs().max() / w.grad.abs().max()).item())
print(worst)
if worst["logits"] > 2e-5 or worst["loss"] > 1e-5 or worst["gradients"] > 1e-4:
    sys.exit("logits, loss or gradients differ")
