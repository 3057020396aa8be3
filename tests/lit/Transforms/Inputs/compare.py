"""compare.py A B: two results of xfc-interpret have the same names and shapes, and values within 1e-9 of the largest (keys' biases have gradient 0)."""
import json
import sys

first, second = ({r["name"]: r for r in json.load(open(path))["results"]} for path in sys.argv[1:3])
assert first.keys() == second.keys(), first.keys() ^ second.keys()
for name, a in first.items():
    b = second[name]
    assert a["shape"] == b["shape"], (name, a["shape"], b["shape"])
    largest = max(map(abs, a["data"]), default=0)
    worst = max((abs(x - y) for x, y in zip(a["data"], b["data"])), default=0)
    assert worst <= 1e-9 * largest + 1e-14, f"{name}: differs by {worst}, largest {largest}"
assert any(any(a["data"]) for a in first.values()), "everything is 0"
print(len(first), "results agree")
