"""compare_scores.py TOLERANCE A B: two outputs of translate --scores have the same number of lines, and their scores agree within the
tolerance, relative to the larger of the two and 1."""
import sys

tolerance = float(sys.argv[1])
scores = [[float(line.split("\t")[-1]) for line in open(file)] for file in sys.argv[2:]]
if len(scores[0]) != len(scores[1]) or not scores[0]:
    sys.exit(f"{len(scores[0])} and {len(scores[1])} lines")
worst = max(abs(a - b) / max(abs(a), abs(b), 1) for a, b in zip(*scores))
print(f"scores up to {worst:.1e} apart")
if not worst <= tolerance:
    sys.exit(f"more than {tolerance}")
