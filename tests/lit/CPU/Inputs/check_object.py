"""check_object.py OBJECT CPU IMAGE [KIND...]: checks the symbols of an object, its vector registers, and that the loops of the
matrix micro-kernels contain all their products and do not access the stack, except for prefetch addresses. The micro-kernels must be of the given
kinds (elements, widened, pairs, tiles, quads, dots, dottiles; default elements). Those of tiles must load each tile right before the first product that
needs it, with prefetches and conversions between the products; the kernels that call them must configure tiles once, outside of loops, and release them, and so must gradients of
weights and attention in bf16; and a gradient of a weight must transpose its operand without spilling. Needs llvm-readelf and llvm-objdump."""
import re
import subprocess
import sys

file, cpu, image = sys.argv[1:4]
kinds = set(sys.argv[4:]) or {"elements"}
ALLOWED = {"memset", "memcpy", "log", "logf"}
failures = []


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# Number, value, size, type, binding, visibility, section, name.
rows = [line.split() for line in run("llvm-readelf", "--symbols", "--wide", file).splitlines() if re.match(r"\s*[1-9]\d*:.*(GLOBAL|WEAK)", line)]
shown = {row[7] for row in rows if row[5] == "DEFAULT" and row[6] != "UND"}
needed = {row[7] for row in rows if row[6] == "UND"}
if shown != {image}:
    failures.append(f"defines {sorted(shown)}, expected {image} alone")
if extra := needed - ALLOWED:
    failures.append(f"needs {sorted(extra)}, expected no more than {sorted(ALLOWED)}")
if strange := [row[7] for row in rows if row[5] == "HIDDEN" and not row[7].startswith(cpu + ".")]:
    failures.append(f"has {strange[0]}, expected names that begin with {cpu}.")

functions, name = {}, None
for line in run("llvm-objdump", "--disassemble", "--no-show-raw-insn", file).splitlines():
    if header := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
        functions[name := header[1].removeprefix(cpu + ".")] = []
    elif instruction := re.match(r"\s*([0-9a-f]+):\s+(.*?)\s*(#|$)", line):
        functions[name].append((int(instruction[1], 16), instruction[2]))

# zmm registers, mask registers and the upper 16 vector registers belong to AVX-512.
wide = [f"{name}: {text}" for name, body in functions.items() for _, text in body if re.search(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|[23]\d)", text)]
if cpu.startswith("x86-64-v3") and wide:
    failures.append(f"AVX-512 in {wide[0]}")
if not cpu.startswith("x86-64-v3") and not wide:
    failures.append("no AVX-512")


def loops_of(body, instruction):
    """The innermost loops that execute such an instruction: from the target of backward jumps to the last of them."""
    ends = {}
    for at, text in body:
        if (target := re.match(r"j\w+\s+0x([0-9a-f]+)", text)) and int(target[1], 16) <= at:
            ends[int(target[1], 16)] = at
    loops = [(begin, end) for begin, end in ends.items() if any(begin <= at <= end and instruction in text for at, text in body)]
    for begin, end in loops:
        if not any(begin <= other[0] and other[1] <= end and other != (begin, end) for other in loops):
            yield [text for at, text in body if begin <= at <= end]


def repeats(body, instruction):
    """Whether control that has passed this instruction can come back to it. (A backward jump may also lead to an end that lies before it.)"""
    following = dict(zip([at for at, _ in body], [at for at, _ in body[1:]]))
    texts = dict(body)
    passed, waiting = set(), [at for at, text in body if instruction in text]
    while waiting:
        at = waiting.pop()
        target = re.match(r"j\w+\s+0x([0-9a-f]+)", texts[at])
        ends = re.match(r"(jmp|ret)", texts[at])
        for after in ([int(target[1], 16)] if target else []) + ([] if ends else [following.get(at)]):
            if after not in texts or after in passed:
                continue
            if instruction in texts[after]:
                return True
            passed.add(after)
            waiting.append(after)
    return False


# product_KIND_ROWSxCOLUMNS_..., without KIND for elements; the narrowest have two vectors of columns, or four with AVX-512.
PRODUCTS = {"elements": "vfmadd", "widened": "vfmadd", "pairs": "vdpbf16ps", "tiles": "tdpbf16ps", "quads": "vpmaddubsw", "dots": "vpdpbusd",
            "dottiles": "tdpbusd"}
kernels, tiled = {}, {}
for name in functions:
    if match := re.match(r"product_(?:([a-z]+)_)?(\d+)x(\d+)(?:_|$)", name):
        kind = match[1] or "elements"
        (tiled if kind.endswith("tiles") else kernels)[name] = (kind, int(match[2]), int(match[3]))
if (found := {kind for kind, _, _ in [*kernels.values(), *tiled.values()]}) != kinds:
    failures.append(f"micro-kernels of {sorted(found)}, expected {sorted(kinds)}")
lanes = min((columns for _, _, columns in kernels.values()), default=0) // (2 if cpu.startswith("x86-64-v3") else 4)
register = "%ymm" if cpu.startswith("x86-64-v3") else "%zmm"
for name, (kind, rows, columns) in kernels.items():
    wanted = lambda text: PRODUCTS[kind] in text and register in text
    loops = list(loops_of(functions[name], PRODUCTS[kind]))
    # Every row times every vector, possibly unrolled; twice for a widened pair.
    expected = rows * columns // lanes * (2 if kind == "widened" else 1)
    if not loops or any(sum(map(wanted, loop)) % expected for loop in loops):
        failures.append(f"{name}: no loop of {expected} products, or one of another number")
    spills = [text for loop in loops for text in loop if "(%rsp" in text]
    # The rows, the panel, and the rows and panel to prefetch need more addresses than there are registers; up to three are reloaded, once for four units.
    fetches = "_fetching_rows_" in name and len(spills) <= 3 and not any("mm" in text or re.search(r",\s*-?(0x)?[0-9a-f]*\(%rsp", text) for text in spills)
    if spills and not fetches:
        failures.append(f"{name}: {len(spills)} accesses to the stack in its loops, first {spills[0]}")

# What a step of 16 units executes: a tile is loaded before the first product of its row or column of tiles (the right ones of a single row of tiles take turns).
for name, (kind, rows, columns) in tiled.items():
    down, across = rows // 16, columns // 16
    expected = []
    for row in range(down):
        for column in range(across):
            expected += [f"load {4 + row}"] * (column == 0) + [f"load {6 + column % 2}"] * (row == 0)
            expected.append(f"multiply {row * across + column}")
    loops = list(loops_of(functions[name], PRODUCTS[kind]))
    for loop in loops:
        steps = []
        for text in loop:
            if match := re.match(r"tileloadd(?:t1)?\s.*%tmm(\d)$", text):
                steps.append(f"load {match[1]}")
            elif match := re.match(PRODUCTS[kind] + r"\s.*%tmm(\d)$", text):
                steps.append(f"multiply {match[1]}")
            elif text.startswith("prefetch"):
                steps.append("prefetch")
            elif re.match("vcvtne2ps2bf16|vpermt2w", text):  # rounds two vectors of f32, or joins two of bf16
                steps.append("convert")
        if [step for step in steps if step not in ("prefetch", "convert")] != expected:
            failures.append(f"{name}: a step executes {steps}, expected {expected} in this order")
        # The prefetches and the conversions of a step are spread over its products. What follows the last one may be at the loop's begin.
        begin, *parts = " ".join(steps).split("multiply")
        parts[-1] += begin
        for work in ("prefetch", "convert"):
            counts = [part.count(work) for part in parts]
            if counts and max(counts) - min(counts) > 1:
                failures.append(f"{name}: {counts} times {work} after the products of a step, expected similar numbers")
        # 32 rows of 16 pairs, or so many units of 32 columns.
        packing = re.search(r"_packing_(\d+)", name)
        converted = 32 if "_converting" in name else 2 * int(packing[1]) if packing else 0
        if steps.count("convert") != converted:
            failures.append(f"{name}: {steps.count('convert')} conversions in a step, expected {converted}")
    if len(loops) != 1 or rows * columns > 1024:
        failures.append(f"{name}: {len(loops)} loops of products, expected one, of at most four")
    if any("(%rsp" in text and "mm" in text or "tilestore" in text for loop in loops for text in loop):
        failures.append(f"{name}: its loop spills")
    if any("tilecfg" in text or "tilerelease" in text for _, text in functions[name]):
        failures.append(f"{name}: configures tiles, expected that its caller does")
configuring = {name for name, body in functions.items() if any("ldtilecfg" in text for _, text in body)}
for name in configuring:
    count = lambda texts, instruction: sum(instruction in text for text in texts)
    texts = [text for _, text in functions[name]]
    if (count(texts, "ldtilecfg"), count(texts, "tilerelease")) != (1, 1) or repeats(functions[name], "ldtilecfg"):
        failures.append(f"{name}: configures tiles {count(texts, 'ldtilecfg')} times and releases them {count(texts, 'tilerelease')} times, expected once, outside of loops")
if "tiles" in kinds and not any("_converting" in name for name in tiled):
    failures.append("no micro-kernel of tiles converts the next rows")
if bool(tiled) != bool(configuring):
    failures.append(f"{len(tiled)} micro-kernels of tiles, but {len(configuring)} kernels that configure tiles")
if "tiles" in kinds and any("weight_grad" in name for name in functions):
    if not any("_packing_" in name for name in tiled):
        failures.append("no micro-kernel of tiles packs the next panel")
    if strays := [name for name in functions if re.search("linear_weight_grad|attention.*_bf16", name) and name not in configuring]:
        failures.append(f"{strays[0]} does not multiply by tiles")
    # For 32 rows of 16 columns: halves of rows from memory, in pairs of vectors that are rounded if they are f32, and three rounds of interleaving.
    MOST = {"transpose_pairs": {"vcvtne2ps2bf16": 16, "vpunpck[lh]wd": 48, "vinsertf64x4": 32},
            "transpose_pairs_bf16": {"vcvtne2ps2bf16": 0, "vpunpck[lh]wd": 48, "vinserti128": 32}}
    if not MOST.keys() & functions.keys():
        failures.append(f"has none of {sorted(MOST)}")
    for name in MOST.keys() & functions.keys():
        halves = lambda loop: sum(bool(re.match(r"vinsert(f64x4|i128)\s+\$0x1, \S*\(%r", text)) for text in loop)
        whole = max(loops_of(functions[name], "vpunpck"), key=halves, default=[])
        for instruction, most in MOST[name].items():
            if (found := sum(bool(re.match(instruction, text)) for text in whole)) != most:
                failures.append(f"{name}: {found} instructions {instruction} in its loop of whole rows, expected {most}")
        if spills := [text for text in whole if re.search("mm.*%rsp|%rsp.*mm", text)]:
            failures.append(f"{name}: {len(spills)} vectors are spilled, first {spills[0]}")

if failures:
    sys.exit(f"{file}:\n  " + "\n  ".join(failures))
print(f"{len(functions)} functions, {len(wide)} instructions of AVX-512, {len(kernels)} micro-kernels, {len(configuring)} kernels of tiles")
