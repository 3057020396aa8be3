"""make_text.py SEED LINES: prints lines "words<TAB>the same words reversed, in another spelling", a language pair that can be learned."""
import random
import sys

generator = random.Random(int(sys.argv[1]))
words = ["anna", "berta", "carl", "dora", "emil", "fritz", "gustav", "hans", "ida", "julius"]
for _ in range(int(sys.argv[2])):
    line = [generator.choice(words) for _ in range(generator.randint(1, 6))]
    print(" ".join(line) + "\t" + " ".join(word[::-1] for word in reversed(line)))
