"""Runs torch training once: times its steps, and prints the median of target tokens per second as JSON."""
import json
import random
import statistics
import sys
import time

import torch

from common import BOS, EOS, SIZES, WORDS, peak_megabytes
from torch_model import VARIANTS
from torch_training import Update, batches_of, framed, labels_of, rectangles

WARM_UP = 2


def read_batches(source_file, target_file, limit):
    with open(source_file) as sources, open(target_file) as targets:
        pairs = [framed([int(i) for i in s.split()], [int(i) for i in t.split()]) for s, t in zip(sources, targets)]
    return [rectangles(batch) for batch in batches_of(pairs, limit, random.Random(1))]


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
    model = VARIANTS[job["variant"]](size)
    update = Update(model, 1e-4, real, job["type"] == "bfloat16", job["variant"] == "compile")
    if real:
        batches = read_batches(job["source"], job["target"], job["batch_tokens"])
    else:
        batches = [random_batch(size, job["batch_tokens"], job["length"])]
    rates = []
    for step in range(WARM_UP + job["steps"]):
        source, target = batches[step % len(batches)]
        begin = time.perf_counter()
        update.take(source, target)
        seconds = time.perf_counter() - begin
        if step >= WARM_UP:
            rates.append(labels_of(target) / seconds)
    print(json.dumps({"tokens_per_second": statistics.median(rates), "peak_rss_mb": peak_megabytes(), "imported_mb": imported, "steps": len(rates),
                      "parameters": sum(parameter.numel() for parameter in model.parameters()),
                      "cpu": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
