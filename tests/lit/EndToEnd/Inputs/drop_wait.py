"""drop_wait.py PLAN: prints the plan without the first `after` of decode_candidates whose launch reads what a product has written. Plain Python."""
import re
import sys

with open(sys.argv[1]) as file:
    lines = file.read().splitlines()
begin = next(i for i, line in enumerate(lines) if "plan.program @decode_candidates(" in line)
launches = [i for i in range(begin, len(lines)) if "plan.launch @" in lines[i]]
for i in launches:
    after = re.search(r"after = array<i32: (\d+)>, ", lines[i])
    if after and "plan.launch @linear_" in lines[launches[int(after[1])]]:
        lines[i] = lines[i].replace(after[0], "")
        break
else:
    sys.exit("no launch waits for a product alone")
print("\n".join(lines))
