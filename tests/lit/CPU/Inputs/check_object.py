"""check_object.py OBJECT {x86-64-v3,x86-64-v4} IMAGE: checks the symbols of an object, its vector registers, and that the
loops of the matrix micro-kernel do not touch the stack. Needs llvm-nm and llvm-objdump."""
import re
import subprocess
import sys

file, cpu, image = sys.argv[1:]
ALLOWED = {"memset", "memcpy", "log", "logf"}
failures = []


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(*flags):
    return {line.split()[-1] for line in run("llvm-nm", "--extern-only", *flags, file).splitlines()}


if symbols("--defined-only") != {image}:
    failures.append(f"defines {sorted(symbols('--defined-only'))}, expected {image} alone")
if extra := symbols("--undefined-only") - ALLOWED:
    failures.append(f"needs {sorted(extra)}, expected no more than {sorted(ALLOWED)}")

functions, name = {}, None
for line in run("llvm-objdump", "--disassemble", "--no-show-raw-insn", file).splitlines():
    if header := re.fullmatch(r"[0-9a-f]+ <(.*)>:", line):
        functions[name := header[1]] = []
    elif instruction := re.match(r"\s*([0-9a-f]+):\s+(.*?)\s*(#|$)", line):
        functions[name].append((int(instruction[1], 16), instruction[2]))

# zmm, mask registers and the upper 16 registers are AVX-512's.
wide = [f"{name}: {text}" for name, body in functions.items() for _, text in body if re.search(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|[23]\d)", text)]
if cpu == "x86-64-v3" and wide:
    failures.append(f"AVX-512 in {wide[0]}")
if cpu == "x86-64-v4" and not wide:
    failures.append("no AVX-512")


def innermost_loops(body):
    """From where an instruction jumps back to, to that instruction, without another such jump inside."""
    jumps = [(int(target[1], 16), at) for at, text in body if (target := re.match(r"j\w+\s+0x([0-9a-f]+)", text)) and int(target[1], 16) <= at]
    for begin, end in jumps:
        if not any(begin <= other[0] and other[1] < end for other in jumps):
            yield [text for at, text in body if begin <= at <= end]


# product_ROWSxCOLUMNS_LAYOUT; the narrowest have two vectors of columns.
kernels = {name: (int(match[1]), int(match[2])) for name in functions if (match := re.match(r"product_(\d+)x(\d+)_", name))}
if not kernels:
    sys.exit("no micro-kernel product_ROWSxCOLUMNS_LAYOUT")
rows, columns = max(kernels.values())
lanes = min(shape[1] for shape in kernels.values()) // 2
register = "%zmm" if cpu == "x86-64-v4" else "%ymm"
for name, shape in kernels.items():
    loops = [[text for text in loop] for loop in innermost_loops(functions[name])]
    products = [loop for loop in loops if any("vfmadd" in text for text in loop)]
    # Every row times every vector, once or unrolled.
    expected = shape[0] * shape[1] // lanes
    if not products or any(sum("vfmadd" in text and register in text for text in loop) % expected for loop in products):
        failures.append(f"{name}: no loop of {expected} products, or one of another number")
    spills = [text for loop in products for text in loop if "(%rsp" in text]
    if spills:
        failures.append(f"{name}: {len(spills)} accesses to the stack in its loops, first {spills[0]}")

if failures:
    sys.exit(f"{file}:\n  " + "\n  ".join(failures))
print(f"{len(functions)} functions, {len(wide)} instructions of AVX-512, {len(kernels)} micro-kernels up to {rows} x {columns}")
