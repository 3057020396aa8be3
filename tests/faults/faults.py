"""faults.py XFC [OPTION...]: does to training runs what disks, kernels and people do, and compares what comes out of them
with an uninterrupted run, to the byte.

Each case begins a run, breaks it, resumes it to its end, and looks at the folder: before the resume (whatever is there
has to be whole, and nothing that was saved may be gone) and after it (weights, state and log have to be those of the run
that nobody touched). Modes:

  operations   at the N-th operation on the run's folder: SIGKILL before, within or after it, a full disk, an I/O error, a
               signal that cuts it short, half of it; sometimes another fault while the run is resumed
  signals      SIGKILL, SIGTERM, SIGTERM and then SIGKILL, SIGHUP, closed streams, at random moments
  two          two processes in one folder
  power        the folder as a loss of power leaves it: only what was synced is certain to be there

Runs of several processes are those of an MPI launcher: signals go to one of them, or SIGKILL to the launcher's group, and
faults happen to the files of the first. Needs a C compiler for interpose.c. Plain Python.
"""
import argparse
import collections
import errno
import hashlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 120  # seconds; no run takes that long
SECONDS = 10  # in which ranks and a teacher end when what has started them was lost
# How a process tells that SIGKILL has ended it, and how MPICH's and Open MPI's launchers tell it of a rank.
KILLED = (-signal.SIGKILL, signal.SIGKILL, 128 + signal.SIGKILL)
# Within one machine Open MPI needs no network; some containers forbid a process to read another's memory.
MPI = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

# All commands run in the case's folder; what they read lies beside it. First what is compiled, with the name of the executable.
SIZES = ["source_vocab=40", "target_vocab=40", "d_model=16", "d_ff=32", "encoder_layers=1", "decoder_layers=1"]
TINY = [os.path.join(HERE, "../../models/tiny.json"), *(word for size in SIZES for word in ("--set", size))]
EXECUTABLES = {
    "tiny": TINY,
    "tiny-bf16": [*TINY, "--dtype", "bf16"],
    "student": [*TINY, "--distillation", "4"],
    "of-t5": ["../imported"],
}
TEXT = ["--format", "ids", "--source", "../a", "--target", "../b"]
INPUTS = {  # what makes each of them; the name of an executable stands for its path
    "pairs": ["tiny", "prepare", *TEXT, "--out", "../pairs"],
    "teacher": ["tiny", "train", *TEXT, "--out", "../teacher", "--steps", "17", "--batch-tokens", "60", "--threads", "1"],
    "imported": ["xfc", "import", "../t5", "--output", "../imported"],
}
TAUGHT = "run/taught.pairs"  # which the teacher writes, a process that interpose.c does not look at

# Flags of each phase: a run with several phases is resumed with other flags after it has ended.
VALIDATED = ["--valid-source", "../c", "--valid-target", "../d", "--valid-every", "5"]
SHORT = [["--steps", "17", "--save-every", "7", *VALIDATED]]
LONG = [["--steps", "200", "--save-every", "7", *VALIDATED]]  # so that signals hit more than the launcher's start
Configuration = collections.namedtuple("Configuration", "executable phases data inputs launcher", defaults=[TEXT, (), None])
CONFIGURATIONS = {
    "f32": Configuration("tiny", SHORT),
    "bf16": Configuration("tiny-bf16", SHORT),
    "accumulate": Configuration("tiny", [["--steps", "12", "--accumulate", "2", "--save-every", "5", *VALIDATED]]),
    "average": Configuration("tiny", [["--steps", "17", "--average", "2", "--keep", "3", "--save-every", "4", *VALIDATED]]),
    "early-stop": Configuration("tiny", [["--steps", "1000", "--early-stop", "2", "--save-every", "7", "--schedule", "constant", "--lr", "0.05",
                                          "--warmup", "1", *VALIDATED]]),
    "unvalidated": Configuration("tiny", [["--epochs", "2", "--average", "2", "--save-every", "3"]]),
    "extended": Configuration("tiny", [["--steps", steps, "--schedule", "constant", "--lr", "0.001", "--average", "2", "--save-every", "7",
                                        *VALIDATED] for steps in ("8", "17")]),
    "prepared": Configuration("tiny", SHORT, ["--format", "ids", "--data", "../pairs"], ["pairs"]),
    "distilled": Configuration("student", SHORT, ["--format", "ids", "--source", "../a", "--teacher", "tiny", "--teacher-model", "../teacher",
                                                  "--teacher-n-best", "2", "--teacher-distribution", "4", "--distillation", "0.5"], ["teacher"]),
    "imported": Configuration("of-t5", SHORT, [*TEXT, "--init", "../imported/model.safetensors"], ["imported"]),
    "openmpi": Configuration("tiny", LONG, launcher="mpiexec.openmpi"),
    "mpich": Configuration("tiny", LONG, launcher="mpiexec.mpich"),
}

STATE, PREVIOUS = "run/state/training.safetensors", "run/state/previous.safetensors"

Result = collections.namedtuple("Result", "status error")
Operation = collections.namedtuple("Operation", "name result descriptor detail path second bytes")


class Finding(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Finding(what)


# The contents of a folder.

def state_parts(data):
    """The header without metadata, the metadata without time-dependent values, and the tensors."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__")
    metadata.pop("checksum")
    progress = json.loads(metadata.pop("progress"))
    progress.pop("seconds")
    progress.pop("records")  # compared as the log itself
    return json.dumps([header, metadata, progress]).encode() + data[8 + size:], progress["step"]


def log_records(data):
    records = [json.loads(line) for line in data.decode().splitlines()]
    for record in records:
        for key in ("wps", "ups", "wall"):
            record.pop(key, None)
    return records


def read(path, reader):
    try:
        return reader()
    except (ValueError, KeyError) as error:
        raise Finding(f"{path} is damaged: {error!r}") from error


def normal(path, data):
    """The parts of a file that must be equal."""
    if path == "run/train.jsonl":
        return read(path, lambda: log_records(data))
    if path.startswith("run/state/") and path.endswith(".safetensors"):
        data = read(path, lambda: state_parts(data)[0])
    return hashlib.sha256(data).hexdigest()


def walk(folder):
    """{path relative to the case's folder: contents (None: a folder)}."""
    found = {}
    for parent, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(parent, name), folder)] = None
        for name in files:
            path = os.path.join(parent, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def is_weights(path):
    return path.startswith("run/") and path.endswith(".safetensors")


def step_of(files):
    """The step of the state that a resume continues from; -1 without one."""
    for path in (STATE, PREVIOUS):
        if (data := files.get(path)) is not None:
            return read(path, lambda: state_parts(data)[1])
    return -1


# The recorded operations, and the disk that they produce.

def operations(file, base):
    """Paths are relative to `base`."""
    found = []
    with open(file, "rb") as stream:
        while line := stream.readline():
            name, result, descriptor, detail, path, second = line.decode().rstrip("\n").split("\t")
            result = int(result)
            data = stream.read(result) if name in ("write", "pwrite") and result > 0 else b""
            found.append(Operation(name, result, int(descriptor), int(detail), *(os.path.relpath(p, base) if p else "" for p in (path, second)),
                                   data))
    return found


class File:
    def __init__(self, data=b"", synced=b""):
        self.data, self.synced = bytearray(data), synced


class Disk:
    """The files of a folder as processes see them, and the part that is certain to survive a power loss: the contents of a
    file as of its last sync, and a name once its folder has been synced."""

    def __init__(self, files, taught=None):
        """taught: what the teacher writes."""
        self.taught = taught
        self.names = {path: None if data is None else File(data, data) for path, data in files.items()}
        self.certain, self.pending = dict(self.names), []  # (folder, {path: File, None for a folder, or "" for nothing})
        self.open = {}
        self.promised = -1  # the step of the last state whose commit has returned
        self.versions = collections.defaultdict(set)  # of the existing files, by path
        for path, data in files.items():
            self.note(path)

    def note(self, path):
        if is_weights(path) and self.names.get(path):
            self.versions[path].add(normal(path, bytes(self.names[path].data)))

    def change(self, changes):
        for path, what in changes.items():
            if what == "":
                self.names.pop(path, None)
            else:
                self.names[path] = what
        self.pending.append((os.path.dirname(list(changes)[-1]) or ".", changes))

    def apply(self, operation):
        name, path = operation.name, operation.path
        if operation.result < 0:
            return
        if name == "open":
            if path not in self.names and operation.detail & os.O_CREAT:
                self.change({path: File()})
            elif path not in self.names and path == TAUGHT:
                self.names[path] = self.certain[path] = File(self.taught, self.taught)
            file = self.names.get(path)
            if file and operation.detail & os.O_TRUNC:
                file.data.clear()
            self.open[operation.result] = [path, file, 0, operation.detail & os.O_APPEND]
        elif name in ("write", "pwrite"):
            entry = self.open[operation.descriptor]
            at = operation.detail if name == "pwrite" else len(entry[1].data) if entry[3] else entry[2]
            entry[1].data[at:at + operation.result] = operation.bytes
            if name == "write":
                entry[2] = at + operation.result
        elif name == "ftruncate":
            del self.open[operation.descriptor][1].data[operation.detail:]
        elif name == "close":
            self.open.pop(operation.descriptor)
        elif name == "mkdir":
            self.change({path: None})
        elif name == "unlink":
            self.change({path: ""})
        elif name == "rename":
            self.change({path: "", operation.second: self.names[path]})
            self.note(operation.second)
        elif name in ("fsync", "unsynced"):
            file = self.open[operation.descriptor][1]
            if file and name == "fsync":
                file.synced = bytes(file.data)
            elif not file and name == "fsync":
                for folder, changes in self.pending:
                    if folder == path:
                        self.settle(self.certain, changes)
                self.pending = [entry for entry in self.pending if entry[0] != path]
            if path == "run/state":
                self.promised = step_of(self.files())

    @staticmethod
    def settle(names, changes):
        for path, what in changes.items():
            if what == "":
                names.pop(path, None)
            else:
                names[path] = what

    def files(self):
        return {path: None if file is None else bytes(file.data) for path, file in self.names.items()}

    def after_power_loss(self, contents, names, generator):
        """contents: lost, kept, zeros (the size survives, the bytes do not), some (a random choice for each file); names: lost,
        kept, first (those up to some moment), some (a random subset)."""
        pending = {"lost": [], "kept": self.pending, "first": self.pending[:generator.randint(0, len(self.pending))],
                   "some": [entry for entry in self.pending if generator.random() < 0.5]}[names]
        settled = dict(self.certain)
        for _, changes in pending:
            self.settle(settled, changes)
        found = {}
        for path, file in sorted(settled.items()):
            parent = os.path.dirname(path)
            if parent and parent not in found:
                continue  # its folder does not exist
            if file is None:
                found[path] = None
                continue
            how = generator.choice(["lost", "kept", "zeros"]) if contents == "some" else contents
            data = bytes(file.data)
            found[path] = file.synced if how == "lost" else data if how == "kept" else file.synced + bytes(max(0, len(data) - len(file.synced)))
        return found


# Runs.

def write_t5(folder):
    """A model of another program, as transformers would save it."""
    vocabulary, features, inner, heads, hidden = 40, 16, 8, 2, 32
    shapes = {"shared": (vocabulary, features)}
    for stack, attentions in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention", "EncDecAttention"])):
        layer = f"{stack}.block.0.layer."
        for place, attention in enumerate(attentions):
            shapes.update({f"{layer}{place}.{attention}.{each}": (heads * inner, features) for each in "qkv"})
            shapes[f"{layer}{place}.{attention}.o"] = features, heads * inner
            shapes[f"{layer}{place}.layer_norm"] = features,
        shapes[f"{layer}0.SelfAttention.relative_attention_bias"] = 8, heads
        place = len(attentions)
        shapes.update({f"{layer}{place}.DenseReluDense.wi": (hidden, features), f"{layer}{place}.DenseReluDense.wo": (features, hidden),
                       f"{layer}{place}.layer_norm": (features,), f"{stack}.final_layer_norm": (features,)})
    generator, header, data = random.Random(5), {}, b""
    for name, shape in shapes.items():
        count = math.prod(shape)
        numbers = struct.pack(f"<{count}f", *(generator.gauss(len(shape) == 1, 0.3) for _ in range(count)))  # norms are around 1
        header[name + ".weight"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"model_type": "t5", "vocab_size": vocabulary, "d_model": features, "d_kv": inner, "d_ff": hidden, "num_layers": 1, "num_heads": heads,
                   "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}, file)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text + data)


class Bench:
    def __init__(self, options):
        self.options = options
        self.work = os.path.realpath(options.work)
        self.case = os.path.join(self.work, "case")
        self.interposer = os.path.join(self.work, "interpose.so")
        self.executables = os.path.realpath(options.executables or options.work)
        self.unsynced = options.unsynced
        self.runs = self.kills = 0  # of processes; kills: those whose status says that SIGKILL ended them
        os.makedirs(self.work, exist_ok=True)
        os.makedirs(self.executables, exist_ok=True)
        subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", self.interposer, os.path.join(HERE, "interpose.c")], check=True)
        for name, (seed, lines) in {"a": (1, 80), "b": (2, 80), "c": (3, 10), "d": (4, 10)}.items():
            generator = random.Random(seed)
            with open(os.path.join(self.work, name), "w") as file:
                for _ in range(lines):
                    print(*(generator.randrange(4, 40) for _ in range(generator.randint(1, 8))), file=file)
        write_t5(os.path.join(self.work, "t5"))

    def make(self, words):
        subprocess.run([self.path(word) for word in words], cwd=self.case, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def prepare(self, configuration):
        """Makes what the configuration's runs need."""
        self.clear()
        for name in configuration.inputs:
            if not os.path.exists(os.path.join(self.work, name)):
                self.make(INPUTS[name])
        self.path(configuration.executable)

    def path(self, word):
        """What the name of an executable stands for; it is compiled if it is not there. Other words stay as they are."""
        if word == "xfc":
            return os.path.realpath(self.options.xfc)
        if word not in EXECUTABLES:
            return word
        path = os.path.join(self.executables, word)
        if not os.path.exists(path):
            self.make(["xfc", "compile", *EXECUTABLES[word], "-o", path])
        return path

    def start(self, configuration, phase, resume, faults=None, **streams):
        """faults: variables of interpose.c, without their prefix."""
        command = [self.path(word) for word in (configuration.executable, "train", *configuration.data)]
        command += ["--out", "run", "--batch-tokens", "60", "--threads", "1", *configuration.phases[phase]]
        if resume or phase > 0:
            command.append("--resume")
        environment = {}
        if faults:
            environment = {"LD_PRELOAD": self.interposer, "XFC_FAULTS_FOLDER": self.case}
            environment.update({"XFC_FAULTS_" + key: str(value) for key, value in faults.items()})
        if configuration.launcher:  # of which the first rank is the one that writes files
            settings = [f"{key}={value}" for key, value in environment.items()]
            command = [configuration.launcher, "-n", "1", "env", *settings, *command, ":", "-n", "1", *command]
            environment = MPI
        self.runs += 1
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **streams}
        return subprocess.Popen(command, cwd=self.case, env={**os.environ, **environment}, start_new_session=bool(configuration.launcher), **streams)

    def ended(self, process):
        try:
            error = process.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            # If a rank dies in MPI_Init, mpiexec of Open MPI 4.1 may wait for a mutex of PMIx that nobody releases, after all ranks have ended.
            hangs = process.args[0] == CONFIGURATIONS["openmpi"].launcher and list(self.processes()) == [process.pid]
            process.kill()
            error = process.communicate()[1]
            require(hangs, f"does not end within {PATIENCE} s")
            return Result(1, (error or b"").decode(errors="replace"))
        killed = process.returncode in KILLED
        self.kills += killed
        return Result(-signal.SIGKILL if killed else process.returncode, (error or b"").decode(errors="replace"))

    def run(self, *arguments, **options):
        result = self.ended(self.start(*arguments, **options))
        self.settle()
        return result

    def processes(self):
        """Those in the case's folder that have not ended: {process: (parent, executable)}."""
        found = {}
        for process in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{process}/cwd") == self.case:
                    with open(f"/proc/{process}/stat") as file:
                        parent = int(file.read().rsplit(")", 1)[1].split()[1])
                    found[int(process)] = parent, os.readlink(f"/proc/{process}/exe")
            except OSError:
                pass  # another user's, or it has just ended
        return found

    def settle(self):
        """Waits for the end of what a process has started and left behind: a teacher, ranks, and the helper that watches them."""
        last = time.monotonic() + SECONDS
        while left := self.processes():
            require(time.monotonic() < last, f"processes {left} go on for {SECONDS} s")
            time.sleep(0.001)

    def victims(self, configuration, process, which):
        """What a signal is for: a process, the rank of a launcher with that number, or the whole group of a launcher."""
        if not which:
            return [process.pid]
        if which == "group":
            return [-process.pid]
        executable, found = self.path(configuration.executable), self.processes()
        ranks = [number for number, (parent, path) in sorted(found.items()) if path == executable and found.get(parent, (0, ""))[1] != path]
        return ranks[int(which):int(which) + 1]

    def clear(self, files=None):
        shutil.rmtree(self.case, ignore_errors=True)
        os.makedirs(self.case)
        for path, data in sorted((files or {}).items()):
            path = os.path.join(self.case, path)
            if data is None:
                os.makedirs(path)
            else:
                with open(path, "wb") as file:
                    file.write(data)


class Reference:
    """The results of an undisturbed run of a configuration, from its first phase on or from a folder before a later one."""

    def __init__(self, bench, configuration, first=0, files=None):
        self.bench, self.configuration = bench, configuration
        self.before, self.records, self.promised, self.seconds = ([None] * first for _ in range(4))  # for each phase
        self.versions = collections.defaultdict(set)
        self.without_state = {}  # the references of runs that went back to the previous state at the beginning of a phase
        bench.clear(files)
        for phase in range(first, len(configuration.phases)):
            self.before.append(walk(bench.case))
            record = os.path.join(bench.work, "record")
            faults = {"RECORD": record}
            if bench.unsynced:
                faults["UNSYNCED"] = bench.unsynced
            result = bench.run(configuration, phase, False, faults=faults)
            require(result.status == 0, f"an uninterrupted run ends with {result}")
            self.records.append(operations(record, bench.case))
            self.taught = walk(bench.case).get(TAUGHT)
            disk, promised = Disk(self.before[-1], self.taught), []
            for operation in self.records[-1]:
                promised.append(disk.promised)
                disk.apply(operation)
            self.promised.append(promised)
            require(disk.files() == walk(bench.case), "interpose.c does not see all that is done to the folder: what it wrote down leads elsewhere")
            for path, versions in disk.versions.items():
                self.versions[path] |= versions
        self.after = {path: data and normal(path, data) for path, data in walk(bench.case).items()}
        for phase, before in enumerate(self.before[first:], first):  # without the recorder, as the runs that are sent signals
            bench.clear(before)
            begin = time.monotonic()
            result = bench.run(configuration, phase, False)
            self.seconds.append(time.monotonic() - begin)
            require(result.status == 0, f"an uninterrupted run ends with {result}")

    def going_back(self, phase):
        """The reference of a run that cannot read its state when this phase begins, and goes on from the previous one. What was done after
        that, such as validating the average at the end of the phase before, is not repeated where the run has become longer."""
        if phase not in self.without_state:
            files = {path: data for path, data in self.before[phase].items() if path != STATE}
            self.without_state[phase] = reference = Reference(self.bench, self.configuration, phase, files)
            for path, versions in self.versions.items():
                reference.versions[path] |= versions  # the state is still there
        return self.without_state[phase]

    def check_whole(self, files, promised):
        """Checks the files that a broken run left."""
        for path, data in files.items():
            if is_weights(path) and data is not None:
                require(normal(path, data) in self.versions[path], f"{path} is nothing that the run would have written")
        require(step_of(files) >= promised, f"the state is of step {step_of(files)}, though step {promised} had been saved")

    def check_end(self, stopped=()):
        """Checks the results of the resumed run. `stopped`: steps at which signals ended it; there it logs and saves once more."""
        files = walk(self.bench.case)
        found = {path: data and normal(path, data) for path, data in files.items()}
        excused = {"run/train.lock"}  # nobody holds it any more
        if stopped:
            self.check_log(found.pop("run/train.jsonl", []), stopped)
            excused |= {"run/train.jsonl", PREVIOUS}
        expected = self.after
        require((names := set(found) - excused) == set(expected) - excused, f"at the end there are {sorted(names ^ (set(expected) - excused))} or not")
        for path in sorted(names):
            if path == PREVIOUS:
                require(found[path] in self.versions[path] | self.versions[STATE], f"{path} is of no run")
            else:
                require(found[path] == expected[path], f"{path} differs from that of an uninterrupted run")

    def check_log(self, found, stopped):
        expected = self.after["run/train.jsonl"]
        require([record for record in found if "loss" not in record] == [record for record in expected if "loss" not in record],
                "validations differ from those of an uninterrupted run")
        steps = {record["step"]: record for record in expected if "loss" in record}
        ours = [record for record in found if "loss" in record]
        require(sum(record["tokens"] for record in ours) == sum(record["tokens"] for record in steps.values()), "the log counts other tokens")
        require(all(record["step"] in steps or record["step"] in stopped for record in ours), "the log has records of other steps")
        for last, record in zip([{"step": 0}] + ours, ours):
            if last["step"] not in stopped and record["step"] not in stopped:
                require(record == steps[record["step"]], f"the log's record of step {record['step']} differs")

    def finish(self, phase, expected_step=None):
        """Resumes the run to the end of each remaining phase."""
        for resumed in range(phase, len(self.configuration.phases)):
            result = self.bench.run(self.configuration, resumed, True)
            require(result.status == 0, f"--resume ends with status {result.status}: {result.error}")
            if resumed == phase and expected_step is not None:
                self.check_resumed(result.error, expected_step)

    @staticmethod
    def check_resumed(error, expected):
        found = re.search(r"^resumed at step (\d+)$", error, re.MULTILINE)
        step = int(found[1]) if found else -1
        require(step == expected, f"--resume goes on from step {step}, the state is of step {expected}")


# Modes. Each lists its cases as text, and runs one.

class Operations:
    """PHASE:NUMBER:KIND, and +NUMBER:KIND for a second fault while the run is resumed. In place of NUMBER, a path is its first operation."""
    # Failures of these change nothing that lasts: the lock's owner, locks where there are none, permissions, what close() reports after fsync().
    unimportant = ("close", "flock", "fchmod", "ftruncate", "pwrite", "unlink")

    @staticmethod
    def kinds(operation):
        kinds = ["kill-before", "kill-after", "EIO"]
        if operation.name in ("write", "read") and operation.result > 1:
            kinds += ["short"] + ["kill-within"] * (operation.name == "write")
        if operation.name in ("open", "read", "write", "pwrite", "fsync", "ftruncate", "flock", "rename"):
            kinds.append("EINTR")
        if operation.name in ("write", "mkdir") or (operation.name == "open" and operation.detail & os.O_EXCL):
            kinds.append("ENOSPC")
        return kinds

    def cases(self, reference, options, generator):
        pairs = [f"{phase}:{number}:{kind}" for phase, record in enumerate(reference.records)
                 for number, operation in enumerate(record, 1) for kind in self.kinds(operation)]
        if options.sample and options.sample < len(pairs):
            pairs = generator.sample(pairs, options.sample)
        for pair in pairs:
            if generator.random() < options.second:
                record = reference.records[int(pair.split(":")[0])]
                number = generator.randint(1, len(record))
                pair += f"+{number}:{generator.choice(['kill-before', 'kill-after', 'kill-within', 'ENOSPC', 'EIO', 'EINTR', 'short'])}"
            yield pair

    @staticmethod
    def went_back(result, kind):
        reason = os.strerror(getattr(errno, kind, 0))
        return re.search(rf"^warning: {STATE}: cannot open: {reason}; the state before it is intact and is used instead$", result.error, re.MULTILINE)

    def run(self, reference, case):
        first, _, second = case.partition("+")
        phase, number, kind = first.split(":")
        phase = int(phase)
        paths = [operation.path for operation in reference.records[phase]]
        number = int(number) if number.isdecimal() else paths.index(number) + 1
        bench, operation = reference.bench, reference.records[phase][number - 1]
        promised = reference.promised[phase][number - 1]
        bench.clear(reference.before[phase])
        result = bench.run(reference.configuration, phase, False, faults={"AT": number, "KIND": kind})
        if kind.startswith("kill"):
            require(result.status == -signal.SIGKILL, f"killed, it ends with {result}")
        elif kind in ("EINTR", "short"):
            require(result.status == 0, f"{kind} at {operation.name} of {operation.path} ends it: {result}")
        elif operation.name == "open" and operation.path == STATE and PREVIOUS in reference.before[phase]:
            require(result.status == 0 and self.went_back(result, kind), f"{kind} at {operation.name} of {STATE}: {result}")
            reference = reference.going_back(phase)
            reference.check_resumed(result.error, step_of({PREVIOUS: reference.before[phase][PREVIOUS]}))
        elif result.status == 0:
            known = operation.name == "mkdir" and operation.result == -errno.EEXIST  # the folder exists anyway
            require(known or operation.name in self.unimportant, f"{kind} at {operation.name} of {operation.path} is not noticed")
        else:
            reason = os.strerror(getattr(errno, kind))
            require(result.status == 1 and re.search(rf"^error: .*run\b.*: {reason}", result.error, re.MULTILINE),
                    f"{kind} at {operation.name} of {operation.path} is not what it says: {result}")
        files = walk(bench.case)
        reference.check_whole(files, promised)
        if result.status == 0 and phase + 1 == len(reference.configuration.phases):
            reference.check_end()
            return
        if second:
            number, kind = second.split(":")
            result = bench.run(reference.configuration, phase, True, faults={"AT": number, "KIND": kind})
            require(result.status in (0, 1, -signal.SIGKILL), f"with a second fault, --resume ends with {result}")
            if self.went_back(result, kind) and STATE in files and files[STATE] == reference.before[phase].get(STATE):  # to before the phase
                reference = reference.going_back(phase)
            before, files = step_of(files), walk(bench.case)
            reference.check_whole(files, max(promised, before))
        reference.finish(phase, step_of(files) if step_of(files) >= 0 else None)
        reference.check_end()


class Signals:
    """SIGNAL@SECONDS, separated by commas; after a semicolon, those for the resumed run. PIPE closes the streams that the run
    writes to. SIGNAL:RANK is for one of several ranks, KILL:group for their launcher and its group."""
    plans = [["KILL"], ["KILL"], ["KILL"], ["TERM"], ["TERM", "KILL"], ["HUP"], ["PIPE"], ["PIPE", "TERM"]]
    ranks = [["KILL:0"], ["KILL:1"], ["KILL:group"], ["TERM:0"], ["TERM:1", "KILL:0"], ["TERM:0", "KILL:1"], ["HUP:1"]]

    def cases(self, reference, options, generator):
        plans = self.ranks if reference.configuration.launcher else self.plans
        share = -(-options.kills // len(options.configurations))
        last = reference.bench.kills + share
        rounds = itertools.takewhile(lambda _: reference.bench.kills < last, itertools.count()) if share else range(options.rounds)
        for _ in rounds:
            attempts = []
            for _ in range(generator.randint(1, 3)):
                plan = generator.choice(plans)
                attempts.append(",".join(f"{name}@{generator.uniform(0, reference.seconds[-1] / (1 + 4 * (at > 0))):.4f}"
                                         for at, name in enumerate(plan)))
            yield ";".join(attempts)

    def run(self, reference, case):
        bench, phase = reference.bench, len(reference.configuration.phases) - 1
        bench.clear(reference.before[phase])
        stopped = set()
        for attempt, signals in enumerate(case.split(";")):
            before = walk(bench.case)
            with tempfile.TemporaryFile() as errors:
                streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if "PIPE" in signals else {"stderr": errors}
                process = bench.start(reference.configuration, phase, attempt > 0, **streams)
                sent = []
                for word in signals.split(","):
                    name, delay = word.split("@")
                    try:
                        process.wait(float(delay))
                    except subprocess.TimeoutExpired:
                        pass
                    if name == "PIPE":
                        process.stdout.close()
                        process.stderr.close()
                        process.stdout = process.stderr = None
                    elif process.poll() is None:
                        name, _, which = name.partition(":")
                        for victim in bench.victims(reference.configuration, process, which):
                            try:
                                os.kill(victim, getattr(signal, "SIG" + name))
                                sent.append(name)
                            except ProcessLookupError:
                                pass  # a rank that has ended
                status = bench.ended(process).status
                bench.settle()
                errors.seek(0)
                said = errors.read().decode(errors="replace")
            files = walk(bench.case)
            require(status in [0] + [-getattr(signal, "SIG" + name) for name in sent] or (sent and reference.configuration.launcher),
                    f"{signals}: ends with {status}: {said}")
            trained = len(files.get("run/train.jsonl") or b"") > len(before.get("run/train.jsonl") or b"")
            if sent in (["TERM"], ["HUP"]) and "PIPE" not in signals and status != 0:
                require(not trained or "done: " in said, f"{signals}: ends with {status} without saving: {said}")
            require(step_of(files) >= step_of(before), f"{signals}: the state is of step {step_of(files)}, it was of {step_of(before)}")
            if "KILL" not in sent and sent and status == 0:
                stopped.add(step_of(files))
            elif len(sent) > 1:
                stopped.add(step_of(files))
        files = walk(bench.case)
        reference.finish(phase, step_of(files) if step_of(files) >= 0 else None)
        reference.check_end(stopped)


class Two:
    """How the first and the second process are started, the seconds between them, and after how many seconds the first is killed."""

    def cases(self, reference, options, generator):
        for _ in range(options.rounds):
            between = generator.choice([0, generator.uniform(0, reference.seconds[-1])])
            case = f"{generator.choice(['new', 'resume'])}:{generator.choice(['new', 'resume'])}:{between:.4f}"
            yield case + generator.choice(["", f":{generator.uniform(0, reference.seconds[-1]):.4f}"])

    def run(self, reference, case):
        bench, phase = reference.bench, len(reference.configuration.phases) - 1
        first, second, between, *killed = case.split(":")
        bench.clear(reference.before[phase])
        processes = [bench.start(reference.configuration, phase, first == "resume")]
        time.sleep(float(between))
        processes.append(bench.start(reference.configuration, phase, second == "resume"))
        if killed:
            time.sleep(float(killed[0]))
            processes[0].kill()
        results = [bench.ended(process) for process in processes]
        bench.settle()
        for result in results:
            refused = "another training run uses this folder" in result.error or "the folder is not empty" in result.error
            require(result.status == 0 or (result.status == 1 and refused) or (killed and result.status == -signal.SIGKILL),
                    f"one of two ends with {result}")
        if not killed:
            require(any(result.status == 0 for result in results), f"each of two refuses: {results}")
        files = walk(bench.case)
        reference.check_whole(files, -1)
        reference.finish(phase, step_of(files) if step_of(files) >= 0 else None)
        reference.check_end()


class Power:
    """PHASE:NUMBER:CONTENTS:NAMES:SEED: power is lost after that many operations."""
    variants = [("lost", "lost"), ("lost", "kept"), ("zeros", "kept"), ("kept", "lost"), ("lost", "first"), ("some", "some")]

    def __init__(self):
        self.seen = set()  # many moments give the same folder

    def cases(self, reference, options, generator):
        cases = []
        for phase, record in enumerate(reference.records):
            for number, operation in enumerate(record, 1):
                if operation.name in ("open", "close", "read", "flock", "fchmod") and not operation.detail & os.O_CREAT:
                    continue  # changes nothing on the disk
                if operation.name == "write" and ".partial." in operation.path and number % 50:
                    continue  # on a file that has no name yet
                cases += [f"{phase}:{number}:{contents}:{names}:{generator.randrange(1000)}" for contents, names in self.variants]
        return generator.sample(cases, options.sample) if options.sample and options.sample < len(cases) else cases

    def run(self, reference, case):
        phase, number, contents, names, seed = case.split(":")
        phase, number = int(phase), int(number)
        disk = Disk(reference.before[phase], reference.taught)
        for operation in reference.records[phase][:number]:
            disk.apply(operation)
        files = disk.after_power_loss(contents, names, random.Random(int(seed)))
        key = hashlib.sha256(repr(sorted((path, data) for path, data in files.items())).encode()).digest(), disk.promised
        if key in self.seen:
            return
        self.seen.add(key)
        reference.check_whole(files, disk.promised)
        reference.bench.clear(files)
        reference.finish(phase, step_of(files) if step_of(files) >= 0 else None)
        reference.check_end()


COLUMNS = ("mode", "configuration", "cases", "runs", "kills", "findings")
MODES = {"operations": Operations, "signals": Signals, "two": Two, "power": Power}


def run_cases(bench, mode, name, options):
    """Runs the cases; returns a row of the table, and the first finding."""
    generator = random.Random(f"{options.seed} {mode} {name}")
    count = findings = runs = kills = 0
    first = None
    try:
        bench.prepare(CONFIGURATIONS[name])
        reference = Reference(bench, CONFIGURATIONS[name])
        runs, kills, tester = bench.runs, bench.kills, MODES[mode]()
        for case in [options.case] if options.case else tester.cases(reference, options, generator):
            count += 1
            try:
                tester.run(reference, case)
            except Finding as finding:
                findings += 1
                first = first or (case, str(finding))
                if findings == 1:
                    print(f"{mode} {name} {case}: {finding}", file=sys.stderr)
    except Finding as finding:
        findings, first = 1, (None, str(finding))
    return (mode, name, count, bench.runs - runs, bench.kills - kills, findings), first


def append_counts(path, row):
    """Appends a row, with the time and the commit, to a file of tab-separated values."""
    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude", "*"], capture_output=True, text=True).stdout.strip()
    new = not os.path.exists(path)
    with open(path, "a") as file:
        if new:
            print("date", "commit", *COLUMNS, sep="\t", file=file)
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), commit or "unknown", *row, sep="\t", file=file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xfc", help="the compiler")
    parser.add_argument("--work", help="folder for the runs; one in memory makes it fast (default: a temporary one)")
    parser.add_argument("--executables", help="folder for the executables, where those that are there are taken (default: that of the runs)")
    parser.add_argument("--modes", default=",".join(MODES), help="which, between commas")
    parser.add_argument("--configurations", help="which, between commas (default: all whose launcher is installed)")
    parser.add_argument("--rounds", type=int, default=20, help="cases of signals and two")
    parser.add_argument("--kills", type=int, default=0, help="goes on with cases of signals until that many processes were killed, the same number in "
                        "each configuration")
    parser.add_argument("--counts", help="a file of tab-separated values that each row of the table is appended to")
    parser.add_argument("--sample", type=int, default=0, help="so many of all cases of operations and power (default: all)")
    parser.add_argument("--second", type=float, default=0.2, help="share of the operations with a second fault during the resume")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", help="repeats one case of one mode and configuration")
    parser.add_argument("--unsynced", default="", help="pretends that fsync does nothing for paths with this in them: power has to find it")
    options = parser.parse_args()
    lacking = {name for name, each in CONFIGURATIONS.items() if each.launcher and not shutil.which(each.launcher)}
    if not options.configurations:
        options.configurations = ",".join(name for name in CONFIGURATIONS if name not in lacking)
        for name in sorted(lacking):
            print(f"skipped: {name}: {CONFIGURATIONS[name].launcher} is not installed", file=sys.stderr)
    options.modes, options.configurations = options.modes.split(","), options.configurations.split(",")
    for name in lacking.intersection(options.configurations):
        parser.error(f"--configurations: {name} needs {CONFIGURATIONS[name].launcher}, which is not installed")
    for what, given, known in (("--modes", options.modes, MODES), ("--configurations", options.configurations, CONFIGURATIONS)):
        if unknown := set(given) - set(known):
            parser.error(f"{what}: unknown {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    temporary = None if options.work else tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    options.work = options.work or temporary.name
    bench = Bench(options)
    line = "{:12}{:15}{:>8}{:>8}{:>8}{:>10}"
    print(line.format(*COLUMNS))
    first = None
    for mode in options.modes:
        for name in options.configurations:
            row, found = run_cases(bench, mode, name, options)
            print(line.format(*row), flush=True)
            if options.counts:
                append_counts(options.counts, row)
            if found and not first:
                first = (mode, name, *found)
    if first:
        mode, name, case, what = first
        repeat = f" --case '{case}'" if case else ""
        repeat += f" --unsynced {options.unsynced}" if options.unsynced else ""
        print(f"\nfirst finding: {what}\nagain: faults.py {options.xfc} --modes {mode} --configurations {name}{repeat}")
        sys.exit(1)


if __name__ == "__main__":
    main()
