"""compare_scores.py TOLERANCE A B: two outputs of translate --scores have the same number of lines, and their scores agree within the
tolerance on average, relative to the largest of the two and 1. Searches may diverge where two tokens are equally likely."""
import sys

tolerance = float(sys.argv[1])
scores = [[float(line.split("\t")[-1]) for line in open(file)] for file in sys.argv[2:]]
if len(scores[0]) != len(scores[1]) or not scores[0]:
    sys.exit(f"{len(scores[0])} and {len(scores[1])} lines")
mean = sum(abs(a - b) / max(abs(a), abs(b), 1) for a, b in zip(*scores)) / len(scores[0])
print(f"scores {mean:.1e} apart on average")
if not mean <= tolerance:
    sys.exit(f"more than {tolerance}")
