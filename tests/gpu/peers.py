"""peers.py: the baselines of verify.py. Each run is a separate process that prints a line of JSON for each result as soon as it is known:
products, output losses and attention of torch (cuBLAS, flash attention, cuDNN) for the work named in xfc's profile; training steps of
torch.compile; decoding by CTranslate2 and by torch. If a library is missing, or sees no GPU, a line says so: {"absent": why}.

usage: peers.py kernels|training|decoding JOB, a job in JSON. XFC_PEERS_DEVICE=cpu runs the script without a GPU.
"""
import json
import os
import statistics
import sys
import time

DEVICE = os.environ.get("XFC_PEERS_DEVICE", "cuda")


class Absent(Exception):
    """Says why there is nothing to compare with."""


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
    """The time of one run: the median of ten groups of runs that take about 10 ms each, after a warm-up."""
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


def output_loss(rows, vocabulary, width):
    """The projection to the vocabulary, its smoothed cross-entropy, and the gradient of its logits, which xfc computes in one kernel."""
    torch = torch_here()
    from torch.nn import functional as F

    x, weight = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for shape in ((rows, width), (vocabulary, width)))
    bias = torch.zeros(vocabulary, device=DEVICE, dtype=torch.bfloat16)
    labels = torch.randint(vocabulary, (rows,), device=DEVICE)

    def loss_of(logits):
        return F.cross_entropy(logits.float(), labels, label_smoothing=0.1)

    def with_gradient(loss):
        def run():
            logits = F.linear(x, weight, bias).requires_grad_()
            torch.autograd.grad(loss(logits), logits)

        return run

    runs = {"torch": with_gradient(loss_of)}
    if DEVICE == "cuda":
        runs["torch.compile"] = with_gradient(torch.compile(loss_of))
    return runs


def attention(kind, sequences, length, width, heads, dropout):
    """The model's attention: of three, two see every key and one is causal. Times each backend that supports it."""
    from torch.nn.attention import SDPBackend

    runs = {}
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION), ("math", SDPBackend.MATH)):
        if (name == "math") == (DEVICE == "cuda"):
            continue
        runs[name] = attention_by(backend, kind, sequences, length, width, heads, dropout)
    return runs


def attention_by(backend, kind, sequences, length, width, heads, dropout):
    import torch
    from torch.nn import functional as F
    from torch.nn.attention import sdpa_kernel

    q, k, v = (torch.randn(sequences, length, heads, width // heads, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))

    def forward(causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)

    if kind == "attention":

        def forwards():
            with torch.no_grad():
                for causal in (False, False, True):
                    forward(causal)

        return forwards
    results = []  # set by the first run, because a backend may refuse to run

    def gradients():
        if not results:
            results.extend(forward(causal) for causal in (False, False, True))
            results.append(torch.randn_like(results[0]))
        *forwards, dy = results
        for result in forwards:
            torch.autograd.grad(result, (q, k, v), dy, retain_graph=True)

    return gradients


def kernels(job):
    torch = torch_here()
    for kind, *dimensions in job["work"]:
        share = 3 if kind.startswith("attention") else 1
        runs = attention(kind, *dimensions) if kind.startswith("attention") else output_loss(*dimensions) if kind == "output_loss" else product(kind, *dimensions)
        times, refused = {}, {}
        for name, run in runs.items():
            try:
                times[name] = milliseconds(run) / share  # the mean of the three
            except Exception as error:  # an unsupported case, a missing compiler, or too little memory
                refused[name] = (str(error).splitlines() or [type(error).__name__])[0][:200]
        yield {"work": [kind, *dimensions], "milliseconds": times, "refused": refused, "library": f"torch {torch.__version__}, CUDA {torch.version.cuda}"}


# ---- training


def training(job):
    """Target tokens per second of compiled training in bf16 with SDPA: over all batches of a file, with padding, or one batch without."""
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
    yield {"tokens_per_second": tokens / seconds, "step_ms": seconds * 1e3 / (count * len(batches)), "library": f"torch {torch.__version__}"}


# ---- decoding: every sentence to the same length


def sources_of(job, size, batch):
    """As many random sentences of that length as xfc's benchmark decodes, `batch` at once: at least four."""
    import random

    from common import EOS, WORDS

    generator = random.Random(1)
    return [[generator.randrange(WORDS, size.vocab) for _ in range(job["length"] - 1)] + [EOS] for _ in range(max(batch, 4))]


def timed(decode, job):
    """Output tokens per second: the median of several runs, after a warm-up run."""
    decode()
    seconds = []
    for _ in range(job["repetitions"]):
        begin = time.perf_counter()
        tokens = decode()
        seconds.append(time.perf_counter() - begin)
    return tokens / statistics.median(seconds)


def ctranslate2_searches(job, size):
    try:
        import ctranslate2
        import numpy
    except ImportError as error:
        raise Absent(f"CTranslate2: {error}") from error
    if DEVICE == "cuda" and ctranslate2.get_cuda_device_count() == 0:
        raise Absent(f"CTranslate2 {ctranslate2.__version__} sees no GPU")
    import ctranslate2_model

    folder = os.path.join(job["work"], f"ctranslate2-{size.name}")
    if not os.path.isdir(folder):
        os.mkdir(folder)
        ctranslate2_model.save(size, folder)
    translator = ctranslate2.Translator(folder, device=DEVICE, compute_type="float16" if DEVICE == "cuda" else "float32")
    for batch, beam in job["searches"]:
        words = [[f"w{i}" for i in source] for source in sources_of(job, size, batch)]

        def decode():
            found = translator.translate_batch(words, beam_size=beam, num_hypotheses=1, max_batch_size=batch, min_decoding_length=job["length"],
                                               max_decoding_length=job["length"])
            return sum(len(result.hypotheses[0]) for result in found)

        yield {"search": [batch, beam], "tokens_per_second": timed(decode, job), "library": f"CTranslate2 {ctranslate2.__version__}"}


class TorchSearch:
    """Search with torch_model's model in bf16: keys and values of all steps lie in tensors of fixed shapes, so that on a GPU a step is one
    captured graph. All inputs and outputs of a step are tensors of this object."""

    def __init__(self, model, size, batch, beam, length, source_length):
        import torch

        self.torch, self.model, self.size, self.batch, self.beam, self.length = torch, model, size, batch, beam, length
        parameter = next(model.parameters())
        like = {"device": parameter.device, "dtype": parameter.dtype}
        rows, head = batch * beam, size.d_model // size.heads
        self.caches = [[torch.zeros(rows, size.heads, length, head, **like) for _ in range(2)] for _ in range(size.layers)]
        self.memories = [[torch.zeros(batch, size.heads, source_length, head, **like) for _ in range(2)] for _ in range(size.layers)]
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=parameter.device)
        self.found = torch.zeros(rows, length, dtype=torch.long, device=parameter.device)
        self.scores = torch.zeros(batch, beam, device=parameter.device)
        self.position = torch.zeros(1, dtype=torch.long, device=parameter.device)
        self.graph = None

    def step(self):
        from torch.nn import functional as F

        from common import WORDS

        torch, model, size, beam = self.torch, self.model, self.size, self.beam
        embed = model.target
        x = embed.table(self.tokens) * embed.scale + embed.positions.index_select(0, self.position)
        seen = (torch.arange(self.length, device=self.position.device) <= self.position)[None, None, None]
        for layer, (keys, values), (memory_keys, memory_values) in zip(model.decoder, self.caches, self.memories):
            q, k, v = layer.attention.project(x)
            keys.index_copy_(2, self.position, k)
            values.index_copy_(2, self.position, v)
            x = layer.attention.attend(x, q, keys, values, mask=seen)
            # The hypotheses of a sentence attend to its memory together.
            q = layer.cross.query(x).view(self.batch, beam, size.heads, -1).transpose(1, 2)
            context = F.scaled_dot_product_attention(q, memory_keys, memory_values)
            x = x + layer.cross.o(context.transpose(1, 2).reshape(self.batch * beam, 1, size.d_model))
            x = layer.feed_forward(x)
        logits = model.output(model.decoder_norm(x))[:, 0].float()
        logits[:, :WORDS] = -torch.inf
        totals = self.scores[:, :, None] + logits.log_softmax(1).view(self.batch, beam, -1)
        scores, chosen = totals.view(self.batch, -1).topk(beam)
        parents = (chosen // size.vocab + torch.arange(self.batch, device=chosen.device)[:, None] * beam).view(-1)
        self.scores.copy_(scores)
        self.tokens.copy_((chosen % size.vocab).view(-1, 1))
        if beam > 1:
            for cache in [self.found, *(cache for pair in self.caches for cache in pair)]:
                cache.copy_(cache.index_select(0, parents))
        self.found.index_copy_(1, self.position, self.tokens)
        self.position += 1

    def begin(self, sources):
        from common import BOS

        torch = self.torch
        encoded = self.model.encode(sources)
        for layer, pair in zip(self.model.decoder, self.memories):
            for to, value in zip(pair, layer.cross.memory(encoded)):
                to.copy_(value)
        self.tokens.fill_(BOS)
        self.position.zero_()
        self.scores.fill_(-torch.inf)
        self.scores[:, 0] = 0

    def translate(self, sources):
        """The best translation of each, [batch, length]."""
        torch = self.torch
        with torch.inference_mode():
            if DEVICE == "cuda" and not self.graph:
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    for _ in range(3):
                        self.begin(sources)
                        self.step()
                torch.cuda.current_stream().wait_stream(stream)
                self.begin(sources)
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.step()
            self.begin(sources)
            for _ in range(self.length):
                self.graph.replay() if self.graph else self.step()
            return self.found.view(self.batch, self.beam, -1)[:, 0].tolist()


def torch_searches(job, size):
    torch = torch_here()
    from torch_model import FusedTransformer

    torch.manual_seed(1)
    model = FusedTransformer(size).eval().to(DEVICE, torch.bfloat16)
    for batch, beam in job["searches"]:
        search = TorchSearch(model, size, batch, beam, job["length"], job["length"])
        sources = torch.tensor(sources_of(job, size, batch), device=DEVICE)

        def decode():
            return sum(len(row) for first in range(0, len(sources), batch) for row in search.translate(sources[first : first + batch]))

        yield {"search": [batch, beam], "tokens_per_second": timed(decode, job), "library": f"torch {torch.__version__}"}


def decoding(job):
    """Output tokens per second of CTranslate2 in float16, or of torch in bf16 if CTranslate2 is missing."""
    from common import SIZES

    size = SIZES[job["size"]]
    try:
        yield from ctranslate2_searches(job, size)
    except Absent as absent:
        yield {"note": f"{absent}; torch in its place"}
        yield from torch_searches(job, size)


if __name__ == "__main__":
    try:
        for result in {"kernels": kernels, "training": training, "decoding": decoding}[sys.argv[1]](json.loads(sys.argv[2])):
            print(json.dumps(result), flush=True)
    except Absent as absent:
        print(json.dumps({"absent": str(absent)}), flush=True)
