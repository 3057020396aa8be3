"""What the programs that train with torch share: batches like xfc's, and the update."""
import torch
from torch.nn import functional as F

from common import BOS, EOS, PAD


def rectangle(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def framed(source, target):
    """A pair as the model reads it; the source has its eos already."""
    return source, [BOS] + target + [EOS]


def batches_of(pairs, limit, rng):
    """Batches like xfc's, in random order: at most `limit` tokens per side, including eos; sorted by length, so that there is little padding."""
    pairs = rng.sample(pairs, len(pairs))
    pairs.sort(key=lambda pair: (max(len(pair[0]), len(pair[1]) - 1), len(pair[0])))
    batches, batch, counts = [], [], (0, 0)
    for source, target in pairs:
        counts = counts[0] + len(source), counts[1] + len(target) - 1
        if batch and max(counts) > limit:
            batches.append(batch)
            batch, counts = [], (len(source), len(target) - 1)
        batch.append((source, target))
    batches.append(batch)
    rng.shuffle(batches)
    return batches


def rectangles(batch):
    return tuple(rectangle(side) for side in zip(*batch))


class Update:
    """A step of training, which returns its loss: label smoothing, clipping by norm, fused Adam."""

    def __init__(self, model, rate, padded, bfloat16=False, compiled=False):
        self.model, self.padded, self.bfloat16 = model.train(), padded, bfloat16
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.loss = torch.compile(self.loss_of, dynamic=padded) if compiled else self.loss_of

    def loss_of(self, source, target):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bfloat16):
            logits = self.model(source, target[:, :-1], self.padded)
        return F.cross_entropy(logits.float().flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1)

    def take(self, source, target):
        self.optimizer.zero_grad()
        loss = self.loss(source, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss


def labels_of(target):
    return int((target[:, 1:] != PAD).sum())
