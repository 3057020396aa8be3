"""peers.py: the yardsticks of verify.py, each run as a process of its own that prints JSON: products and attention of torch (cuBLAS, flash
attention, cuDNN) for the work that our profile names, training steps of torch.compile, decoding of CTranslate2. Where a library is absent, or
sees no GPU, the JSON says so: {"absent": why}.

usage: peers.py kernels|training|decoding JOB, a job in JSON. XFC_PEERS_DEVICE=cpu tries the script where there is no GPU.
"""
import json
import os
import statistics
import sys
import time

DEVICE = os.environ.get("XFC_PEERS_DEVICE", "cuda")


class Absent(Exception):
    """Why there is nothing to compare with."""


def torch_here():
    try:
        import torch
    except ImportError as error:
        raise Absent(f"torch: {error}") from error
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise Absent(f"torch {torch.__version__} sees no GPU")
    return torch


def finish():
    if DEVICE == "cuda":
        import torch

        torch.cuda.synchronize()


def milliseconds(run):
    """Of one run: the median of ten bunches that take some 10 ms each, after a warm-up."""
    for _ in range(3):
        run()
    finish()

    def bunch(count):
        begin = time.perf_counter()
        for _ in range(count):
            run()
        finish()
        return (time.perf_counter() - begin) * 1e3 / count

    count = max(1, int(10 / max(bunch(3), 1e-3)))
    return statistics.median(bunch(count) for _ in range(10))


# ---- single kernels


def product(kind, rows, outputs, inputs):
    torch = torch_here()

    def matrix(*shape):
        return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)

    x, weight, dy = matrix(rows, inputs), matrix(outputs, inputs), matrix(rows, outputs)
    return {"torch": {"forward": lambda: x @ weight.t(), "input_gradient": lambda: dy @ weight, "weight_gradient": lambda: dy.t() @ x}[kind]}


def attention(kind, sequences, length, width, heads, dropout):
    """As the model has it: of three attentions two see every key and one is causal. By each backend that takes it."""
    torch = torch_here()
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    runs = {}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION), ("math", SDPBackend.MATH)):
        if (name == "math") == (DEVICE == "cuda"):
            continue
        q, k, v = (torch.randn(sequences, length, heads, width // heads, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))

        def forward(causal):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)

        try:
            results = [forward(causal) for causal in (False, True)]
            dy = torch.randn_like(results[0])

            def gradients():
                for result, weight in zip(results, (2, 1)):
                    for _ in range(weight):
                        torch.autograd.grad(result, (q, k, v), dy, retain_graph=True)

            def forwards():
                with torch.no_grad():
                    for causal in (False, False, True):
                        forward(causal)

            gradients()
        except RuntimeError:  # a backend that does not take this
            continue
        runs[name] = forwards if kind == "attention" else gradients
    return runs


def kernels(job):
    results = []
    for kind, *dimensions in job["work"]:
        runs, share = (attention, 3) if kind.startswith("attention") else (product, 1)
        results.append({name: milliseconds(run) / share for name, run in runs(kind, *dimensions).items()})
    torch = torch_here()
    return {"milliseconds": results, "library": f"torch {torch.__version__}, CUDA {torch.version.cuda}"}


# ---- training


def training(job):
    """Target tokens a second of training in bf16 with SDPA, compiled: over all batches of a file, pads included, or one batch without."""
    torch = torch_here()
    from torch.nn import functional as F

    from common import PAD, SIZES
    from peer_train import random_batch, read_batches
    from torch_model import FusedTransformer

    size = SIZES[job["size"]]
    torch.manual_seed(1)
    real = "source" in job
    model = FusedTransformer(size).train().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def loss_of(source, target):
        labels = target[:, 1:]
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = model(source, target[:, :-1], real)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=PAD, label_smoothing=0.1)

    compiled = torch.compile(loss_of, dynamic=real) if job.get("compile", True) else loss_of
    batches = read_batches(job["source"], job["target"], job["batch_tokens"]) if real else [random_batch(size, job["batch_tokens"], job["length"])]
    batches = [tuple(side.to(DEVICE) for side in batch) for batch in batches]

    def step(source, target):
        optimizer.zero_grad()
        compiled(source, target).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def epoch():
        for batch in batches:
            step(*batch)
        finish()

    for _ in range(2):
        epoch()
    count = max(1, job["steps"] // len(batches))
    begin = time.perf_counter()
    for _ in range(count):
        epoch()
    seconds = time.perf_counter() - begin
    tokens = count * sum(int((target[:, 1:] != PAD).sum()) for _, target in batches)
    return {"tokens_per_second": tokens / seconds, "step_ms": seconds * 1e3 / (count * len(batches)), "library": f"torch {torch.__version__}"}


# ---- decoding


def decoding(job):
    """Output tokens a second of CTranslate2 in float16, every sentence to the same length."""
    try:
        import ctranslate2
        import numpy as np
    except ImportError as error:
        raise Absent(f"CTranslate2: {error}") from error
    if DEVICE == "cuda" and ctranslate2.get_cuda_device_count() == 0:
        raise Absent(f"CTranslate2 {ctranslate2.__version__} sees no GPU")
    import ctranslate2_model
    from common import EOS, SIZES, WORDS

    size = SIZES[job["size"]]
    folder = os.path.join(job["work"], f"ctranslate2-{size.name}")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        ctranslate2_model.save(size, folder)
    translator = ctranslate2.Translator(folder, device=DEVICE, compute_type="float16" if DEVICE == "cuda" else "float32")
    results = []
    for batch, beam in job["searches"]:
        sources = np.random.default_rng(1).integers(WORDS, size.vocab, (max(batch, 4), job["length"]))
        sources[:, -1] = EOS
        words = [[f"w{i}" for i in source] for source in sources.tolist()]

        def decode():
            found = translator.translate_batch(words, beam_size=beam, num_hypotheses=1, max_batch_size=batch, min_decoding_length=job["length"],
                                               max_decoding_length=job["length"])
            return sum(len(result.hypotheses[0]) for result in found)

        decode()
        seconds = []
        for _ in range(job["repetitions"]):
            begin = time.perf_counter()
            tokens = decode()
            seconds.append(time.perf_counter() - begin)
        results.append(tokens / statistics.median(seconds))
    return {"tokens_per_second": results, "library": f"CTranslate2 {ctranslate2.__version__}"}


if __name__ == "__main__":
    try:
        answer = {"kernels": kernels, "training": training, "decoding": decoding}[sys.argv[1]](json.loads(sys.argv[2]))
    except Absent as absent:
        answer = {"absent": str(absent)}
    print(json.dumps(answer))
