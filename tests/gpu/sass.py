"""Assembles PTX to machine code of an NVIDIA GPU, disassembles it, and finds the loops of its kernels. Plain Python; ptxas and nvdisasm on PATH."""
import collections
import dataclasses
import os
import re
import subprocess
import tempfile


@dataclasses.dataclass
class Kernel:
    name: str
    registers: int
    instructions: list  # of Instruction, in order
    labels: dict  # their positions: indices into instructions


@dataclasses.dataclass
class Instruction:
    guarded: bool  # by a predicate: it may be skipped
    opcode: str  # LDS.128
    operands: str

    @property
    def stem(self):
        return self.opcode.split(".")[0]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def kernels(ptx, arch):
    """Each kernel of a PTX file as ptxas compiles it for an architecture, by name."""
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "cubin")
        said = run("ptxas", "-arch=" + arch, "-v", "-o", cubin, ptx)
        text = run("nvdisasm", "-c", cubin)
    registers = dict(re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", said, re.S))
    found, kernel = {}, None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernel = found[section[1]] = Kernel(section[1], int(registers[section[1]]), [], {})
        elif kernel and (label := re.match(r"\s*(\.L\w+):", line)):
            kernel.labels[label[1]] = len(kernel.instructions)
        elif kernel and (code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)\s*([^;]*);", line)):
            kernel.instructions.append(Instruction(bool(code[1]) and code[1].strip() != "@PT", code[2], code[3].strip()))
    return found


def loops(kernel):
    """The natural loops of a kernel: sets of indices into its instructions, smallest first."""
    code = kernel.instructions
    following = [[] for _ in code]
    for i, instruction in enumerate(code):
        target = re.search(r"`\((\.L\w+)\)", instruction.operands)
        jumps = instruction.stem in ("BRA", "CALL") and target
        if jumps and target[1] in kernel.labels and kernel.labels[target[1]] < len(code):
            following[i].append(kernel.labels[target[1]])
        # An unguarded branch may still have a predicate among its operands: BRA P0, or BRA.DIV UR4.
        ends = instruction.stem in ("BRA", "EXIT", "RET", "BRX") and not instruction.guarded
        ends = ends and not re.match(r"!?U?P\d|!?UR\d", instruction.operands)
        if not ends and i + 1 < len(code):
            following[i].append(i + 1)

    # Immediate dominators, by the iteration of Cooper, Harvey and Kennedy over the reverse postorder.
    order, seen, stack = [], {0}, [(0, iter(following[0]))]
    while stack:
        at, rest = stack[-1]
        for after in rest:
            if after not in seen:
                seen.add(after)
                stack.append((after, iter(following[after])))
                break
        else:
            order.append(at)
            stack.pop()
    number = {at: n for n, at in enumerate(order)}
    preceding = collections.defaultdict(list)
    for at in order:
        for after in following[at]:
            preceding[after].append(at)
    dominator = {0: 0}

    def common(a, b):
        while a != b:
            while number[a] < number[b]:
                a = dominator[a]
            while number[b] < number[a]:
                b = dominator[b]
        return a

    changed = True
    while changed:
        changed = False
        for at in reversed(order[:-1]):
            new = None
            for before in preceding[at]:
                if before in dominator:
                    new = before if new is None else common(before, new)
            if dominator.get(at) != new:
                dominator[at], changed = new, True

    def dominates(a, b):
        while b != a and b != 0:
            b = dominator[b]
        return a == b

    bodies = collections.defaultdict(set)  # by the loop's head
    for at in order:
        for head in following[at]:
            if dominates(head, at):
                body, open_ends = bodies[head] | {head}, [at]
                while open_ends:
                    inside = open_ends.pop()
                    if inside not in body:
                        body.add(inside)
                        open_ends += preceding[inside]
                bodies[head] = body
    return sorted(bodies.values(), key=len)
