"""ptxas.py FILE.ptx ARCH... [--only KERNEL]: checks that ptxas compiles PTX for each architecture, and the kernel, or all, without spills, local
memory or warnings."""
import re
import subprocess
import sys

arguments, only = sys.argv[1:], None
if "--only" in arguments:
    only = arguments.pop()
    arguments.remove("--only")
failed = False
for arch in arguments[1:]:
    run = subprocess.run(["ptxas", "-arch=" + arch, "-v", "-o", "/dev/null", arguments[0]], capture_output=True, text=True)
    said = run.stdout + run.stderr
    kernel, kernels = "?", 0
    for line in said.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel, kernels = match[1], kernels + 1
        if only and kernel not in ("?", only):
            continue
        bad = [int(number) for number in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", line)]
        if any(bad) or "warning" in line.lower() or "error" in line.lower() or "serializ" in line.lower():
            print(f"{arch}: {kernel}: {line.strip()}")
            failed = True
        elif match := re.search(r"Used (\d+) registers", line):
            print(f"{arch}: {kernel}: {match[1]} registers")
    if run.returncode != 0 or kernels == 0:
        print(f"{arch}: ptxas failed: {said}")
        failed = True
sys.exit(failed)
