"""loops.py FILE.ptx ARCH OPCODE --without OPCODE...: in a kernel with OPCODE in a loop, no loop has any of the other opcodes, or one that goes
on with a dot after it. At least one kernel must be like that."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "gpu"))
import sass

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("arch")
parser.add_argument("opcode")
parser.add_argument("--without", nargs="+", required=True)
options = parser.parse_args()



def is_unwanted(instruction):
    return any((instruction.opcode + ".").startswith(opcode + ".") for opcode in options.without)


failed, found = False, 0
for kernel in sass.kernels(options.file, options.arch).values():
    code, loops = kernel.instructions, sass.loops(kernel)
    if not any(code[i].stem == options.opcode for loop in loops for i in loop):
        continue
    found += 1
    bad = sorted({i for loop in loops for i in loop if is_unwanted(code[i])})
    for i in bad:
        print(f"{kernel.name}: {code[i].opcode} {code[i].operands} in a loop (instruction {i})")
    failed |= bool(bad)
    print(f"{kernel.name}: {len(loops)} loops, {sum(map(is_unwanted, code))} such instructions outside")
if not found:
    print(f"no kernel has {options.opcode} in a loop")
sys.exit(failed or not found)
