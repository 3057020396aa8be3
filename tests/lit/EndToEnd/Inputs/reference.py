"""What each shipped model computes, written in PyTorch from the documents that it implements, in f64 and with padded tensors.

Nothing here reads model.json: parameters have the specified names, and everything else is written by hand, so that an
error in the compiler or in a model file cannot occur in both places.
"""
import math

import torch
import torch.nn.functional as F


def std_norm(eps):
    """w (x - mean) / (std + eps) + b with the unbiased deviation: seeds 000 and 001."""
    return lambda x, w, b: w * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) + b


def torch_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def rms_norm(x, w, b):
    return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def sinusoid(length, d, multiplier, cosine_offset):
    table = torch.zeros(length, d, dtype=torch.float64)
    for p in range(length):
        for i in range(0, d, 2):
            table[p, i] = math.sin(p / 10000 ** (multiplier * i / d))
            if i + 1 < d:
                table[p, i + 1] = math.cos(p / 10000 ** (multiplier * (i + cosine_offset) / d))
    return table


class Model:
    """The choices of one document. `sizes` has d, heads, ff, layers and so on, which are small and odd for tests."""

    norm = staticmethod(torch_norm)
    norm_bias = True
    pre_norm = False
    final_norm = False
    memory_norm = False
    positions = "sinusoidal"
    multiplier, cosine_offset = 1, 0
    scaled_embedding = True
    attention_bias = True
    head_bias = True
    ffn_bias = True
    gated = False
    tied = False
    target_padding = False  # whether the target's mask excludes pads too
    scale_by_model = False
    free_dims = False
    translates = True  # otherwise it is only an encoder of rows of numbers

    def __init__(self, **sizes):
        self.__dict__.update(sizes)

    # ---- parameters

    def shapes(self):
        d, shapes = self.d_model, {}

        def norm(name):
            shapes[f"{name}.weight"] = (d,)
            if self.norm_bias:
                shapes[f"{name}.bias"] = (d,)

        def linear(name, out, inputs, bias):
            shapes[f"{name}.weight"] = (out, inputs)
            if bias:
                shapes[f"{name}.bias"] = (out,)

        def attention(name, heads):
            dk = self.key_dim if self.free_dims else d // heads
            dv = self.value_dim if self.free_dims else d // heads
            for part, out, inputs in (("q", heads * dk, d), ("k", heads * dk, d), ("v", heads * dv, d), ("o", d, heads * dv)):
                linear(f"{name}.{part}", out, inputs, self.attention_bias)

        for side, layers, heads, vocab in (("encoder", self.encoder_layers, self.encoder_heads, self.source_vocab),
                                           ("decoder", self.decoder_layers, self.decoder_heads, self.target_vocab)):
            if not self.translates and side == "decoder":
                continue
            if self.translates and not (self.tied and side == "decoder"):
                shapes[f"{side}.embed.weight"] = (vocab, d)
            if self.positions == "learned":
                shapes[f"{side}.pos.weight"] = (self.max_length, d)
            for i in range(layers):
                layer = f"{side}.layers.{i}"
                attention(f"{layer}.self_attn", heads)
                norm(f"{layer}.self_attn_norm")
                if side == "decoder":
                    if self.memory_norm:
                        norm(f"{layer}.memory_norm")
                    attention(f"{layer}.cross_attn", heads)
                    norm(f"{layer}.cross_attn_norm")
                if self.gated:
                    linear(f"{layer}.ffn.in.gate", self.d_ff, d, False)
                    linear(f"{layer}.ffn.in.value", self.d_ff, d, False)
                else:
                    linear(f"{layer}.ffn.in", self.d_ff, d, self.ffn_bias)
                linear(f"{layer}.ffn.out", d, self.d_ff, self.ffn_bias)
                norm(f"{layer}.ffn_norm")
            if self.final_norm:
                norm(f"{side}.norm")
        if self.translates and not self.tied:
            linear("output", self.target_vocab, d, self.head_bias)
        return shapes

    # ---- the computation

    def linear(self, p, name, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def layer_norm(self, p, name, x):
        return self.norm(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def attention(self, p, name, x, memory, heads, mask):
        def split(y):  # head h owns consecutive features
            return y.view(*y.shape[:-1], heads, -1).transpose(1, 2)

        q, k, v = (split(self.linear(p, f"{name}.{part}", y)) for part, y in (("q", x), ("k", memory), ("v", memory)))
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.d_model if self.scale_by_model else q.shape[-1])
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
        alive = mask.any(-1)[:, None, :, None]
        weights = torch.where(alive, torch.softmax(torch.where(alive, scores, torch.zeros_like(scores)), -1), torch.zeros_like(scores))
        self.weights[name] = weights
        y = (weights @ v).transpose(1, 2).flatten(2)
        return self.linear(p, f"{name}.o", y)

    def ffn(self, p, layer, x):
        if self.gated:
            h = F.silu(F.linear(x, p[f"{layer}.ffn.in.gate.weight"])) * F.linear(x, p[f"{layer}.ffn.in.value.weight"])
        else:
            h = torch.relu(self.linear(p, f"{layer}.ffn.in", x))
        return self.linear(p, f"{layer}.ffn.out", h)

    def sublayer(self, p, norm, x, f):
        if self.pre_norm:
            return x + f(self.layer_norm(p, norm, x))
        return self.layer_norm(p, norm, x + f(x))

    def embed(self, p, side, ids):
        table = p["encoder.embed.weight"] if self.tied else p[f"{side}.embed.weight"]
        x = table[ids] * (math.sqrt(self.d_model) if self.scaled_embedding else 1)
        if self.positions == "learned":
            return x + p[f"{side}.pos.weight"][: ids.shape[1]]
        return x + sinusoid(ids.shape[1], self.d_model, self.multiplier, self.cosine_offset)

    def encode(self, p, source, pad):
        mask = (source != pad)[:, None, :].expand(-1, source.shape[1], -1)
        return self.encoder(p, self.embed(p, "encoder", source), mask)

    def encoder(self, p, x, mask):
        for i in range(self.encoder_layers):
            layer = f"encoder.layers.{i}"
            x = self.sublayer(p, f"{layer}.self_attn_norm", x,
                              lambda y: self.attention(p, f"{layer}.self_attn", y, y, self.encoder_heads, mask))
            x = self.sublayer(p, f"{layer}.ffn_norm", x, lambda y: self.ffn(p, layer, y))
        return self.layer_norm(p, "encoder.norm", x) if self.final_norm else x

    def forward(self, p, source, target, pad=0):
        """Logits [B,T,V], encoder output [B,S,d], and the probabilities of every attention [B,H,q,k]."""
        self.weights = {}
        encoded = self.encode(p, source, pad)
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()[None].expand(len(target), -1, -1)
        if self.target_padding:
            causal = causal & (target != pad)[:, None, :]
        cross = (source != pad)[:, None, :].expand(-1, length, -1)
        x = self.embed(p, "decoder", target)
        for i in range(self.decoder_layers):
            layer = f"decoder.layers.{i}"
            memory = self.layer_norm(p, f"{layer}.memory_norm", encoded) if self.memory_norm else encoded
            x = self.sublayer(p, f"{layer}.self_attn_norm", x,
                              lambda y: self.attention(p, f"{layer}.self_attn", y, y, self.decoder_heads, causal))
            x = self.sublayer(p, f"{layer}.cross_attn_norm", x,
                              lambda y: self.attention(p, f"{layer}.cross_attn", y, memory, self.decoder_heads, cross))
            x = self.sublayer(p, f"{layer}.ffn_norm", x, lambda y: self.ffn(p, layer, y))
        if self.final_norm:
            x = self.layer_norm(p, "decoder.norm", x)
        logits = F.linear(x, p["encoder.embed.weight"]) if self.tied else self.linear(p, "output", x)
        return logits, encoded, self.weights


class Original(Model):
    tied, head_bias = True, False


class OriginalBookPositions(Model):
    multiplier, attention_bias = 2, False


class FinalNorm(Model):
    norm = staticmethod(std_norm(1e-6))
    pre_norm = final_norm = target_padding = True
    multiplier, cosine_offset = 2, 1


class MemoryNorm(Model):
    norm = staticmethod(std_norm(1e-5))
    pre_norm = memory_norm = True
    attention_bias = False


class LearnedPositions(Model):
    positions, scaled_embedding, scale_by_model = "learned", False, True


class FreeHeadDims(Model):
    scaled_embedding, free_dims, target_padding = False, True, True


class TorchPreNorm(Model):
    """tiny and small: torch's nn.Transformer(norm_first=True)."""

    pre_norm = final_norm = target_padding = True


class Modern(Model):
    norm = staticmethod(rms_norm)
    norm_bias = attention_bias = ffn_bias = head_bias = False
    pre_norm = final_norm = gated = tied = target_padding = True


class EncoderBlock(Model):
    """Seed 000's block: attention without a mask, then the feed-forward network, a norm after each."""

    translates = False

    def forward_rows(self, p, x):
        """The encoder's output, and the probabilities of every attention."""
        self.weights = {}
        return self.encoder(p, x, torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool)), self.weights


class PlainAttention:
    """Seed 000's first program: softmax(X X^T) X."""

    translates = False

    def __init__(self, **sizes):
        self.__dict__.update(sizes)

    def shapes(self):
        return {}

    def forward_rows(self, p, x):
        weights = {}
        for i in range(self.encoder_layers):
            w = torch.softmax(torch.bmm(x, x.transpose(1, 2)), dim=2)
            weights[f"encoder.layers.{i}.self_attn"] = w[:, None]
            x = torch.bmm(w, x)
        return x, weights


MODELS = {
    "original": Original,
    "original-book-positions": OriginalBookPositions,
    "final-norm": FinalNorm,
    "memory-norm": MemoryNorm,
    "learned-positions": LearnedPositions,
    "free-head-dims": FreeHeadDims,
    "tiny": TorchPreNorm,
    "small": TorchPreNorm,
    "modern": Modern,
    "encoder-block": EncoderBlock,
    "plain-attention": PlainAttention,
}
