"""verify.py: on a machine with a GPU, in the folder that pack.sh's archive gives: whether everything is right, and then how fast it is, beside
the libraries that can be imported there (peers.py). Each row is printed (Markdown) and written to results.jsonl as soon as it is known, so that
a run that is cut off keeps what it has; tables.py makes tables of that file. Exit status 1 where something differs or fails: an absent library
is said to be absent, and a ratio below its aim is only marked. Needs python3 and NVIDIA's driver; README.md beside it says what to run.

Sections: correctness, products, attention, training, decoding, startup."""
import argparse
import concurrent.futures
import ctypes
import datetime
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import tables
import tensors
from common import BOS, EOS, PAD, SIZES, WORDS

# The largest allowed norm of a tensor's difference from the CPU's, relative to the tensor's norm, and difference of a
# loss. In bf16 both round operands to 8 mantissa bits but sum in another order, so that a rounding occasionally goes
# the other way; and only GPUs compute attention in bf16.
TOLERANCE = {"f32": 1e-3, "bf16": 4e-2}
LOSS_TOLERANCE = {"f32": 1e-3, "bf16": 2e-2}
SEARCHES = {"greedy": ("--beam", "1"), "beam 5": ("--beam", "5")}
SECTIONS = ("correctness", "products", "attention", "training", "decoding", "startup")
MODELS = {  # the packed models that a section uses
    "correctness": ("toy", "toy-bf16", "steps-f32", "steps-bf16", "odd-f32", "odd-bf16", "base-bf16", "base-f32"),
    **dict.fromkeys(("products", "attention", "training", "decoding"), tuple(f"peer-{size}" for size in SIZES)),
    "startup": ("base-f32", "base-bf16", "peer-big"),
}
BATCHES = {"products": (8192, 16384, 32768, 65536), "attention": (16384,), "training": (8192, 32768), "decoding": (1, 64, 256)}
LENGTHS = (32, 128, 512)


class Failure(Exception):
    """A failed check, for the report."""


class Report:
    """Reports rows as they come: on standard output, and as lines of JSON in a file; a full disk only loses the file."""

    def __init__(self, folder):
        self.records, self.failures, self.lock = [], 0, threading.Lock()
        self.section = self.table = None
        self.path = os.path.join(folder, "results.jsonl")
        try:
            os.makedirs(folder, exist_ok=True)
            self.file = open(self.path, "ab", 0)  # unbuffered
        except OSError as error:
            self.lost(error)

    def lost(self, error):
        self.file = None
        self.failures += 1
        self.print(f"{self.path} cannot be written ({error.strerror}): rows are only printed from here on; --out gives another folder.")

    def print(self, text):
        print(text, flush=True)

    def begin(self, section):
        self.section, self.table = section, False
        self.print(f"\n## {tables.TITLES[section]}\n")

    def end(self):
        for text in tables.verdicts(self.section, self.records):
            self.print("\n" + text)

    def record(self, what, row=None, **fields):
        """Writes a measurement, and prints its row if it belongs to a table."""
        with self.lock:
            record = {"record": what, "section": self.section, **fields}
            self.records.append(record)
            self.failures += what == "failure" or not fields.get("holds", True)
            if self.file:
                try:
                    line = json.dumps(record).encode() + b"\n"
                    if self.file.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError as error:
                    self.lost(error)
            if row:
                self.row(row(record))
            return record

    def row(self, text):
        if not self.table:
            self.print(tables.head(self.section))
        self.table = True
        self.print(text)

    def say(self, what, text):
        """Reports a note or a failure on a line of its own."""
        self.record(what, text=text)
        self.print(("FAILED: " if what == "failure" else "") + text)


class Machine:
    """The packed executables, and the GPU they run on."""

    def __init__(self, options, report):
        self.options, self.report = options, report
        self.cores = len(os.sched_getaffinity(0))
        self.jobs = max(1, min(8, self.cores // 3))  # concurrent processes for untimed work
        self.about = {}

    def have(self, names):
        names = [name for name in names if not self.options.model or name in self.options.model]
        return [name for name in names if os.access(os.path.join(here, name), os.X_OK)]

    def call(self, name, *words, limit=None, wrapped=()):
        """The output of an executable. Raises Failure if it fails or exceeds its time limit."""
        command = " ".join((f"./{name}", *words))
        try:
            done = subprocess.run([*wrapped, os.path.join(here, name), *words], capture_output=True, text=True, timeout=limit or self.options.limit)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"`{command}` did not end within {late.timeout:.0f} s and was stopped") from late
        if done.returncode:
            said = [text.strip() for text in (done.stdout + "\n" + done.stderr).splitlines() if "FAILED" in text or "run it alone" in text or text.startswith(("error:", "========="))]
            said = said or done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}, without a message"]
            raise Failure(f"{'; '.join(said)[:2000]} (`{command}`)")
        return done.stdout

    def cuda(self, name, image, *words, **rest):
        return self.call(name, *words, "--device", "cuda", *(("--cuda-image", image) if image else ()), **rest)

    def info(self, name):
        if name not in self.about:
            self.about[name] = json.loads(self.call(name, "info", "--json"))
        return self.about[name]

    def gpu(self, name, image=""):
        """The GPU's name and the code it runs, found by translating one word."""
        words = ("decode", "--sentences", "1", "--batch", "1", "--length", "2", "--beam", "1", "--steps", "1", "--json")
        return json.loads(self.cuda(name, image, "bench", *words))["gpu"]

    def bench(self, name, *words):
        return json.loads(self.cuda(name, self.options.image, "bench", *words, "--json"))

    def in_parallel(self, works, jobs=None):
        """Calls all of them, several at once, starting them in order. Returns what they return."""
        with concurrent.futures.ThreadPoolExecutor(jobs or self.jobs) as pool:
            return [future.result() for future in [pool.submit(work) for work in works]]


# ---- correctness


class Reference:
    """The CPU's results for a model, computed once, on first use."""

    def __init__(self, machine, name, folder, steps):
        self.machine, self.name, self.steps = machine, name, steps
        self.long, self.large = not name.startswith("toy"), name.startswith("base")
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        self.lock, self.made, self.error = threading.Lock(), False, None
        self.threads = ("--threads", str(max(1, machine.cores // machine.jobs)))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    @property
    def weights(self):
        return "--weights", self.path("first", "last.safetensors")

    @property
    def tolerance(self):
        return TOLERANCE[self.machine.info(self.name)["type"]]

    def training(self, out, steps):
        return ("train", "--format", "ids", "--source", self.path("source"), "--target", self.path("target"), "--out", self.path(out), "--steps", str(steps),
                "--batch-tokens", "512" if self.long else "128", "--seed", "1", "--quiet", "--lr", "0.001", "--schedule", "constant", "--adam-eps", "0.01",
                *self.threads)

    def forward(self, device):
        return ("forward", *self.weights, "--input", self.path("in"), "--output", self.path(f"out.{device}"), "--gradients", "--attention", *self.threads)

    def translate(self, search, tokens):
        return ("translate", *self.weights, "--format", "ids", "--input", self.path("source"), "--max-length", "30" if self.long else "12", *SEARCHES[search], "--scores",
                "--quiet", "--batch-tokens", str(tokens), *self.threads)

    def score(self, tokens):
        return ("score", *self.weights, "--format", "ids", "--source", self.path("source"), "--target", self.path("target"), "--quiet", "--batch-tokens", str(tokens),
                *self.threads)

    def write_inputs(self):
        about, generator = self.machine.info(self.name), random.Random(1)
        pairs, longest = (64, 40) if self.long else (24, 12)
        for side in ("source", "target"):
            with open(self.path(side), "w") as file:
                for _ in range(pairs):
                    print(*(generator.randrange(WORDS, about[side + "_vocab"]) for _ in range(generator.randint(3, longest))), file=file)
        # A ragged batch: each sentence is some tokens shorter than the one before.
        rows = {"source": (5, 37), "target": (5, 29)}
        ids = {side: [generator.randrange(WORDS, about[side + "_vocab"]) for _ in range(count * columns)] for side, (count, columns) in rows.items()}
        for side, (count, columns) in rows.items():
            for sentence in range(count):
                for column in range(columns - 7 * sentence, columns):
                    ids[side][sentence * columns + column] = PAD
        ids["labels"] = ids["target"][1:] + [EOS]
        tensors.write(self.path("in"), {what: ("I32", list(rows.get(what, rows["target"])), values) for what, values in ids.items()})

    def make(self):
        """Computes all results at once, so that all images are compared with the same ones. Raises Failure if the CPU's own runs fail."""
        with self.lock:
            if not self.made:
                self.made = True
                try:
                    self.write_inputs()
                    call = self.machine.call
                    call(self.name, *self.training("first", 1))
                    call(self.name, *self.forward("cpu"))
                    call(self.name, *self.training("many", self.steps))
                    self.losses = losses(self.path("many", "train.jsonl"))
                    shutil.rmtree(self.path("many"))
                    self.translations = {search: translations(call(self.name, *self.translate(search, 2048))) for search in SEARCHES}
                except Failure as failure:
                    self.error = failure
            if self.error:
                raise Failure(f"the CPU's own run failed: {self.error}")
        return self


def losses(log):
    """[(step, the mean loss of the steps since the previous line)]"""
    with open(log) as file:
        return [(record["step"], record["loss"]) for record in map(json.loads, file) if "loss" in record]


def translations(text):
    """[(words, score)] from the output of `translate --scores`."""
    return [(words, float(score)) for words, score in (row.rsplit("\t", 1) for row in text.splitlines())]


def compare(first, second, tolerance, what):
    """Compares in a separate process, because plain Python is slow on the millions of numbers of a large model."""
    done = subprocess.run([sys.executable, os.path.join(here, "tensors.py"), first, second, str(tolerance)], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{what}: {(done.stderr.strip().splitlines() or ['it failed without a message'])[-1]}")
    return done.stdout.strip()


def check_kernels(machine, reference, name, image):
    # More rows than are summed at once, so that sums of several parts run, too; toy models only run their training.
    tokens = ("--batch-tokens", "2600") if reference.long else ()
    return machine.cuda(name, image, "selfcheck", "--kernels", *tokens, *reference.threads).splitlines()[-2]


def check_forward(machine, reference, name, image):
    out = f"{image}.forward".replace(":", "-")
    machine.cuda(name, image, *reference.make().forward(out))
    answer = compare(reference.path("out.cpu"), reference.path(f"out.{out}"), reference.tolerance, "outputs and gradients")
    os.remove(reference.path(f"out.{out}"))
    return answer


def check_step(machine, reference, name, image):
    out = f"{image}.step".replace(":", "-")
    machine.cuda(name, image, *reference.make().training(out, 1))
    answer = compare(reference.path("first", "last.safetensors"), reference.path(out, "last.safetensors"), reference.tolerance, "weights")
    shutil.rmtree(reference.path(out))
    return answer


def check_losses(machine, reference, name, image):
    out = f"{image}.many".replace(":", "-")
    machine.cuda(name, image, *reference.make().training(out, reference.steps))
    found = losses(reference.path(out, "train.jsonl"))
    shutil.rmtree(reference.path(out))
    expected, allowed = reference.losses, LOSS_TOLERANCE[machine.info(name)["type"]]
    if [step for step, _ in found] != [step for step, _ in expected]:
        raise Failure(f"losses of steps {[step for step, _ in found]} were logged, on the CPU of {[step for step, _ in expected]}")
    worst = 0
    for (step, loss), (_, cpu) in zip(found, expected):
        apart = abs(loss - cpu) / abs(cpu)
        if not apart <= allowed:
            raise Failure(f"the mean loss of the last steps up to {step} is {loss:.6g}, the CPU's {cpu:.6g}")
        worst = max(worst, apart)
    return f"{found[0][1]:.4f} to {found[-1][1]:.4f}, at most {worst:.1e} from the CPU's"


def check_translations(machine, reference, name, image):
    """Expects the CPU's translations, or ones that are as good up to rounding because both searches met nearly equal candidates."""
    answers = []
    for search in SEARCHES:
        found = translations(machine.cuda(name, image, *reference.make().translate(search, 2048)))
        expected = reference.translations[search]
        if len(found) != len(expected):
            raise Failure(f"{search}: {len(found)} lines of {len(expected)}")
        other = [number for number, (a, b) in enumerate(zip(found, expected)) if a[0] != b[0]]
        for number in other:
            near_tie(machine, reference, name, search, number, expected[number], found[number])
        worst = max(abs(a[1] - b[1]) / max(1, abs(b[1])) for number, (a, b) in enumerate(zip(found, expected)) if number not in other) if len(other) < len(found) else 0
        if not worst <= reference.tolerance:
            raise Failure(f"{search}: the score of an equal translation differs by {worst:.1e}")
        if len(other) * 2 > len(found):
            raise Failure(f"{search}: {len(other)} of {len(found)} translations are not the CPU's")
        answers.append(f"{search}: {len(found) - len(other)} of {len(found)} the CPU's" + (", the others nearly equal candidates" if other else ""))
    return "; ".join(answers)


def near_tie(machine, reference, name, search, number, expected, found):
    """Raises Failure unless the search could have found either translation: a greedy one if the CPU's logits of the first differing tokens are
    equal up to rounding, a beam search if the scores are."""
    if search != "greedy":
        if not found[1] >= expected[1] - reference.tolerance * max(1, abs(expected[1])):
            raise Failure(f"{search}: sentence {number + 1} has score {found[1]:.6g}, the CPU's {expected[1]:.6g}")
        return
    a, b = ([int(word) for word in words.split()] + [EOS] for words, _ in (expected, found))
    at = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    with open(reference.path("source")) as file:
        source = [int(word) for word in file.read().splitlines()[number].split()]
    folder = tempfile.mkdtemp(dir=reference.folder)
    prefix = [BOS, *a[:at]]
    tensors.write(f"{folder}/in", {"source": ("I32", [1, len(source)], source), "target": ("I32", [1, len(prefix)], prefix)})
    machine.call(name, "forward", *reference.weights, "--input", f"{folder}/in", "--output", f"{folder}/out", *reference.threads)
    shape, logits = tensors.read(f"{folder}/out")["logits"]
    shutil.rmtree(folder)
    last = logits[-shape[-1]:]
    apart = abs(last[a[at]] - last[b[at]]) / max(map(abs, last))
    if not apart <= reference.tolerance:
        raise Failure(f"greedy: sentence {number + 1}, token {at + 1} is {b[at]}, the CPU's {a[at]}; their logits are {last[b[at]]:.6g} and {last[a[at]]:.6g}")


def check_bits(machine, reference, name, image):
    """Checks results that must not depend on the batch or the grid, bit for bit."""
    reference.make()
    for what, words in (("translations", lambda tokens: reference.translate("beam 5", tokens)), ("scores", reference.score)):
        together, few, alone = (machine.cuda(name, image, *words(tokens)).splitlines() for tokens in (4096, 100, 1))
        for other, how in ((few, "in small batches"), (alone, "alone")):
            if together != other:
                number = next(i for i, (a, b) in enumerate(zip(together, other)) if a != b)
                raise Failure(f"{what} in a large batch and {how} differ, first in line {number + 1}: {together[number]!r}, {other[number]!r}")
        if what == "scores":
            continue
        # One kernel runs a step of few rows: those of small batches, and the last ones of large batches.
        for tokens in (4096, 100):
            if together != machine.cuda(name, image, *words(tokens), "--cuda-step", "persistent").splitlines():
                raise Failure(f"translations in batches of {tokens} tokens by one kernel for each step (--cuda-step persistent) and by a graph differ")
    if reference.large:
        return "translations and scores the same in batches of 4096 tokens, of 100, and alone"
    machine.cuda(name, image, "selfcheck", *reference.threads)
    return "translations and scores the same in any batch; selfcheck holds"


def check_promises(machine, reference, name, image):
    """Checks on a toy model: resuming, accumulating, moving between devices, sampling, memory as predicted."""
    folder = reference.path(f"promises.{image}".replace(":", "-"))
    words = [sys.executable, os.path.join(here, "check_cuda.py"), os.path.join(here, name), folder, image]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=machine.options.limit)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"check_cuda.py did not end within {late.timeout:.0f} s and was stopped") from late
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        raise Failure((done.stderr.strip().splitlines() or ["it failed without a message"])[-1])
    return done.stdout.strip()


def check_ranks(machine, reference, name, image):
    """Trains with two processes, which NCCL connects, and expects the bytes of one process with twice the batches in a step."""
    reference.make()
    command = [os.path.join(here, name), *reference.training("one", 8), "--device", "cuda", "--cuda-image", image]
    for out, launch, accumulate in (("one", (), "2"), ("two", ("mpirun", "-n", "2"), "1")):
        command[command.index("--out") + 1] = reference.path(f"{image}.{out}".replace(":", "-"))
        # With a single GPU, NCCL lets the processes share it.
        environment = dict(os.environ, NCCL_MULTI_RANK_GPU_ENABLE="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        try:
            done = subprocess.run([*launch, *command, "--accumulate", accumulate], env=environment, capture_output=True, text=True, timeout=machine.options.limit)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{out}: the training did not end within {late.timeout:.0f} s and was stopped") from late
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise Failure("; ".join([text for text in said if "error:" in text] or said[-1:] or ["it failed without a message"]))
    one, two = (reference.path(f"{image}.{out}".replace(":", "-"), "last.safetensors") for out in ("one", "two"))
    compare(one, two, 0, "weights of one and of two processes")
    for path in (one, two):
        shutil.rmtree(os.path.dirname(path))
    return "two processes train to the same bytes as one"


def check_sanitizer(machine, tool, name):
    """Runs a training step and a translation under NVIDIA's checker of memory, races or barriers."""
    image = machine.options.image
    command = (shutil.which("compute-sanitizer"), "--tool", tool, "--error-exitcode", "9", "--print-limit", "3")
    for words in (("train", "--batch-tokens", "64", "--length", "8", "--steps", "1"), ("decode", "--sentences", "3", "--batch", "3", "--length", "4", "--beam", "2", "--steps", "1")):
        machine.cuda(name, image, "bench", *words, wrapped=command)
    return "no error in training and decoding"


def images_of(machine, names):
    """Each of these executables with one of its images that this GPU can run, or with the driver's own compilation; reports a line for the
    others. The driver compiles each on one core, and keeps the code for later processes."""
    if machine.options.image:
        return [(name, machine.options.image) for name in names]

    def runs(name, image):
        try:
            machine.gpu(name, image)
            return [(name, image)]
        except Failure as failure:
            machine.report.say("note" if "compute capability" in str(failure) else "failure", f"{name}, image {image}: {failure}")
            return []

    works = [lambda name=name, image=image: runs(name, image) for name in names for image in (*reversed(machine.info(name)["cuda_archs"]), "ptx")]
    return sum(machine.in_parallel(works, machine.cores), [])


def has_ranks(machine):
    """Whether several processes can be started and connected; says so if not."""
    absent = [] if shutil.which("mpirun") else ["mpirun"]
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        absent.append("libnccl.so.2")
    if absent:
        machine.report.say("note", f"{' and '.join(absent)} not found: training by several processes is not checked.")
    return not absent


# What is checked of each model and image, by the words that --check takes.
CHECKS = {
    "kernels": ("kernels one by one", check_kernels),
    "outputs": ("outputs and gradients", check_forward),
    "weights": ("weights after a step", check_step),
    "training": ("{steps} steps of training", check_losses),
    "translations": ("translations", check_translations),
    "bits": ("the same bits in any batch", check_bits),
    "promises": ("every promise", check_promises),
    "ranks": ("two processes", check_ranks),
}
SANITIZER = "sanitizer"  # and by this word, short commands of the toy models under compute-sanitizer


def correctness(machine, folder):
    names = machine.have(MODELS["correctness"])

    def check(what, name, image, work):
        begin = datetime.datetime.now()
        try:
            holds, answer = True, work()
        except Failure as failure:
            holds, answer = False, str(failure)
        except Exception as error:  # the report names it, and the others continue
            holds, answer = False, f"{type(error).__name__}: {error}"
        machine.report.record("check", tables.check_row, model=name, image=image, check=what, holds=holds, answer=answer,
                              seconds=round((datetime.datetime.now() - begin).total_seconds(), 1))

    def checks_of(reference, name, image):
        def work():
            for key, (what, does) in CHECKS.items():
                if key in machine.options.check and (key != "promises" or name == "toy") and (key != "ranks" or ranks and name.startswith("toy")):
                    check(what.format(steps=reference.steps), name, image, lambda: does(machine, reference, name, image))

        return work

    ranks = has_ranks(machine)
    last, references = [], {name: Reference(machine, name, folder, machine.options.steps) for name in names}
    works = [checks_of(references[name], name, image) for name, image in images_of(machine, names)]
    sanitizer = SANITIZER in machine.options.check
    if sanitizer and shutil.which("compute-sanitizer"):
        for name in (name for name in names if name.startswith("toy")):
            for tool in ("memcheck", "racecheck", "synccheck"):
                last.append(lambda name=name, tool=tool: check(tool, name, machine.options.image or "its best", lambda: check_sanitizer(machine, tool, name)))
    elif sanitizer:
        machine.report.say("note", "compute-sanitizer is not on the PATH: memory, races and barriers are not checked by it.")
    machine.in_parallel(works + last)


# ---- speed


def peer(what, job):
    """Yields a library's results one at a time; ends with {"absent": why} if it did not complete all of them."""
    process = subprocess.Popen([sys.executable, os.path.join(here, "peers.py"), what, json.dumps(job)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = []
    reader = threading.Thread(target=lambda: said.extend(process.stderr))  # so that its pipe never fills up
    reader.start()
    for text in process.stdout:
        if text.startswith("{"):
            yield json.loads(text)
    process.wait()
    reader.join()
    if process.returncode:
        yield {"absent": f"a library failed: {([text.strip() for text in said if text.strip()] or ['there was no message'])[-1]}"}


def ours(machine, what, *words):
    """xfc's answer; None, after reporting why, if there is none."""
    try:
        return machine.bench(*words)
    except Failure as failure:
        machine.report.say("failure", f"{what}: {failure}")


def single_kernels(machine, section, name, tokens, length):
    """Compares kernels as they run inside a training step with a library's, run alone on the same shapes."""
    report, what = machine.report, f"{name}, {tokens} tokens in sentences of {length}"
    result = ours(machine, what, name, "train", "--batch-tokens", str(tokens), "--length", str(length), "--steps", "3", "--profile")
    if not result:
        return
    profile = report.record("profile", model=name, image=image_of(machine, result), size=name.removeprefix("peer-"), tokens=tokens, length=length,
                            gpu=result["gpu"], step_ms=result["step_ms_median"], kernels=result["kernels"])
    pieces = tables.pieces(profile)

    def rows(library):
        for key, entry in pieces.items():
            if not library or list(key[0]) == library["work"]:
                report.row(tables.kernel_row(profile, key, entry, library))

    known = tables.library_times(report.records)
    works = list(dict.fromkeys(work for work, _ in pieces))
    for work in works:
        if work in known:
            rows(known[work])
    missing = [work for work in works if work not in known]
    for answer in peer("kernels", {"work": missing}) if missing else ():
        if "absent" in answer:
            rows(None)
            report.say("note", f"{what}: {answer['absent']}")
        else:
            rows(report.record("library", **answer))


def image_of(machine, result):
    """sm_90a, or sm_90a PTX if the driver compiled it."""
    return result["gpu"].rsplit(", ", 1)[-1]


def products(machine, folder):
    for name in machine.have(MODELS["products"]):
        for tokens in machine.options.batch or BATCHES["products"]:
            single_kernels(machine, "products", name, tokens, LENGTHS[0])


def attention(machine, folder):
    for name in machine.have(MODELS["attention"]):
        for tokens in machine.options.batch or BATCHES["attention"]:
            for length in LENGTHS:
                if length <= tokens:
                    single_kernels(machine, "attention", name, tokens, length)


def sentences(folder, vocabulary):
    """Pairs with the length distribution of real text: 8 to 90 tokens, most of them near 25."""
    generator = random.Random(4)
    path = f"{folder}/text{vocabulary}"
    with open(f"{path}.source", "w") as source, open(f"{path}.target", "w") as target:
        for _ in range(12000):
            length = min(90, max(8, round(generator.lognormvariate(3.2, 0.5))))
            for file in (source, target):
                print(*(generator.randrange(WORDS, vocabulary) for _ in range(max(4, length + generator.randint(-3, 3)))), file=file)
    return path


def measured(machine, name, work, *words):
    """xfc's measurement of a whole program, as recorded; None, after reporting why, if there is none."""
    if result := ours(machine, f"{name}, {' '.join(map(str, work))}", name, *words):
        fields = {key: result[key] for key in ("tokens_per_second", "step_ms_median", "arena_bytes", "state_bytes", "gpu")}
        if "--cuda-step" in words:
            fields["step"] = words[words.index("--cuda-step") + 1]
        return machine.report.record("speed", model=name, image=image_of(machine, result), size=name.removeprefix("peer-"), by="xfc", work=work, **fields)


def beside(machine, name, results, answers):
    """Rows of whole programs: each xfc result next to the library's answer. xfc has finished before the library starts, so neither slows the other."""
    report, results = machine.report, list(results)
    waiting = iter(results)
    for answer in answers:
        if "tokens_per_second" not in answer:
            report.say("note", f"{name}, {report.section}: {answer.get('absent') or answer['note']}")
            continue
        work, record = next(waiting)
        library = report.record("speed", size=name.removeprefix("peer-"), by=answer["library"], work=work, tokens_per_second=answer["tokens_per_second"])
        if record:
            report.row(tables.speed_row(record, library))
    for _, record in waiting:
        if record:
            report.row(tables.speed_row(record, None))


def training(machine, folder):
    """Training in bf16; torch uses SDPA and fused Adam, and on text also computes padding, with batches sorted by length."""
    for name in machine.have(MODELS["training"]):
        size = name.removeprefix("peer-")
        path = sentences(folder, SIZES[size].vocab)
        for length in (*LENGTHS[:2], None):
            for tokens in machine.options.batch or BATCHES["training"]:
                given = ("--length", str(length)) if length else ("--source", f"{path}.source", "--target", f"{path}.target")
                work = [f"length {length}" if length else "text", tokens]
                record = measured(machine, name, work, "train", "--batch-tokens", str(tokens), "--steps", "40", *given)
                job = {"size": size, "batch_tokens": tokens, "steps": 40, **({"length": length} if length else {"source": f"{path}.source", "target": f"{path}.target"})}
                beside(machine, name, [(work, record)], peer("training", job))


def decoding(machine, folder):
    """Decoding 25 tokens of each sentence in bf16; CTranslate2 in float16."""
    for name in machine.have(MODELS["decoding"]):
        searches = [[batch, beam] for batch in machine.options.batch or BATCHES["decoding"] for beam in (1, 5)]
        results = [(search, measured(machine, name, search, "decode", "--sentences", str(max(search[0], 4)), "--batch", str(search[0]), "--beam", str(search[1]),
                                     "--length", "25", "--steps", "5", "--cuda-step", machine.options.step)) for search in searches]
        job = {"size": name.removeprefix("peer-"), "work": folder, "length": 25, "searches": searches, "repetitions": 5}
        beside(machine, name, results, peer("decoding", job))


def startup(machine, folder):
    for name, image in images_of(machine, machine.have(MODELS["startup"])):
        try:
            result = json.loads(machine.cuda(name, image, "bench", "startup", "--json"))
            machine.report.record("startup", tables.startup_row, model=name, image=image, gpu=result["gpu"], first_token_ms=result["first_token_ms"],
                                  first_token_ms_median=result["first_token_ms_median"])
        except Failure as failure:
            machine.report.say("failure", f"{name}, image {image}: {failure}")


# ---- all of it


def positive(text):
    return [int(word) if int(word) > 0 else int("not positive") for word in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (all)")
    parser.add_argument("--model", type=lambda text: text.split(","), help="only these of the pack, separated by commas")
    parser.add_argument("--batch", type=positive, help="tokens of a batch, or sentences that are decoded together, separated by commas")
    parser.add_argument("--image", help="code of the executables to run: sm_80, sm_90a, ptx (all in correctness and startup, else the best)", default="")
    parser.add_argument("--steps", type=int, default=50, help="of the training whose losses are compared (%(default)s)")
    parser.add_argument("--step", choices=("graph", "persistent"), default="graph", help="how decoding runs a step (the executable's --cuda-step)")
    parser.add_argument("--check", type=lambda text: text.split(","), default=[*CHECKS, SANITIZER], help=f"only these checks of correctness, of {','.join([*CHECKS, SANITIZER])}")
    parser.add_argument("--limit", type=float, default=240, metavar="SECONDS", help="a process that takes longer is stopped and has failed (%(default)s)")
    parser.add_argument("--out", default=os.environ.get("OUT") or here, metavar="FOLDER", help="where results.jsonl is written ($OUT, else beside this script)")
    options = parser.parse_args()
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"'{section}' is none of {', '.join(SECTIONS)}")
    for key in options.check:
        if key not in (*CHECKS, SANITIZER):
            parser.error(f"--check {key}: the checks are {', '.join([*CHECKS, SANITIZER])}")
    packed = sorted({name for names in MODELS.values() for name in names if os.access(os.path.join(here, name), os.X_OK)})
    for name in options.model or ():
        if name not in packed:
            parser.error(f"--model {name}: the pack has {', '.join(packed) or 'no model; run this in the folder that pack.sh made an archive of'}")
    if not packed:
        parser.error("no model is beside this script; run it where the archive of pack.sh was unpacked")
    options.sections = options.sections or list(SECTIONS)
    return options, packed


def main():
    options, packed = arguments()
    report = Report(options.out)
    machine = Machine(options, report)
    first = next(name for name in (*MODELS["correctness"], *packed) if name in packed)
    try:
        gpu = machine.gpu(first)
    except Failure as failure:
        report.say("failure", f"nothing can run on a GPU here: {failure}")
        sys.exit(1)
    query = shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True)
    about = query.stdout.strip().splitlines()[0] if query and query.stdout.strip() else "no nvidia-smi"
    record = report.record("machine", date=str(datetime.date.today()), gpu=gpu, cores=machine.cores, about=f"nvidia-smi: {about}")
    report.print("# On a GPU\n\n" + tables.machine_line(record))
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("CUDA_CACHE_PATH", os.path.join(folder, "cache"))  # keeps compiled code for the next process
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 << 30))
        for section in options.sections:
            if not machine.have(MODELS[section]):
                report.say("note", f"{section}: none of its models ({', '.join(MODELS[section])}) is among those asked for and packed.")
                continue
            report.begin(section)
            try:
                {"correctness": correctness, "products": products, "attention": attention, "training": training, "decoding": decoding, "startup": startup}[section](machine, folder)
            except OSError as error:
                report.say("failure", f"{section}: {error}")
            report.end()
    report.print(f"\n{report.failures or 'no'} failure{'s' if report.failures != 1 else ''}.")
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()
