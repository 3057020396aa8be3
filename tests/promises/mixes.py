"""mixes.py [--engines LIST] [--mixes N] [--seed S] [--threads N] [--xfc XFC]: how often a sentence's result depends on its batch mates.

Random sentences run alone and in random batches, in f32, at the size of models/small.json with random weights: xfc (its executable's
own `selfcheck --promises`), PyTorch (nn.Transformer, and the same model around scaled_dot_product_attention), CTranslate2 and ONNX
Runtime, in the versions of tests/bench/requirements.txt. Results are compared to the bit: the logits of each sentence, or, of
CTranslate2, its scores. Prints a table: batches, sentences compared, those that differ, and the largest difference. Ends with
status 1 where an engine of the list is not installed, xfc has a sentence that differs, or a control fails: another token has to be
seen as a difference."""
import argparse
import importlib.metadata
import importlib.util
import pathlib
import random
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))

VOCABULARY, SENTENCES, LONGEST = 4000, 24, 20


def sentences(seed):
    chance = random.Random(seed)
    return [[chance.randrange(4, VOCABULARY) for _ in range(chance.randint(1, LONGEST))] for _ in range(2 * SENTENCES)]


def batches(mixes, seed):
    chance = random.Random(seed)
    for _ in range(mixes):
        yield chance.sample(range(SENTENCES), chance.randint(1, SENTENCES))


class Row:
    """The results of one engine: batches, sentences compared, those that differ, the largest difference."""

    def __init__(self, name, package=None):
        self.name = f"{name} {importlib.metadata.version(package)}" if package else name
        self.batches, self.compared, self.differing, self.largest, self.control = 0, 0, 0, 0.0, True

    def text(self):
        rate = 100 * self.differing / max(self.compared, 1)
        return f"| {self.name} | {self.batches} | {self.compared} | {self.differing} | {rate:.3g} % | {self.largest:.3g} |"


def run(name, package, results, mixes, seed):
    """`results(pairs)` returns the result of each pair of sentences in one batch of all of them, as a NumPy array."""
    import numpy as np

    everything = sentences(seed)
    pairs = list(zip(everything[:SENTENCES], everything[SENTENCES:]))
    alone = [results([pair])[0] for pair in pairs]
    row = Row(name, package)
    for batch in batches(mixes, seed):
        row.batches += 1
        for index, result in zip(batch, results([pairs[i] for i in batch])):
            row.compared += 1
            if result.tobytes() != alone[index].tobytes():
                row.differing += 1
                row.largest = max(row.largest, float(np.abs(result - alone[index]).max()))
    source, target = pairs[0]
    row.control = results([([source[0] ^ 1] + source[1:], target)])[0].tobytes() != alone[0].tobytes()
    return row


def torch_rows(arguments):
    import torch

    import torch_model
    from common import PAD, SIZES

    torch.set_num_threads(arguments.threads)
    size = SIZES["small"]

    def padded(lists):
        longest = max(map(len, lists))
        return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in lists])

    for name, kind in (("PyTorch, nn.Transformer", torch_model.EagerTransformer), ("PyTorch, SDPA", torch_model.FusedTransformer)):
        torch.manual_seed(1)
        model = kind(size).eval()

        def results(pairs):
            sources, targets = padded([pair[0] for pair in pairs]), padded([pair[1] for pair in pairs])
            with torch.inference_mode():
                logits = model(sources, targets, len({len(pair[0]) for pair in pairs}) > 1)
            return [logits[i, : len(pair[1])].numpy() for i, pair in enumerate(pairs)]

        yield run(name, "torch", results, arguments.mixes, arguments.seed)


def ctranslate2_rows(arguments):
    import ctranslate2
    import numpy as np

    import ctranslate2_model
    from common import SIZES

    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_model.save(SIZES["small"], folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=arguments.threads)

        def results(pairs):
            words = [[[f"w{i}" for i in side] for side in pair] for pair in pairs]
            scores = translator.score_batch([pair[0] for pair in words], [pair[1] for pair in words], max_batch_size=1024)
            return [np.array(score.log_probs, np.float32) for score in scores]

        yield run("CTranslate2", "ctranslate2", results, arguments.mixes, arguments.seed)


def onnx_rows(arguments):
    import onnxruntime
    import torch

    import torch_model
    from common import PAD, SIZES

    torch.manual_seed(1)
    model = torch_model.FusedTransformer(SIZES["small"]).eval()

    class Padded(torch.nn.Module):
        def forward(self, source, target):
            return model(source, target, True)

    with tempfile.TemporaryDirectory() as folder:
        example = torch.randint(4, 100, (2, 7)), torch.randint(4, 100, (2, 5))
        axes = [{0: torch.export.Dim("batch"), 1: torch.export.Dim(side)} for side in ("source", "target")]
        torch.onnx.export(Padded().eval(), example, f"{folder}/model.onnx", dynamo=True, dynamic_shapes=axes,
                          input_names=["source", "target"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = arguments.threads
        session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])

        def padded(lists):
            longest = max(map(len, lists))
            return torch.tensor([ids + [PAD] * (longest - len(ids)) for ids in lists]).numpy()

        def results(pairs):
            sources, targets = padded([pair[0] for pair in pairs]), padded([pair[1] for pair in pairs])
            logits = session.run(None, {"source": sources, "target": targets})[0]
            return [logits[i, : len(pair[1])] for i, pair in enumerate(pairs)]

        yield run("ONNX Runtime", "onnxruntime", results, arguments.mixes, arguments.seed)


def xfc_rows(arguments):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.xfc, "compile", ROOT / "models/small.json", "-o", f"{folder}/small", "--set", f"source_vocab={VOCABULARY}",
                        "--set", f"target_vocab={VOCABULARY}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # The command limits itself to 30 seconds of mixes; other seeds give other sentences.
        row, seed = Row("xfc"), arguments.seed
        while row.batches < arguments.mixes:
            call = subprocess.run([f"{folder}/small", "selfcheck", "--promises", "--seed", str(seed), "--threads", str(arguments.threads),
                                   "--mixes", str(arguments.mixes - row.batches)], capture_output=True, text=True)
            line = re.search(r"logits of sentences in (\d+) random batches +(\d+) +(\d+)", call.stdout)
            if not line:
                sys.exit(f"error: selfcheck --promises: {call.stderr or call.stdout}")
            row.batches += int(line[1])
            row.compared += int(line[2])
            row.differing += int(line[3])
            row.largest = float("nan") if row.differing else 0.0
            row.control &= call.returncode == 0
            seed += 1
        yield row


# What measures an engine, and the packages that it needs.
ENGINES = {
    "xfc": (xfc_rows, []),
    "torch": (torch_rows, ["torch"]),
    "ctranslate2": (ctranslate2_rows, ["ctranslate2", "numpy"]),
    "onnxruntime": (onnx_rows, ["onnx", "onnxruntime", "onnxscript", "torch"]),
}


def instruction_sets():
    """Those of this machine on which the engines' choice of kernels depends."""
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
    return [name for name in known if flags and name in flags[1].split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default=",".join(ENGINES), help="which, between commas")
    parser.add_argument("--mixes", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--xfc", default=str(ROOT / "build/bin/xfc"))
    arguments = parser.parse_args()
    engines = arguments.engines.split(",")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"--engines: unknown {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    needed = {name for engine in engines for name in ENGINES[engine][1]}
    missing = sorted(name for name in needed if not importlib.util.find_spec(name))
    if missing:
        sys.exit(f"error: not installed: {', '.join(missing)}; `pip install -r tests/bench/requirements.txt` installs them, and --engines leaves engines out")
    print(f"{arguments.mixes} random batches of 1 to {SENTENCES} sentences, threads: {arguments.threads}, the machine has {', '.join(instruction_sets())}\n")
    print("| engine | batches | sentences compared | that differ | | largest difference |\n|---|---|---|---|---|---|")
    failed = False
    for engine in engines:
        for row in ENGINES[engine][0](arguments):
            print(row.text(), flush=True)
            failed |= not row.control or (engine == "xfc" and row.differing > 0)
    sys.exit(failed)


if __name__ == "__main__":
    main()
