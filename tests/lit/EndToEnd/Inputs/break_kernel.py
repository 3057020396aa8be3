"""break_kernel.py EXECUTABLE BROKEN KERNEL FROM TO: writes a copy of EXECUTABLE in which TO, of equal length, replaces FROM everywhere in the PTX of a
kernel, for every architecture."""
import re
import shutil
import sys

executable, broken, kernel, before, after = sys.argv[1:]
assert len(before) == len(after)
code = open(executable, "rb").read()
entry = rb"\.visible \.entry " + re.escape(kernel.encode()) + rb"\(.*?\n}\n"
code, count = re.subn(entry, lambda found: found[0].replace(before.encode(), after.encode()), code, flags=re.DOTALL)
assert count, f"no kernel {kernel}"
with open(broken, "wb") as file:
    file.write(code)
shutil.copymode(executable, broken)
