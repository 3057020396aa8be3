"""Exports FusedTransformer for ONNX Runtime: an encoder that also projects the memory, and one step of decoding that keeps its
caches, reorders them by beam, and chooses the best candidates inside the graph.

usage: onnx_model.py SIZE BEAM FOLDER
"""
import sys

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

from common import SIZES
from torch_model import FusedTransformer


class Encoder(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, source):
        encoded = self.model.encode(source)
        return [part.contiguous() for layer in self.model.decoder for part in layer.cross.memory(encoded)]


class Step(nn.Module):
    def __init__(self, model, beam):
        super().__init__()
        self.model, self.beam = model, beam
        forbidden = torch.zeros(model.output.out_features)
        forbidden[:4] = -1e9
        self.register_buffer("forbidden", forbidden)

    def forward(self, tokens, position, parents, scores, past, memory):
        model, beam = self.model, self.beam
        x = model.target.table(tokens) * model.target.scale + model.target.positions[position]
        present = []
        for i, layer in enumerate(model.decoder):
            q, k, v = layer.attention.project(x)
            if beam > 1:
                kept = [cache.index_select(0, parents) for cache in past[2 * i : 2 * i + 2]]
            else:
                kept = past[2 * i : 2 * i + 2]
            k, v = torch.cat([kept[0], k], 2), torch.cat([kept[1], v], 2)
            present += [k, v]
            x = layer.attention.attend(x, q, k, v)
            # The hypotheses of a sentence are queries of the same memory.
            x = x.unflatten(0, (-1, beam)).flatten(1, 2)
            x = layer.cross.attend(x, layer.cross.query(x), *memory[2 * i : 2 * i + 2])
            x = layer.feed_forward(x).flatten(0, 1)[:, None]
        logits = model.output(model.decoder_norm(x))[:, 0] + self.forbidden
        total = logits if beam == 1 else F.log_softmax(logits, 1).unflatten(0, (-1, beam)) + scores[:, :, None]
        return [*total.flatten(1).topk(beam, 1), *present]


def save(size, beam, folder):
    torch.manual_seed(1)
    model = FusedTransformer(size).eval()
    sentences, length, seen = 3, 7, 5
    source = torch.full((sentences, length), 5)
    encoder, step = Encoder(model).eval(), Step(model, beam).eval()
    memory = encoder(source)
    rows, width = sentences * beam, size.d_model // size.heads
    past = [torch.zeros(rows, size.heads, seen, width) for _ in memory]
    inputs = (torch.full((rows, 1), 5), torch.tensor([seen]), torch.arange(rows), torch.zeros(sentences, beam), past, memory)
    names = [f"{kind}_{i}" for kind in ("past", "memory") for i in range(len(memory))]
    any_size = Dim.DYNAMIC
    shapes = ({0: any_size}, None, {0: any_size}, {0: any_size}, [{0: any_size, 2: any_size}] * len(past),
              [{0: any_size, 2: any_size}] * len(memory))
    with torch.no_grad():
        torch.onnx.export(encoder, (source,), f"{folder}/encoder.onnx", input_names=["source"], dynamo=True, verbose=False,
                          dynamic_shapes=({0: any_size, 1: any_size},))
        torch.onnx.export(step, inputs, f"{folder}/step.onnx", input_names=["tokens", "position", "parents", "scores", *names],
                          dynamic_shapes=shapes, dynamo=True, verbose=False)


if __name__ == "__main__":
    save(SIZES[sys.argv[1]], int(sys.argv[2]), sys.argv[3])
