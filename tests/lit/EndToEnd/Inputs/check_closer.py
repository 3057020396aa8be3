"""check_closer.py PAIRS WORK_FOLDER TEACHER WEIGHTS STUDENT TAUGHT_WEIGHTS ORDINARY_WEIGHTS: the distributions of the student that learned from
the teacher's are closer to them, by the mean Kullback-Leibler divergence over the labels of pairs that none has seen, than those of the
student that learned from the labels alone. Plain Python."""
import math
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import prepared
import tensors

pairs, work, teacher, weights, student, taught, ordinary = sys.argv[1:]
pairs = prepared.read(pairs)
sides = [pair[0] for pair in pairs], [pair[1][:-1] for pair in pairs]
inputs = {}
for name, rows in zip(("source", "target"), sides):
    width = max(map(len, rows))
    inputs[name] = "I32", [len(rows), width], [token for row in rows for token in row + [0] * (width - len(row))]
tensors.write(os.path.join(work, "closer.in"), inputs)


def log_probabilities(executable, weights):
    """A list for each label."""
    output = os.path.join(work, "closer.out")
    subprocess.run([executable, "forward", "--weights", weights, "--input", os.path.join(work, "closer.in"), "--output", output, "--quiet"], check=True)
    (_, columns, vocabulary), logits = tensors.read(output)["logits"]
    result = []
    for i, row in enumerate(sides[1]):
        for label in range(len(row)):
            at = (i * columns + label) * vocabulary
            own = logits[at : at + vocabulary]
            largest = max(own)
            total = largest + math.log(math.fsum(math.exp(z - largest) for z in own))
            result.append([z - total for z in own])
    return result


p = log_probabilities(teacher, weights)


def divergence(weights):
    q = log_probabilities(student, weights)
    return math.fsum(math.exp(a) * (a - b) for one, other in zip(p, q, strict=True) for a, b in zip(one, other, strict=True)) / len(p)


near, far = divergence(taught), divergence(ordinary)
print(f"divergence from the teacher over {len(p)} labels: {near:.4f} with its distributions, {far:.4f} without")
assert near < 0.7 * far, (near, far)
