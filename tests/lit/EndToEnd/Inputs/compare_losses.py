"""compare_losses.py TOLERANCE A.jsonl B.jsonl: the last training losses of two logs agree within the relative tolerance."""
import json
import sys

tolerance = float(sys.argv[1])
losses = []
for file in sys.argv[2:]:
    records = [json.loads(line) for line in open(file)]
    losses.append([record["loss"] for record in records if "loss" in record][-1])
difference = abs(losses[1] / losses[0] - 1)
print(f"{losses[0]} and {losses[1]}: {difference:.1e} apart")
if not difference <= tolerance:
    sys.exit(f"more than {tolerance}")
