"""Times the work of single kernels in OpenBLAS (through numpy), oneDNN and torch: {work: {library: milliseconds}} as JSON.

For each kind of work, this times what xfc's kernel does without its epilogue. Inputs stay in the caches, which favors the libraries:
xfc's kernels are timed inside a training step.
"""
import json
import statistics
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F


def milliseconds(run, least=0.1):
    """The median of as many runs as fit into `least` seconds, at least five, after a warm-up run."""
    run()
    times = []
    while len(times) < 5 or sum(times) < least:
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def of_gemm(a, b, weight=None):
    """a b^T, a [M, K], b [N, K]; if b is a weight, oneDNN may keep it packed."""
    x, w = a.numpy(), b.numpy()
    out = np.empty((a.shape[0], b.shape[0]), np.float32)
    result = torch.from_numpy(out)
    packed = torch.ops.mkldnn._reorder_linear_weight(b.contiguous(), a.shape[0]) if weight else b.contiguous()
    rows = a.contiguous()
    return {"OpenBLAS": lambda: np.matmul(x, w.T, out=out),
            "oneDNN": lambda: torch.ops.mkldnn._linear_pointwise(rows, packed, None, "none", [], ""),
            "torch": lambda: torch.matmul(a, b.t(), out=result)}


def forward(rows, outputs, inputs):
    return of_gemm(torch.randn(rows, inputs), torch.randn(outputs, inputs), weight=True)


def input_gradient(rows, outputs, inputs):
    return of_gemm(torch.randn(rows, outputs), torch.randn(outputs, inputs).t(), weight=True)


def weight_gradient(rows, outputs, inputs):
    return of_gemm(torch.randn(rows, outputs).t(), torch.randn(rows, inputs).t())


def attention_inputs(sequences, length, d, heads):
    return [torch.randn(sequences, length, heads, d // heads).transpose(1, 2).requires_grad_() for _ in range(3)]


def attention(sequences, length, d, heads, dropout):
    inputs = attention_inputs(sequences, length, d, heads)

    def run():
        with torch.no_grad():
            F.scaled_dot_product_attention(*inputs, dropout_p=dropout)

    return {"torch": run}


def attention_gradient(sequences, length, d, heads, dropout):
    inputs = attention_inputs(sequences, length, d, heads)
    result = F.scaled_dot_product_attention(*inputs, dropout_p=dropout)
    dy = torch.randn_like(result)
    return {"torch": lambda: torch.autograd.grad(result, inputs, dy, retain_graph=True)}


def norm(rows, d):
    x, residual, gain, bias = torch.randn(rows, d), torch.randn(rows, d), torch.ones(d), torch.zeros(d)
    return {"torch": lambda: F.layer_norm(x + residual, (d,), gain, bias)}


def norm_gradient(rows, d):
    x, gain, bias = torch.randn(rows, d).requires_grad_(), torch.ones(d).requires_grad_(), torch.zeros(d).requires_grad_()
    result, dy = F.layer_norm(x, (d,), gain, bias), torch.randn(rows, d)
    return {"torch": lambda: torch.autograd.grad(result, (x, gain, bias), dy, retain_graph=True)}


def output_loss(rows, vocab, d):
    """The projection, its loss, and the gradient of its logits."""
    x, weight, bias, labels = torch.randn(rows, d), torch.randn(vocab, d), torch.zeros(vocab), torch.randint(vocab, (rows,))

    def run():
        logits = F.linear(x, weight, bias).requires_grad_()
        torch.autograd.grad(F.cross_entropy(logits, labels, label_smoothing=0.1), logits)

    return {"torch": run}


def optimizer(parameters):
    """Clipping and Adam over this many parameters, in tensors of a million."""
    tensors = [torch.nn.Parameter(torch.randn(count)) for count in np.diff([*range(0, parameters, 1 << 20), parameters])]
    for tensor in tensors:
        tensor.grad = torch.randn_like(tensor)
    adam = torch.optim.Adam(tensors, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def run():
        torch.nn.utils.clip_grad_norm_(tensors, 1.0)
        adam.step()

    return {"torch": run}


def embedding_gradient(rows, vocab, d):
    dy, ids = torch.randn(rows, d), torch.randint(vocab, (rows,))
    return {"torch": lambda: torch.ops.aten.embedding_dense_backward(dy, ids, vocab, -1, False)}


KINDS = {function.__name__: function for function in (forward, input_gradient, weight_gradient, attention, attention_gradient, norm,
                                                      norm_gradient, output_loss, optimizer, embedding_gradient)}


def main():
    job = json.loads(sys.argv[1])
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    results = {}
    for work in job["work"]:
        kind, *dimensions = work
        results[json.dumps(work)] = {library: milliseconds(run) for library, run in KINDS[kind](*dimensions).items()}
    print(json.dumps({"milliseconds": results, "cpu": torch.backends.cpu.get_cpu_capability()}))


if __name__ == "__main__":
    main()
