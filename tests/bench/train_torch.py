#!/usr/bin/env python3
"""Trains torch's nn.Transformer on real pairs for a given number of minutes, then translates and scores the test set.

The baseline for `translator train --minutes`: the same size (models/small.json: pre-norm, embeddings not tied),
vocabulary, loss, optimizer and schedule, and batches under the same two limits. Where torch differs, it uses its best
way: pairs sorted by length so that there is little padding, SDPA inside nn.MultiheadAttention, fused Adam.

usage: train_torch.py --source train.en --target train.fr --vocab spm.model --test-source test.en --test-target test.fr
                      --minutes 20 [--log out.jsonl]
"""
import argparse
import json
import math
import random
import time

import sacrebleu
import sentencepiece
import torch
from torch import nn

PAD, BOS, EOS = 0, 2, 3


class Translator(nn.Module):
    def __init__(self, arguments, vocabulary):
        super().__init__()
        d = arguments.d_model
        self.scale = math.sqrt(d)
        self.source = nn.Embedding(vocabulary, d, padding_idx=PAD)
        self.target = nn.Embedding(vocabulary, d, padding_idx=PAD)
        self.dropout = nn.Dropout(arguments.dropout)
        self.transformer = nn.Transformer(d, arguments.heads, arguments.layers, arguments.layers, arguments.d_ff,
                                          arguments.dropout, batch_first=True, norm_first=not arguments.post_norm)
        self.output = nn.Linear(d, vocabulary)
        position = torch.arange(512)[:, None]
        angle = position * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        table = torch.zeros(512, d)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("positions", table)
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=d ** -0.5)
        for weight in self.transformer.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def embed(self, table, ids):
        return self.dropout(table(ids) * self.scale + self.positions[: ids.shape[1]])

    def encode(self, source):
        return self.transformer.encoder(self.embed(self.source, source), src_key_padding_mask=source == PAD)

    def decode(self, memory, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) != 0
        return self.transformer.decoder(self.embed(self.target, target), memory, tgt_mask=mask, tgt_is_causal=True,
                                        tgt_key_padding_mask=target == PAD, memory_key_padding_mask=source == PAD)

    def forward(self, source, target):
        return self.output(self.decode(self.encode(source), source, target))


def rectangle(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def batches_of(pairs, limit, rng):
    """Pair numbers of each batch: at most `limit` tokens per side, similar lengths, in random order."""
    order = list(range(len(pairs)))
    rng.shuffle(order)
    order.sort(key=lambda i: (len(pairs[i][0]), len(pairs[i][1])))
    batches, batch, source, target = [], [], 0, 0
    for i in order:
        s, t = len(pairs[i][0]), len(pairs[i][1]) - 1
        if batch and (source + s > limit or target + t > limit):
            batches.append(batch)
            batch, source, target = [], 0, 0
        batch.append(i)
        source, target = source + s, target + t
    batches.append(batch)
    rng.shuffle(batches)
    return batches


@torch.no_grad()
def translate(model, sources, batch=64):
    model.eval()
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    results = [None] * len(sources)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        source = rectangle([sources[i] for i in chosen])
        memory = model.encode(source)
        target = torch.full((len(chosen), 1), BOS)
        done = torch.zeros(len(chosen), dtype=torch.bool)
        for _ in range(2 * source.shape[1] + 10):
            logits = model.output(model.decode(memory, source, target)[:, -1])
            logits[:, [PAD, BOS]] = -math.inf
            token = logits.argmax(-1).masked_fill(done, PAD)
            done |= token == EOS
            target = torch.cat([target, token[:, None]], 1)
            if done.all():
                break
        for row, i in enumerate(chosen):
            results[i] = [t for t in target[row, 1:].tolist() if t not in (PAD, EOS)]
    return results


def main():
    parser = argparse.ArgumentParser()
    for name in ("source", "target", "vocab", "test-source", "test-target"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--d-model", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--d-ff", type=int, default=1024)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--post-norm", action="store_true")
    parser.add_argument("--log")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    rng = random.Random(1)

    vocabulary = sentencepiece.SentencePieceProcessor(model_file=arguments.vocab)

    def ids(path):
        with open(path, encoding="utf-8") as lines:
            return vocabulary.encode([line.rstrip("\n") for line in lines])

    pairs = [(s + [EOS], [BOS] + t + [EOS]) for s, t in zip(ids(arguments.source), ids(arguments.target)) if s and t]
    model = Translator(arguments, vocabulary.get_piece_size())
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    log = open(arguments.log, "w") if arguments.log else None

    begin, step, tokens, waiting = time.monotonic(), 0, 0, []
    model.train()
    while time.monotonic() - begin < 60 * arguments.minutes:
        if not waiting:
            waiting = batches_of(pairs, arguments.batch_tokens, rng)
        batch = [pairs[i] for i in waiting.pop()]
        source, target = rectangle([s for s, _ in batch]), rectangle([t for _, t in batch])
        step += 1
        rate = arguments.lr * arguments.d_model ** -0.5 * min(step ** -0.5, step * arguments.warmup ** -1.5)
        for group in optimizer.param_groups:
            group["lr"] = rate
        labels = target[:, 1:]
        logits = model(source, target[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += int((labels != PAD).sum())
        if step % 50 == 0:
            wall = time.monotonic() - begin
            line = json.dumps({"step": step, "loss": round(loss.item(), 4), "wps": round(tokens / wall), "wall": round(wall, 1)})
            print(line, flush=True)
            if log:
                log.write(line + "\n")
                log.flush()
    wall = time.monotonic() - begin

    hypotheses = vocabulary.decode(translate(model, [s + [EOS] for s in ids(arguments.test_source)]))
    with open(arguments.test_target, encoding="utf-8") as lines:
        references = [line.rstrip("\n") for line in lines]
    print(json.dumps({"updates": step, "tokens_per_second": round(tokens / wall, 1), "minutes": round(wall / 60, 2),
                      "bleu": round(sacrebleu.corpus_bleu(hypotheses, [references]).score, 2),
                      "chrf": round(sacrebleu.corpus_chrf(hypotheses, [references]).score, 2)}), flush=True)


if __name__ == "__main__":
    main()
