"""The model of models/small.json in torch: built from nn.Transformer, and written around scaled_dot_product_attention.

Both do the same work as xfc's: pre-norm with a final norm on both stacks, biases everywhere, dropout on the embeddings, the
attention weights, the hidden layer of the feed-forward and the output of each sublayer, nothing tied.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from common import PAD


def sinusoids(positions, d):
    angle = torch.arange(positions)[:, None] * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)


def linear(inputs, outputs, parts=1):
    """A linear layer with the initial values of models/small.json, which has each of the parts as a matrix of its own."""
    layer = nn.Linear(inputs, parts * outputs)
    initialize(layer.weight, layer.bias, parts)
    return layer


@torch.no_grad()
def initialize(weight, bias, parts=1):
    for part in weight.chunk(parts):
        part.copy_(nn.init.xavier_uniform_(torch.empty_like(part)))
    bias.zero_()


class Embedding(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.table = nn.Embedding(size.vocab, size.d_model)
        self.scale = math.sqrt(size.d_model)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", sinusoids(size.positions, size.d_model))
        nn.init.normal_(self.table.weight, std=size.d_model**-0.5)

    def forward(self, ids, first=0):
        return self.dropout(self.table(ids) * self.scale + self.positions[first : first + ids.shape[1]])


class Attention(nn.Module):
    """Self-attention with one product for q, k, v; with `cross`, k and v come from the memory."""

    def __init__(self, size, dropout, cross=False):
        super().__init__()
        d = size.d_model
        self.heads, self.rate, self.cross = size.heads, dropout, cross
        self.norm = nn.LayerNorm(d)
        self.q = linear(d, d) if cross else None
        self.kv = linear(d, d, parts=2 if cross else 3)
        self.o = linear(d, d)
        self.dropout = nn.Dropout(dropout)

    def split(self, x, parts):
        return x.unflatten(2, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def project(self, x):
        """q, k, v of self-attention."""
        return self.split(self.kv(self.norm(x)), 3)

    def memory(self, encoded):
        """k, v of cross-attention."""
        return self.split(self.kv(encoded), 2)

    def query(self, x):
        return self.split(self.q(self.norm(x)), 1)[0]

    def attend(self, x, q, k, v, mask=None, causal=False):
        rate = self.rate if self.training else 0.0
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, dropout_p=rate)
        return x + self.dropout(self.o(context.transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(size.d_model)
        self.hidden, self.out = linear(size.d_model, size.d_ff), linear(size.d_ff, size.d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.out(self.dropout(F.relu(self.hidden(self.norm(x))))))


class EncoderLayer(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.attention, self.feed_forward = Attention(size, dropout), FeedForward(size, dropout)

    def forward(self, x, mask):
        return self.feed_forward(self.attention.attend(x, *self.attention.project(x), mask=mask))


class DecoderLayer(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.attention, self.cross = Attention(size, dropout), Attention(size, dropout, cross=True)
        self.feed_forward = FeedForward(size, dropout)

    def forward(self, x, encoded, mask):
        # Pads come last, so no word sees one under the causal mask.
        x = self.attention.attend(x, *self.attention.project(x), causal=True)
        x = self.cross.attend(x, self.cross.query(x), *self.cross.memory(encoded), mask=mask)
        return self.feed_forward(x)

    def step(self, x, past, memory, mask):
        """Of the next token; and the keys and values of all tokens so far, of which `past` are those before."""
        q, *present = self.attention.project(x)
        if past:
            present = [torch.cat(pair, 2) for pair in zip(past, present)]
        x = self.attention.attend(x, q, *present)
        x = self.cross.attend(x, self.cross.query(x), *memory, mask=mask)
        return self.feed_forward(x), present


class FusedTransformer(nn.Module):
    def __init__(self, size, dropout=0.1):
        super().__init__()
        self.source, self.target = Embedding(size, dropout), Embedding(size, dropout)
        self.encoder = nn.ModuleList(EncoderLayer(size, dropout) for _ in range(size.layers))
        self.decoder = nn.ModuleList(DecoderLayer(size, dropout) for _ in range(size.layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(size.d_model), nn.LayerNorm(size.d_model)
        self.output = linear(size.d_model, size.vocab)

    def encode(self, source, mask=None):
        x = self.source(source)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def forward(self, source, target, padded):
        mask = (source != PAD)[:, None, None] if padded else None
        encoded = self.encode(source, mask)
        x = self.target(target)
        for layer in self.decoder:
            x = layer(x, encoded, mask)
        return self.output(self.decoder_norm(x))

    def translation(self, source):
        """Begins translations: a function that takes the next token of each, beginning with bos, and returns the logits of the one after."""
        mask = (source != PAD)[:, None, None]
        encoded = self.encode(source, mask)
        memories = [layer.cross.memory(encoded) for layer in self.decoder]
        past, length = [None] * len(self.decoder), 0

        def step(tokens):
            nonlocal length
            x = self.target(tokens[:, None], length)
            for i, layer in enumerate(self.decoder):
                x, past[i] = layer.step(x, past[i], memories[i], mask)
            length += 1
            return self.output(self.decoder_norm(x))[:, 0]

        return step


class EagerTransformer(nn.Module):
    def __init__(self, size, dropout=0.1):
        super().__init__()
        self.source, self.target = Embedding(size, dropout), Embedding(size, dropout)
        self.transformer = nn.Transformer(size.d_model, size.heads, size.layers, size.layers, size.d_ff, dropout,
                                          batch_first=True, norm_first=True)
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                initialize(module.in_proj_weight, module.in_proj_bias, 3)
            elif isinstance(module, nn.Linear):
                initialize(module.weight, module.bias)
        self.output = linear(size.d_model, size.vocab)

    def forward(self, source, target, padded):
        pads = source == PAD if padded else None
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        x = self.transformer(self.source(source), self.target(target), tgt_mask=causal, tgt_is_causal=True,
                             src_key_padding_mask=pads, memory_key_padding_mask=pads)
        return self.output(x)

    def translation(self, source):
        """As FusedTransformer's, but nn.Transformer keeps no keys and values: each step computes those of all tokens again."""
        pads = source == PAD
        encoded = self.transformer.encoder(self.source(source), src_key_padding_mask=pads)
        translations = []

        def step(tokens):
            translations.append(tokens)
            causal = nn.Transformer.generate_square_subsequent_mask(len(translations))
            x = self.transformer.decoder(self.target(torch.stack(translations, 1)), encoded, tgt_mask=causal, tgt_is_causal=True,
                                         memory_key_padding_mask=pads)
            return self.output(x[:, -1])

        return step


VARIANTS = {"eager": EagerTransformer, "sdpa": FusedTransformer, "compile": FusedTransformer}
