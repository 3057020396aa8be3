"""ptxas.py FILE.ptx ARCH...: checks that ptxas compiles PTX for each architecture without spills, local memory or warnings."""
import re
import subprocess
import sys

failed = False
for arch in sys.argv[2:]:
    run = subprocess.run(["ptxas", "-arch=" + arch, "-v", "-o", "/dev/null", sys.argv[1]], capture_output=True, text=True)
    said = run.stdout + run.stderr
    kernel, kernels = "?", 0
    for line in said.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            kernel, kernels = match[1], kernels + 1
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
