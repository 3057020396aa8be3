"""Writes a CTranslate2 model of a given size with random weights: pre-norm, like models/small.json.

usage: ctranslate2_model.py SIZE FOLDER
"""
import sys

import ctranslate2
import numpy as np

from common import SIZES


def save(size, folder):
    random = np.random.default_rng(1)
    d, ff = size.d_model, size.d_ff

    def weights(*shape):
        return random.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    def linear(spec, outputs, inputs):
        spec.weight, spec.bias = weights(outputs, inputs), np.zeros(outputs, np.float32)

    def norm(spec):
        spec.gamma, spec.beta = np.ones(d, np.float32), np.zeros(d, np.float32)

    def attention(spec, *outputs):
        norm(spec.layer_norm)
        for part, features in zip(spec.linear, outputs):
            linear(part, features, d)

    spec = ctranslate2.specs.TransformerSpec.from_config((size.layers, size.layers), size.heads, pre_norm=True)
    angle = np.arange(size.positions)[:, None] * np.exp(np.arange(0, d, 2) * (-np.log(10000.0) / d))
    positions = np.stack([np.sin(angle), np.cos(angle)], 2).reshape(size.positions, d).astype(np.float32)
    for stack in (spec.encoder, spec.decoder):
        embeddings = stack.embeddings[0] if isinstance(stack.embeddings, list) else stack.embeddings
        embeddings.weight = weights(size.vocab, d)
        stack.position_encodings.encodings = positions
        norm(stack.layer_norm)
        for layer in stack.layer:
            attention(layer.self_attention, 3 * d, d)
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, ff, d)
            linear(layer.ffn.linear_1, d, ff)
    for layer in spec.decoder.layer:
        attention(layer.attention, d, 2 * d, d)
    linear(spec.decoder.projection, size.vocab, d)
    tokens = ["<blank>", "<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(4, size.vocab)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    spec.save(folder)


if __name__ == "__main__":
    save(SIZES[sys.argv[1]], sys.argv[2])
