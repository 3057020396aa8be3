"""verify.py: on a machine with a GPU, in the folder that pack.sh made: every promise on a toy model (check_cuda.py); on the shipped models
every output of every program beside the CPU's, with each parameter's gradient, so that each kernel has its part in something
that is compared; then speed. Prints Markdown; exit status 1 where something differs. Plain Python."""
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import tensors

# Largest difference of a tensor from the CPU's, over its largest value. In bf16 both round operands to 8 bits of a mantissa, but
# sum in another order, so that now and then a rounding falls the other way.
TOLERANCE = {"f32": 1e-3, "bf16": 4e-2}
SEARCHES = {"greedy": ("--beam", "1"), "beam 5": ("--beam", "5")}
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


def main():
    have = lambda *names: [name for name in names if os.path.exists(os.path.join(here, name))]
    query = subprocess.run(["sh", "-c", "nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader"], capture_output=True, text=True)
    print(f"# On a GPU\n\n{datetime.date.today()}, {query.stdout.strip() or 'no nvidia-smi'}. Made by `tests/gpu/verify.py`.\n")
    with tempfile.TemporaryDirectory() as folder:
        print("## Beside the CPU\n\nThe largest difference of any tensor from the CPU's, over its largest value.\n")
        toy = guarded("toy", lambda: subprocess.run([sys.executable, os.path.join(here, "check_cuda.py"), os.path.join(here, "toy"), "", f"{folder}/toy"], check=True,
                                                    capture_output=True, text=True).stdout.strip())
        print(f"Every promise, on a toy model: {toy}\n")
        rows = []
        for name in have("tiny-f32", "tiny-bf16", "small-f32", "base-f32", "base-bf16"):
            found = guarded(f"{name}: forward", lambda: forward(name, folder))
            weights, text = found if isinstance(found, tuple) else (None, found)
            rows.append((name, text, guarded(f"{name}: steps", lambda: steps(name, folder)),
                         guarded(f"{name}: decoding", lambda: decode(name, folder, weights)) if weights else "-"))
        table(("model", "outputs and gradients", "weights after 3 steps", "translations"), rows)

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
    print("What failed: " + (", ".join(failures) or "nothing") + ".")
    sys.exit(bool(failures))


main()
