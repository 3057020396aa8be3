"""Trains with torch until it is stopped, as `translator train` does, and writes a log like its train.jsonl: before each validation a record of the
updates since the last one, without the time of the validation, and then one of the BLEU of greedy translations of the held-out text."""
import json
import random
import sys
import time

import sacrebleu
import sentencepiece
import torch

from common import BOS, EOS, PAD, SIZES
from torch_model import VARIANTS
from torch_training import Update, batches_of, framed, labels_of, rectangle, rectangles

SENTENCES = 128  # translated together


@torch.no_grad()
def translate(model, sources, positions):
    """Greedy translations, of at most as many tokens as xfc allows by default."""
    results = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for begin in range(0, len(order), SENTENCES):
        chosen = order[begin : begin + SENTENCES]
        limits = torch.tensor([min(2 * len(sources[i]) + 10, positions - 1) for i in chosen])
        step = model.translation(rectangle([sources[i] for i in chosen]))
        tokens, done, translations = torch.full((len(chosen),), BOS), torch.zeros(len(chosen), dtype=torch.bool), []
        while not done.all():
            logits = step(tokens)
            logits[:, [PAD, BOS]] = float("-inf")
            tokens = logits.argmax(1).masked_fill(done, EOS)
            translations.append(tokens)
            done |= (tokens == EOS) | (limits == len(translations))
        for i, translation in zip(chosen, torch.stack(translations, 1).tolist()):
            results[i] = translation[: translation.index(EOS)] if EOS in translation else translation
    return results


def main():
    job = json.loads(sys.argv[1])
    size = SIZES[job["size"]]
    torch.set_num_threads(job["threads"])
    torch.set_flush_denormal(True)
    torch.manual_seed(job["seed"])
    rng = random.Random(job["seed"])
    vocabulary = sentencepiece.SentencePieceProcessor(model_file=job["vocabulary"])

    def lines_of(path):
        with open(path, encoding="utf-8") as lines:
            return [line.rstrip("\n") for line in lines]

    def sources_of(path):
        return [ids + [EOS] for ids in vocabulary.encode(lines_of(path))]

    pairs = [framed(s, t) for s, t in zip(sources_of(job["source"]), vocabulary.encode(lines_of(job["target"])))]
    held_out, references = sources_of(job["valid_source"]), lines_of(job["valid_target"])
    model = VARIANTS[job["variant"]](size)
    update = Update(model, 0.0, padded=True)
    step = labels = 0
    with open(job["log"], "w", encoding="utf-8", buffering=1) as log:
        batches = batches_of(pairs, job["batch_tokens"], rng)
        first = begin = time.perf_counter()
        while True:
            for batch in batches:
                step += 1
                update.optimizer.param_groups[0]["lr"] = size.d_model**-0.5 * min(step**-0.5, step * job["warmup"] ** -1.5)
                source, target = rectangles(batch)
                loss = update.take(source, target)
                labels += labels_of(target)
                if step % job["every"]:
                    continue
                now = time.perf_counter()
                print(json.dumps({"step": step, "loss": loss.item(), "wps": labels / (now - begin), "wall": now - first, "tokens": labels,
                                  "parameters": sum(parameter.numel() for parameter in model.parameters())}), file=log)
                model.eval()
                hypotheses = vocabulary.decode(translate(model, held_out, size.positions))
                print(json.dumps({"step": step, "bleu": sacrebleu.corpus_bleu(hypotheses, [references]).score}), file=log)
                model.train()
                begin, labels = time.perf_counter(), 0
            batches = batches_of(pairs, job["batch_tokens"], rng)


if __name__ == "__main__":
    main()
