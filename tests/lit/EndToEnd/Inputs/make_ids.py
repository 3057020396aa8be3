"""Prints lines of random token ids: make_ids.py SEED LINES VOCABULARY LONGEST. The first four ids, which are special, do not occur."""
import random
import sys

seed, lines, vocabulary, longest = map(int, sys.argv[1:])
generator = random.Random(seed)
for _ in range(lines):
    print(*(generator.randrange(4, vocabulary) for _ in range(generator.randint(1, longest))))
