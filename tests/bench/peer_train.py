"""Runs torch training once: times its steps, and prints the median of target tokens per second as JSON."""
import json
import statistics
import sys
import time

import torch
from torch.nn import functional as F

from common import BOS, EOS, PAD, SIZES, WORDS, peak_megabytes
from torch_model import EagerTransformer, FusedTransformer

WARM_UP = 2


def rectangle(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def read_batches(source_file, target_file, limit):
    """Batches like xfc's: at most `limit` tokens per side, including eos; sorted by length, so that there is little padding."""
    with open(source_file) as sources, open(target_file) as targets:
        pairs = [([int(i) for i in s.split()], [BOS] + [int(i) for i in t.split()] + [EOS]) for s, t in zip(sources, targets)]
    pairs.sort(key=lambda pair: (max(len(pair[0]), len(pair[1]) - 1), len(pair[0])))
    batches, batch, counts = [], [], (0, 0)
    for source, target in pairs:
        counts = counts[0] + len(source), counts[1] + len(target) - 1
        if batch and max(counts) > limit:
            batches.append(batch)
            batch, counts = [], (len(source), len(target) - 1)
        batch.append((source, target))
    batches.append(batch)
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(1))
    return [tuple(rectangle(side) for side in zip(*batches[i])) for i in order]


def random_batch(size, limit, length):
    sentences = max(limit // length, 1)
    source = torch.randint(WORDS, size.vocab, (sentences, length))
    target = torch.randint(WORDS, size.vocab, (sentences, length + 1))
    target[:, 0], target[:, -1] = BOS, EOS
    return source, target


def main():
    job = json.loads(sys.argv[1])
    size = SIZES[job["size"]]
    imported = peak_megabytes()
    torch.set_num_threads(job["threads"])
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    real = "source" in job
    model = (EagerTransformer if job["variant"] == "eager" else FusedTransformer)(size).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def loss_of(source, target):
        labels = target[:, 1:]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=job["type"] == "bfloat16"):
            logits = model(source, target[:, :-1], real)
        logits = logits.float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1)

    loss_of = torch.compile(loss_of, dynamic=real) if job["variant"] == "compile" else loss_of
    if real:
        batches = read_batches(job["source"], job["target"], job["batch_tokens"])
    else:
        batches = [random_batch(size, job["batch_tokens"], job["length"])]
    rates = []
    for step in range(WARM_UP + job["steps"]):
        source, target = batches[step % len(batches)]
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss_of(source, target).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds = time.perf_counter() - begin
        if step >= WARM_UP:
            rates.append(int((target[:, 1:] != PAD).sum()) / seconds)
    print(json.dumps({"tokens_per_second": statistics.median(rates), "peak_rss_mb": peak_megabytes(), "imported_mb": imported, "steps": len(rates),
                      "parameters": sum(parameter.numel() for parameter in model.parameters()),
                      "cpu": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
