"""check_persistent.py TRANSLATOR WEIGHTS DRIVERS CAPABILITY TYPES FOLDER: translations with --cuda-step persistent are those with graph, byte for byte.
DRIVERS holds the PTX interpreter's libcuda.so.1, for a GPU of this compute capability; products are computed in each of TYPES. Plain Python."""
import os
import random
import subprocess
import sys

translator, weights, drivers = map(os.path.abspath, sys.argv[1:4])
capability, types = sys.argv[4], sys.argv[5].split(",")
os.makedirs(sys.argv[6], exist_ok=True)
os.chdir(sys.argv[6])
generator = random.Random(7)
for name, lengths in (("one", [6]), ("several", [5, 1, 7, 3])):
    with open(name, "w") as file:
        file.writelines(" ".join(str(generator.randrange(4, 40)) for _ in range(length)) + "\n" for length in lengths)
with open("wanted", "w") as file:
    file.write("5 6\n\n4 || 7 7\n\n")


def call(words, processors=4, order=0, **more):
    """What the executable prints, and the work that the driver was given, such as kernels."""
    variables = {"LD_LIBRARY_PATH": drivers, "XFC_PTX_ARCH": capability, "XFC_PTX_PROCESSORS": processors, "XFC_PTX_ORDER": order, "XFC_PTX_CHECK": 1,
                 "XFC_PTX_TRACE": "trace", **more}
    done = subprocess.run([translator, *words, "--device", "cuda", "--quiet"], env=dict(os.environ, **{name: str(value) for name, value in variables.items()}),
                          capture_output=True, text=True)
    assert done.returncode == 0, (words, variables, done.stderr)
    with open("trace") as file:
        return done.stdout, [line.split(": ", 1)[1].strip() for line in file]


def run(step, words, *rest, **more):
    return call(["translate", "--weights", weights, "--format", "ids", "--cuda-step", step, "--min-length", "3", "--max-length", "6", "--scores", *words], *rest, **more)


persistent = "cooperative kernel decoding_steps"
launches = 0
searches = [("several", "--beam", "1"), ("one", "--beam", "5", "--n-best", "2"), ("several", "--beam", "5")]
for compute in types:
    for file, *words in searches + [("several", "--beam", "2", "--constraints", "wanted")]:  # which reads all log-probabilities
        words += ["--input", file, "--compute-type", compute]
        expected, given = run("graph", words)
        assert persistent not in given and "graph" in given, given
        # A block that does everything, blocks that take several chunks each, and more blocks than most launches have chunks.
        for processors, order in ((1, 0), (2, 1), (3, 2), (40, 3)) if file == "one" else ((3, 2), (40, 3)):
            found, given = run("persistent", words, processors, order)
            assert found == expected, (words, processors, order, found, expected)
            steps = given.count(persistent)
            assert steps >= 3 and not any("one_query" in what for what in given), given
            launches += steps

# Where the GPU cannot launch it, or a profile asks for single kernels, the graph or its kernels run.
words = ["--input", "several", "--beam", "2"]
expected, _ = run("graph", words)
found, given = run("persistent", words, XFC_PTX_COOPERATIVE=0)
assert found == expected and persistent not in given and "graph" in given, given
bench = ["bench", "decode", "--cuda-step", "persistent", "--sentences", "2", "--batch", "2", "--length", "3", "--beam", "1", "--steps", "1"]
for more, alone in ([], False), (["--profile"], True):  # after a translation that is not profiled
    _, given = call([*bench, *more])
    assert persistent in given and alone == any("one_query" in what for what in given), given
print(f"{launches} steps as one kernel: the same bytes")
