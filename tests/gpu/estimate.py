"""estimate.py: what bounds each GPU kernel of a training step, from the plan, ptxas and the machine code of its loops: a Markdown table. Then what
bounds decoding steps (decoding.py).

usage: estimate.py XFC MODEL.json [--arch sm_80,sm_90a] [--dtype bf16] [--batch-tokens N] [--length N] [-o TABLE.md]
       estimate.py XFC MODEL.json --check TABLE.md    compares with a table made before: exit status 1 where a time differs by over 5 %, where
                                                      registers or blocks differ, where a kernel is new or gone, or where decoding differs
Plain Python; ptxas and nvdisasm on PATH or beside Python (its package triton). No GPU.

The model. A kernel takes LAUNCH and the longest of these, times what the last wave of blocks leaves idle:
- memory: what the plan says its operands and results are, at the speed of a copy;
- tensor cores, FFMA: the plan's operations at what the instruction of its loop can do; one in f32 takes three of TF32;
- issue: instructions of the loop for each of its operations, one a clock and scheduler;
- L2: what the loop loads for each of its operations.
A block that is alone on its processor waits for memory at its beginning and its end, while nothing multiplies: there, memory's time is added.
The loop is the innermost one with most of the kernel's products; that of warps which only fetch is counted with it. Paths for rows that are
not aligned are left out. Attention's tiles are of 64 queries and keys: sentences of another length than a multiple of it take longer."""
import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

import decoding
import sass
from h200 import CLOCK, MEMORY, PROCESSORS

# What is assumed of an NVIDIA H200, besides what h200.py has. The L2 cache of an H100 was seen to feed products at 9.1 TB/s (docs/gpu-h100.md).
SCHEDULERS = 4  # per processor
L2 = 9.1e12
REGISTERS, SHARED, THREADS, BLOCKS = 65536, 227 << 10, 2048, 32
LAUNCH = 2e-6
# Floating-point operations per clock and processor: wgmma's, the part of it that mma.sync reaches, in bf16 and as three products of TF32, FFMA's.
PEAK = {"HGMMA": 4096, "HMMA": 0.63 * 4096, "HMMA.TF32": 0.63 * 2048 / 3, "FFMA": 256}
# Products that a kernel computes for each one in its operation count: the gradient of attention computes scores and dP twice.
COMPUTED = {"attention_grad": 7 / 5}
BULK = 4096  # bytes per bulk copy: half of a block of 64 x 64 of a weight in bf16, which goes to both blocks of a cluster
# PTX for sm_80 runs as the driver's ptxas compiles it for 9.0.
ASSEMBLED = {"sm_80": "sm_90", "sm_86": "sm_90", "sm_90a": "sm_90a"}
TOLERANCE = 0.05


def find_tools():
    folders = [os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")]
    packages = [os.path.join(path, "triton/backends/nvidia/bin") for path in sys.path]
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *folders, *packages])
    for tool in ("ptxas", "nvdisasm"):
        if not shutil.which(tool):
            sys.exit(f"estimate.py: {tool} is neither on PATH nor in $CUDA_HOME/bin nor in Python's package triton")


def kind_of(instruction):
    return "HMMA.TF32" if instruction.stem == "HMMA" and instruction.opcode.endswith(".TF32") else instruction.stem


def operations(instruction):
    """The floating-point operations of an instruction for its warp. In TF32, three instructions make one in f32."""
    stem = instruction.stem
    if stem == "HGMMA":  # 64 rows for four warps
        m, n, k = map(int, re.search(r"\.(\d+)x(\d+)x(\d+)", instruction.opcode).groups())
        return 2 * m * n * k / 4
    if stem == "HMMA":
        digits = re.search(r"\.(16)(8)(\d+)", instruction.opcode).groups()
        return 2 * math.prod(map(int, digits)) / (3 if kind_of(instruction) == "HMMA.TF32" else 1)
    return 64 if stem == "FFMA" else 0


def bits(instruction):
    found = re.search(r"\.(64|128)\b", instruction.opcode)
    return int(found[1]) if found else 32


def loads(instruction):
    """The bytes that an instruction loads from global memory for its warp."""
    if instruction.stem in ("LDG", "LDGSTS"):
        return 32 * bits(instruction) // 8
    return BULK if instruction.stem == "UBLKCP" else 0


def as_it_runs(kernel, loop):
    """A loop's instructions without its unaligned paths: the pieces between branches that load 4 bytes at a time while others load more."""
    code, pieces = kernel.instructions, [[]]
    heads = set(kernel.labels.values())
    for i in sorted(loop):
        if pieces[-1] and (i in heads or i != pieces[-1][-1] + 1 or code[pieces[-1][-1]].stem == "BRA"):
            pieces.append([])
        pieces[-1].append(i)
    of_piece = [[code[i] for i in piece] for piece in pieces]
    fetches = [[bits(x) for x in piece if x.stem in ("LDG", "LDGSTS")] for piece in of_piece]
    widest = max((b for piece in fetches for b in piece), default=0)
    return [x for piece, widths in zip(of_piece, fetches) if not (widest == 128 and widths and max(widths) == 32) for x in piece]


@dataclasses.dataclass
class Loop:
    kind: str  # a key of PEAK; empty: no notable products
    issued: float  # instructions of a warp for each operation of the block
    loaded: float  # bytes for each operation
    mix: str


def loop_of(kernel, threads):
    """What a kernel's main loop over products does."""
    code, loops, warps = kernel.instructions, sass.loops(kernel), threads / 32
    totals = {kind: sum(operations(x) for x in code if kind_of(x) == kind) for kind in PEAK}
    kind = next((kind for kind in ("HGMMA", "HMMA", "HMMA.TF32") if totals[kind]), "FFMA")
    innermost = [loop for loop in loops if not any(other < loop and has(code, other, kind) for other in loops)]
    main = max(innermost, key=lambda loop: sum(operations(code[i]) for i in loop if kind_of(code[i]) == kind), default=set())
    body = as_it_runs(kernel, main)
    work = sum(operations(x) for x in body if kind_of(x) == kind)
    if work < (512 if kind == "FFMA" else 1):
        return Loop("", 0, 0, "")
    multiplying, issued, loaded, beside = warps, len(body), sum(map(loads, body)), []
    if any(x.stem == "USETMAXREG" for x in code):  # one of three warpgroups only fetches: its loop holds the copies
        multiplying = warps * 2 / 3
        fetching = max((as_it_runs(kernel, loop) for loop in innermost if loop != main), key=lambda b: sum(map(loads, b)))
        copies = sum(loads(x) for x in fetching if x.stem == "LDGSTS") * warps / 3
        # One thread requests half of the weight's blocks; each arrives in both blocks of the cluster.
        loaded = (copies + sum(loads(x) for x in fetching if x.stem == "UBLKCP")) / multiplying
        beside = [x for x in fetching if x.stem in ("LDGSTS", "UBLKCP")]
        issued = (len(body) * multiplying + len(fetching) * warps / 3) / multiplying
    named = {}
    for x in body + beside:
        if x.stem in ("HGMMA", "HMMA", "FFMA", "LDSM", "LDS", "LDG", "LDGSTS", "STS", "MUFU", "UBLKCP"):
            named[x.stem] = named.get(x.stem, 0) + 1
    mix = ", ".join(f"{count} {name}" for name, count in named.items())
    return Loop(kind, issued / work, loaded / work, f"{len(body)}: {mix}")


def has(code, loop, kind):
    return any(kind_of(code[i]) == kind for i in loop)


@dataclasses.dataclass
class Row:
    kernel: str
    launches: int
    registers: int
    resident: int
    loop: str
    bound: str
    each: float

    def text(self):
        total = self.each * self.launches
        return f"| {self.kernel} | {self.launches} | {self.registers} | {self.resident} | {self.loop} | {self.bound} | {self.each * 1e6:.1f} | {total * 1e3:.2f} |"


def row_of(entry, kernel):
    launches, threads = entry["launches"], entry["threads"]
    warps = math.ceil(threads / 32)
    resident = min(REGISTERS // (math.ceil(kernel.registers / 8) * 8 * 32 * warps), SHARED // (entry["scratch_bytes"] + 1024), THREADS // threads, BLOCKS)
    bytes_ = entry["bytes"] / launches
    flops = entry["flops"] / launches * next((factor for name, factor in COMPUTED.items() if entry["kernel"].startswith(name)), 1)
    loop = loop_of(kernel, threads)
    times = {"memory": bytes_ / MEMORY}
    if loop.kind:
        times["FFMA" if loop.kind == "FFMA" else "tensor cores"] = flops / (PEAK[loop.kind] * PROCESSORS * CLOCK)
        times["issue"] = flops * loop.issued / (PROCESSORS * SCHEDULERS * CLOCK)
        times["L2"] = flops * loop.loaded / L2
    # Blocks run in waves; the last one takes as long as a full one. Memory bandwidth is saturated once a wave is half full.
    waves = entry["chunks"] / (PROCESSORS * resident)
    for what in times:
        times[what] *= math.ceil(waves) / waves if what != "memory" else max(1, 0.5 / min(waves, 1))
    bound = max(times, key=times.get)
    each = LAUNCH + times[bound]
    if resident == 1 and loop.kind:
        bound = max(times.keys() - {"memory"}, key=times.get)
        each = LAUNCH + times["memory"] + times[bound]
        bound += " + memory"
    elif LAUNCH > times[bound]:
        bound = "launch"
    return Row(entry["kernel"], launches, kernel.registers, resident, loop.mix, bound, each)


def only(ptx, names):
    """The text of a PTX file with only these kernels."""
    begin = ptx.index(".visible .entry ")
    pieces = re.split(r"^(?=\.visible \.entry )", ptx[begin:], flags=re.M)
    kept = [piece for piece in pieces if (found := re.match(r"\.visible \.entry (\w+)", piece)) and found[1] in names]
    # A kernel is followed by a comment that names the next one.
    return ptx[:begin] + "".join(re.sub(r"\t// \.globl.*\n?$", "", piece) for piece in kept)


def estimate(options, arch):
    what = [options.model, "--target", "cuda", "--cuda-arch", arch, "--dtype", options.dtype]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        ptx = os.path.join(folder, "kernels.ptx")
        emitted = pool.submit(sass.run, options.xfc, "compile", *what, "--mode", "train", "--emit", "ptx", "-o", ptx)
        plan = subprocess.run(
            [options.xfc, "inspect", *what, "--json", "--batch-tokens", str(options.batch_tokens), "--length", str(options.length)],
            capture_output=True, text=True)
        if plan.returncode:
            sys.exit(f"estimate.py: {plan.stderr.strip()}")
        emitted.result()
        step = json.loads(plan.stdout)["training step"]
        with open(ptx) as file:
            text = only(file.read(), {entry["kernel"] for entry in step["launches"]})
        with open(ptx, "w") as file:
            file.write(text)
        kernels = sass.kernels(ptx, ASSEMBLED.get(arch, arch))
    rows = [row_of(entry, kernels[entry["kernel"]]) for entry in step["launches"]]
    return sorted(rows, key=lambda row: -row.each * row.launches), step


HEADER = "| kernel | launches | registers | blocks an SM | loop: instructions of a warp | bound by | us each | ms in all |"


def report(options):
    release = re.search(r"release ([\d.]+)", sass.run("ptxas", "--version"))[1]
    name = os.path.splitext(os.path.basename(options.model))[0]
    lines = [
        "# What bounds the GPU kernels: estimates", "",
        f"Made by `tests/gpu/estimate.py XFC models/{name}.json`, whose head has the model, with ptxas {release}: a training step of `{name}` in {options.dtype} with",
        f"{options.batch_tokens:,} tokens of source and of target in sentences of {options.length}, on an NVIDIA H200. gpu-h200.md has measurements. A test makes it again",
        "and compares; after a change that is meant, run the script with `-o docs/gpu-estimate.md`.", ""
    ]
    for arch in options.arch.split(","):
        rows, step = estimate(options, arch)
        total = sum(row.each * row.launches for row in rows)
        count = sum(row.launches for row in rows)
        flops = sum(entry["flops"] for entry in step["launches"])
        moved = sum(entry["bytes"] for entry in step["launches"])
        lines += [
            f"## {arch}", "",
            f"{count} launches, {flops / 1e12:.1f} TFLOP, {moved / 1e9:.0f} GB: **{total * 1e3:.1f} ms**, of them bound by "
            + ", ".join(f"{what} {sum(row.each * row.launches for row in rows if row.bound == what) * 1e3:.1f}"
                        for what in dict.fromkeys(row.bound for row in rows)) + ".",
            "", HEADER, "|---|---:|---:|---:|---|---|---:|---:|", *[row.text() for row in rows], ""
        ]
    return "\n".join(lines + decoding.report(options)).rstrip() + "\n"


def tables_of(text):
    """A report's ptxas version, and each architecture's rows by kernel."""
    arch, tables = None, {}
    for line in text.partition(decoding.TITLE)[0].splitlines():
        if found := re.match(r"## (\w+)", line):
            arch = found[1]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if arch and len(cells) == 8 and cells[1].isdigit():
            tables.setdefault(arch, {})[cells[0]] = cells
    return re.search(r"with ptxas ([\d.]+)", text)[1], tables


def check(options):
    with open(options.check) as file:
        text_before = file.read()
    release, before = tables_of(text_before)
    options.arch = ",".join(before)
    text = report(options)
    now_release, now = tables_of(text)
    if release != now_release:
        print(f"{options.check} is of ptxas {release}, this is {now_release}: not compared")
        return 0
    steps, steps_before = (of.partition(decoding.TITLE)[2].splitlines() for of in (text, text_before))
    wrong = [f"decoding: is now: {line}" for line in steps if line not in steps_before]
    wrong += [f"decoding: was: {line}" for line in steps_before if line not in steps]
    for arch, old in before.items():
        new = now[arch]
        wrong += [f"{arch}: {name} is gone" for name in old if name not in new]
        wrong += [f"{arch}: {name} is new" for name in new if name not in old]
        for name in old.keys() & new.keys():
            for what, at in (("launches", 1), ("registers", 2), ("blocks an SM", 3)):
                if abs(int(old[name][at]) - int(new[name][at])) > (4 if what == "registers" else 0):
                    wrong.append(f"{arch}: {name}: {new[name][at]} {what}, and {old[name][at]} before")
            a, b = float(old[name][6]), float(new[name][6])
            if abs(a - b) > TOLERANCE * a + 0.1:
                wrong.append(f"{arch}: {name}: {b} us, and {a} before")
        total = {what: sum(float(cells[7]) for cells in rows.values()) for what, rows in (("old", old), ("new", new))}
        print(f"{arch}: {len(new)} kernels, {total['new']:.1f} ms; {total['old']:.1f} before")
    for line in sorted(wrong):
        print(line)
    if wrong:
        print(f"if this is meant: estimate.py XFC {options.model} -o {options.check}")
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xfc")
    parser.add_argument("model")
    parser.add_argument("--arch", default="sm_80,sm_90a")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--decode-length", type=int, default=32)
    parser.add_argument("-o", "--output")
    parser.add_argument("--check")
    options = parser.parse_args()
    find_tools()
    if options.check:
        sys.exit(check(options))
    text = report(options)
    if options.output:
        with open(options.output, "w") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
