"""verify.py: on a machine with a GPU, in the folder that pack.sh made: every promise on a toy model (check_cuda.py); on the shipped models
each kernel of training beside the CPU's on the same operands, every output of every program, and each parameter's gradient; then speed, alone and beside the libraries that can be imported there (peers.py). Prints Markdown; exit status 1 where
something differs or fails: an absent library is said to be absent, and a ratio below its aim is only marked. Plain Python.

usage: verify.py [--quick] [SECTION...]: only these of correctness, speed, products, attention, training, decoding; --quick tries the script with
batches that mean nothing."""
import collections
import datetime
import json
import math
import os
import random
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import kernels as profiles  # of tests/bench
import tensors
from common import SIZES

# Largest difference of a tensor from the CPU's, over its largest value. In bf16 both round operands to 8 bits of a mantissa, but
# sum in another order, so that now and then a rounding falls the other way.
TOLERANCE = {"f32": 1e-3, "bf16": 4e-2}
SEARCHES = {"greedy": ("--beam", "1"), "beam 5": ("--beam", "5")}
# How many times as fast as the fastest library we want to be; products and attention by the geometric mean.
QUICK = "--quick" in sys.argv
BATCHES = (64,) if QUICK else (8192, 32768)
PRODUCT_BATCHES = (64,) if QUICK else (8192, 16384, 32768, 65536)
LENGTHS = (16,) if QUICK else (32, 128, 512)
STEPS = 2 if QUICK else 40
SEARCH_SIZES = [(1, 1)] if QUICK else [(1, 1), (1, 5), (64, 1), (64, 5), (256, 5)]  # sentences at once, and the beam
PEERS = ("peer-tiny", "peer-base", "peer-big")  # pack.sh makes the last two
AIMS = {"products": 0.92, "attention": 0.85, "attention gradient": 0.75, "training": 1.3, "decoding": 1.3}
failures = []


def call(name, *words):
    done = subprocess.run([os.path.join(here, name), *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def guarded(what, work):
    """A line of the report, whatever happens."""
    try:
        return work()
    except Exception as error:  # the report names it and goes on
        failures.append(what)
        return f"FAILED: {error}"


def forward(name, folder):
    about = json.loads(call(name, "info", "--json"))
    generator = random.Random(1)
    rows = {"source": (5, 37), "target": (5, 29)}
    ids = {what: [generator.randrange(4, about[what + "_vocab"]) for _ in range(a * b)] for what, (a, b) in rows.items()}
    for what, (batch, columns) in rows.items():  # ragged
        for sentence in range(batch):
            for column in range(columns - 7 * sentence, columns):
                ids[what][sentence * columns + column] = 0
    ids["labels"] = ids["target"][1:] + [3]
    tensors.write(f"{folder}/in", {what: ("I32", list(rows.get(what, rows["target"])), values) for what, values in ids.items()})
    call(name, "train", *training(folder, about), "--out", f"{folder}/{name}.first", "--steps", "1", "--device", "cpu")
    weights = ("--weights", f"{folder}/{name}.first/last.safetensors")
    for device in ("cpu", "cuda"):
        call(name, "forward", *weights, "--input", f"{folder}/in", "--output", f"{folder}/out.{device}", "--gradients", "--attention", "--device", device)
    worst = max(tensors.differences(f"{folder}/out.cpu", f"{folder}/out.cuda").items(), key=lambda item: item[1])
    if worst[1] > TOLERANCE[about["type"]]:
        raise RuntimeError(f"{worst[0]} differs by {worst[1]:.1e} of its largest value")
    return weights, f"{worst[1]:.1e} ({worst[0]})"


def training(folder, about):
    path = f"{folder}/ids.{about['source_vocab']}.{about['target_vocab']}"
    generator = random.Random(2)
    for side in ("source", "target"):
        with open(f"{path}.{side}", "w") as file:
            for _ in range(64):
                print(*(generator.randrange(4, about[side + "_vocab"]) for _ in range(generator.randint(3, 40))), file=file)
    return ("--format", "ids", "--source", f"{path}.source", "--target", f"{path}.target", "--batch-tokens", "512", "--seed", "1", "--quiet", "--lr", "0.001",
            "--schedule", "constant", "--adam-eps", "0.01")


def steps(name, folder):
    about = json.loads(call(name, "info", "--json"))
    for device in ("cpu", "cuda"):
        call(name, "train", *training(folder, about), "--out", f"{folder}/{name}.{device}", "--steps", "3", "--device", device)
    worst = max(tensors.differences(f"{folder}/{name}.cpu/last.safetensors", f"{folder}/{name}.cuda/last.safetensors").items(), key=lambda item: item[1])
    if worst[1] > TOLERANCE[about["type"]]:
        raise RuntimeError(f"{worst[0]} differs by {worst[1]:.1e} of its largest value")
    return f"{worst[1]:.1e} ({worst[0]})"


def decode(name, folder, weights):
    about = json.loads(call(name, "info", "--json"))
    path = training(folder, about)[3]
    lines = []
    for search, flags in SEARCHES.items():
        outputs = {}
        for device, tokens in (("cpu", "2048"), ("cuda", "2048"), ("cuda", "1")):
            outputs[device, tokens] = call(name, "translate", *weights, "--format", "ids", "--input", path, "--max-length", "30", *flags, "--quiet", "--device", device,
                                           "--batch-tokens", tokens).splitlines()
        cpu, gpu, alone = outputs.values()
        if gpu != alone:
            raise RuntimeError(f"{search}: {sum(a != b for a, b in zip(gpu, alone))} translations differ alone and in a batch")
        lines.append(f"{search}: {sum(a == b for a, b in zip(cpu, gpu))} of {len(cpu)} as on the CPU")
    return "; ".join(lines)


def table(header, rows):
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def bench(name, *words):
    return json.loads(call(name, "bench", *words, "--device", "cuda", "--json"))


def kernels(result):
    total = sum(kernel["ms"] for kernel in result["kernels"])
    return [(kernel["kernel"], kernel["location"], f"{kernel['calls']:.0f}", f"{kernel['ms']:.3f}", f"{100 * kernel['ms'] / total:.1f} %",
             f"{kernel['flops'] / max(kernel['ms'], 1e-9) * 1e-9:.2f}", f"{kernel['bytes'] / max(kernel['ms'], 1e-9) * 1e-6:.0f}") for kernel in result["kernels"][:25]]


def promises(folder, have):
    print("## Beside the CPU\n\nThe largest difference of any tensor from the CPU's, over its largest value.\n")
    toy = guarded("toy", lambda: subprocess.run([sys.executable, os.path.join(here, "check_cuda.py"), os.path.join(here, "toy"), "", f"{folder}/toy"], check=True,
                                                capture_output=True, text=True).stdout.strip())
    print(f"Every promise, on a toy model: {toy}\n")
    rows = []
    for name in have("tiny-f32", "tiny-bf16", "small-f32", "base-f32", "base-bf16"):
        found = guarded(f"{name}: forward", lambda: forward(name, folder))
        weights, text = found if isinstance(found, tuple) else (None, found)
        rows.append((name, guarded(f"{name}: kernels", lambda: call(name, "selfcheck", "--kernels", "--device", "cuda").splitlines()[-2]), text,
                     guarded(f"{name}: steps", lambda: steps(name, folder)),
                     guarded(f"{name}: decoding", lambda: decode(name, folder, weights)) if weights else "-"))
    table(("model", "kernels one by one", "outputs and gradients", "weights after 3 steps", "translations"), rows)


def speed(have):
    print("## Speed\n")
    rows = []
    for name in have("small-f32", "base-f32", "base-bf16", "big-bf16"):
        for tokens in (8192, 32768):
            def measured():
                result = bench(name, "train", "--batch-tokens", str(tokens), "--length", "32", "--steps", "20")
                return f"{result['tokens_per_second']:.0f}", f"{result['step_ms_median']:.2f}", f"{(result['arena_bytes'] + result['state_bytes']) / 1e9:.2f}"
            found = guarded(f"{name}: training", measured)
            rows.append((name, tokens, *(found if isinstance(found, tuple) else (found, "", ""))))
    table(("training", "tokens a batch", "target tokens a second", "ms a step", "GB"), rows)
    rows = []
    for name in have("small-f32", "base-f32", "base-bf16", "big-bf16"):
        for batch, beam in ((1, 1), (1, 5), (64, 5), (256, 5)):
            def measured():
                result = bench(name, "decode", "--sentences", str(max(batch, 4)), "--batch", str(batch), "--beam", str(beam), "--steps", "5")
                return f"{result['tokens_per_second']:.0f}", f"{result['step_ms_median']:.3f}"
            found = guarded(f"{name}: decoding", measured)
            rows.append((name, batch, beam, *(found if isinstance(found, tuple) else (found, ""))))
    table(("decoding", "sentences", "beam", "tokens a second", "ms a step"), rows)
    for name in have("base-bf16", "big-bf16"):
        for what in (("train", "--batch-tokens", "8192", "--length", "32"), ("decode", "--sentences", "64", "--steps", "3")):
            result = guarded(f"{name}: profile", lambda: bench(name, *what, "--profile"))
            print(f"### Kernels: {name}, {what[0]}\n")
            if isinstance(result, str):
                print(result + "\n")
            else:
                table(("kernel", "location", "calls", "ms a step", "share", "TFLOP/s", "GB/s"), kernels(result))


# ---- beside libraries: the models of tests/bench (models/small.json in its sizes), in bf16


def peer(what, job):
    """What a library did; a text instead where it is absent, or could not."""
    done = subprocess.run([sys.executable, os.path.join(here, "peers.py"), what, json.dumps(job)], capture_output=True, text=True)
    if done.returncode:
        return "could not: " + (done.stderr.strip().splitlines() or ["no word of why"])[-1]
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return "absent: " + answer["absent"] if "absent" in answer else answer


def mark(ratio, aim):
    return f"{ratio:.2f}" + ("" if ratio >= aim else f" (aim {aim})")


def verdict(what, ratios):
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{what.capitalize()}: geometric mean {mark(mean, AIMS[what])}, least {min(ratios):.2f}.\n")


def beside_kernels(what, shapes, have):
    """Kernels as they run inside a step of training, beside a library's alone on the same shapes: {kind: ratios}."""
    print(f"## {what.capitalize()} beside torch\n")
    rows, ratios = [], collections.defaultdict(list)
    for name in have(*PEERS):
        size = SIZES[name.removeprefix("peer-")]
        for tokens, length in shapes:
            profile = guarded(f"{name}: profile of {tokens} tokens", lambda: bench(name, "train", "--batch-tokens", str(tokens), "--length", str(length), "--steps", "3", "--profile"))
            if isinstance(profile, str):
                rows.append((name, f"{tokens} tokens", "", profile, "", ""))
                continue
            ours = {work: entry for work, entry in profiles.ours_of({**profile, "parameters": 0}, tokens // length * length, length, size).items()
                    if (work[0][0] in profiles.GEMMS) == (what == "products") and (what == "products" or work[0][0].startswith("attention"))}
            shapes_of = list(dict.fromkeys(work for work, _ in ours))
            theirs = peer("kernels", {"work": shapes_of})
            if isinstance(theirs, str):
                print(f"torch is {theirs}\n" if theirs.startswith("absent") else f"torch {theirs}\n")
                theirs = {"milliseconds": [{}] * len(shapes_of)}
            for (work, epilogue), entry in ours.items():
                times = theirs["milliseconds"][shapes_of.index(work)]
                kind, epilogue = work[0].replace("_", " "), epilogue.replace("bf16", "").strip()
                ratio = min(times.values()) / entry["ms"] if times else None
                if ratio:
                    ratios[kind if what == "attention" else what].append(ratio)
                rows.append((name, kind + (f", {epilogue}" if epilogue else ""), " x ".join(map(str, work[1:])), f"{entry['ms']:.4f} ({entry['flops'] / entry['ms'] * 1e-9:.0f} TFLOP/s)",
                             ", ".join(f"{library} {time:.4f}" for library, time in times.items()), f"{ratio:.2f}" if ratio else ""))
    table(("model", "kernel", "shape", "xfc ms", "library ms", "library / xfc"), rows)
    for kind in ratios:
        verdict(kind, ratios[kind])


def sentences(folder, vocabulary):
    """Pairs whose lengths are spread as those of real text: 8 to 90 tokens, most of them near 25."""
    generator = random.Random(4)
    path = f"{folder}/text"
    with open(f"{path}.source", "w") as source, open(f"{path}.target", "w") as target:
        for _ in range(20 if QUICK else 12000):
            length = min(90, max(8, round(generator.lognormvariate(3.2, 0.5))))
            for file in (source, target):
                print(*(generator.randrange(4, vocabulary) for _ in range(max(4, length + generator.randint(-3, 3)))), file=file)
    return path


def beside_training(folder, have):
    print("## Training beside torch.compile\n\nTarget tokens a second; bf16, SDPA, fused Adam. Of text torch computes pads too, its batches sorted by length.\n")
    rows, ratios = [], []
    for name in have(*PEERS):
        size = SIZES[name.removeprefix("peer-")]
        path = sentences(folder, size.vocab)
        for what in (*(("length", length) for length in LENGTHS[:2]), ("text", 0)):
            for tokens in BATCHES:
                text = what[0] == "text"
                given = ("--source", f"{path}.source", "--target", f"{path}.target") if text else ("--length", str(what[1]))
                ours = guarded(f"{name}: training", lambda: bench(name, "train", "--batch-tokens", str(tokens), "--steps", str(STEPS), *given))
                job = {"size": size.name, "batch_tokens": tokens, "steps": STEPS, "compile": not QUICK, **({"source": f"{path}.source", "target": f"{path}.target"} if text else {"length": what[1]})}
                theirs = peer("training", job)
                both = not isinstance(ours, str) and not isinstance(theirs, str)
                ratio = ours["tokens_per_second"] / theirs["tokens_per_second"] if both else 0
                ratios += [ratio] if both else []
                rows.append((name, "text" if text else f"length {what[1]}", tokens, ours if isinstance(ours, str) else f"{ours['tokens_per_second']:.0f}",
                             theirs if isinstance(theirs, str) else f"{theirs['tokens_per_second']:.0f}", mark(ratio, AIMS["training"]) if both else ""))
    table(("model", "batches", "tokens a batch", "xfc", "torch.compile", "xfc / torch"), rows)
    verdict("training", ratios)


def beside_decoding(folder, have):
    print("## Decoding beside CTranslate2 in float16\n\nOutput tokens a second, 25 of each sentence.\n")
    rows, ratios = [], []
    for name in have(*PEERS):
        theirs = peer("decoding", {"size": name.removeprefix("peer-"), "work": folder, "length": 25, "searches": SEARCH_SIZES, "repetitions": 5})
        for number, (batch, beam) in enumerate(SEARCH_SIZES):
            ours = guarded(f"{name}: decoding", lambda: bench(name, "decode", "--sentences", str(max(batch, 4)), "--batch", str(batch), "--beam", str(beam), "--length", "25", "--steps", "5"))
            both = not isinstance(ours, str) and not isinstance(theirs, str)
            ratio = ours["tokens_per_second"] / theirs["tokens_per_second"][number] if both else 0
            ratios += [ratio] if both else []
            rows.append((name, batch, beam, ours if isinstance(ours, str) else f"{ours['tokens_per_second']:.0f}",
                         theirs if isinstance(theirs, str) else f"{theirs['tokens_per_second'][number]:.0f}", mark(ratio, AIMS["decoding"]) if both else ""))
    table(("model", "sentences", "beam", "xfc", "CTranslate2", "xfc / CTranslate2"), rows)
    verdict("decoding", ratios)


def main():
    have = lambda *names: [name for name in names if os.path.exists(os.path.join(here, name))]
    query = subprocess.run(["sh", "-c", "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader"], capture_output=True, text=True)
    print(f"# On a GPU\n\n{datetime.date.today()}, {query.stdout.strip() or 'no nvidia-smi'}. Made by `tests/gpu/verify.py`.\n")
    with tempfile.TemporaryDirectory() as folder:
        sections = {
            "correctness": lambda: promises(folder, have),
            "speed": lambda: speed(have),
            "products": lambda: beside_kernels("products", [(tokens, LENGTHS[0]) for tokens in PRODUCT_BATCHES], have),
            "attention": lambda: beside_kernels("attention", [(PRODUCT_BATCHES[1 % len(PRODUCT_BATCHES)], length) for length in LENGTHS], have),
            "training": lambda: beside_training(folder, have),
            "decoding": lambda: beside_decoding(folder, have),
        }
        for name in [word for word in sys.argv[1:] if word in sections] or sections:
            sections[name]()
            sys.stdout.flush()
    print("What failed: " + (", ".join(failures) or "nothing") + ".")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
