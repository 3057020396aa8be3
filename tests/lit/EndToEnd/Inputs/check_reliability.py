"""check_reliability.py TRANSLATOR OTHER WORDED XFC WORK_FOLDER: checks that a hostile environment does no damage. OTHER is a model of equal shapes that
computes something else, WORDED one with the vocabulary one.model. The folder holds ids in `a` and `b`, text in `text`, and two vocabularies of equal size,
one.model and two.model. With XFC_SANITIZED, nothing is checked that the memory of the sanitizers would change. Plain Python."""
import glob
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
import tensors  # noqa: E402

translator, other, worded, xfc, work = sys.argv[1:]
failures = []
sanitized = "XFC_SANITIZED" in os.environ
# What a process ignores, its children ignore, too: under nohup, or in the background of a shell, they would not be ended.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


def expect(holds, what):
    if not holds:
        failures.append(what)


def path(name):
    return os.path.join(work, name)


def read(name):
    with open(path(name), "rb") as file:
        return file.read()


def folder_of(name):
    names = glob.glob("**", root_dir=path(name), recursive=True)
    return {file: read(os.path.join(name, file)) for file in names if os.path.isfile(path(os.path.join(name, file)))}


def call(*arguments, status=0, program=translator, **options):
    options.setdefault("timeout", 60)
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, **options)
    expect(result.returncode == status, f"{arguments}: exit status {result.returncode}, not {status}: {result.stderr.decode()}")
    return result


def refused(text, *arguments, status=1, **options):
    error = call(*arguments, status=status, **options).stderr.decode()
    expect(text in error, f"{arguments}: {error!r} does not say {text!r}")
    expect(len(error) < 2000, f"{arguments}: a message of {len(error)} characters")


def training(out, *more):
    return ["train", "--format", "ids", "--source", path("a"), "--target", path("b"), "--out", path(out), "--batch-tokens", "200",
            "--threads", "1", "--seed", "3", *more]


def started(out, *more, **options):
    """A training run that has saved once, and continues."""
    options.setdefault("stderr", subprocess.DEVNULL)
    process = subprocess.Popen([translator, *training(out, "--steps", "1000000", "--save-every", "20", *more)], **options)
    for _ in range(2000):
        if os.path.exists(path(out + "/last.safetensors")) or process.poll() is not None:
            break
        time.sleep(0.005)
    return process


ids = ["--format", "ids", "--threads", "1"]
weights = ["--weights", path("w/last.safetensors")]


def check_signals():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGXCPU):
        name = f"signal{number}"
        process = started(name, stderr=subprocess.PIPE)
        process.send_signal(number)
        if number == signal.SIGXCPU:  # the system sends it every second
            process.send_signal(number)
        error = process.communicate(timeout=30)[1].decode()
        expect(process.returncode == 0 and "saved; continue with --resume" in error, f"signal {number}: {process.returncode}, {error}")
        expect(os.path.exists(path(name + "/state/training.safetensors")), f"signal {number} leaves no state")
        expect(not glob.glob(path(name + "/**/*.partial.*"), recursive=True) and not os.path.exists(path(name + "/train.lock")),
               f"signal {number} leaves litter: {os.listdir(path(name))}")
    # `ulimit -t` sets the hard limit too, where the system sends SIGKILL.
    limits = (resource.RLIMIT_CPU, (4, 4))
    process = subprocess.Popen([translator, *training("limited", "--steps", "1000000")], stderr=subprocess.PIPE,
                               preexec_fn=lambda: resource.setrlimit(*limits))
    error = process.communicate(timeout=60)[1].decode()
    expect(process.returncode == 0 and "saved; continue with --resume" in error, f"ulimit -t 4: {process.returncode}, {error}")
    # A signal saves without waiting for a long validation, and stops one that is under way.
    with open(path("long.a"), "w") as file:
        file.write(read("a").decode() * 300)
    with open(path("long.b"), "w") as file:
        file.write(read("b").decode() * 300)
    process = subprocess.Popen([translator, *training("validating", "--steps", "1000000", "--valid-source", path("long.a"), "--valid-target",
                                                      path("long.b"), "--valid-every", "5")], stderr=subprocess.PIPE)
    log = path("validating/train.jsonl")
    for _ in range(2000):
        if os.path.exists(log) and os.path.getsize(log):
            break
        time.sleep(0.005)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    expect(process.returncode == 0 and time.monotonic() - begin < 8, f"SIGTERM before a long validation: {process.returncode}")
    expect(os.path.exists(path("validating/state/training.safetensors")), "SIGTERM before a long validation leaves no state")


def is_handled(process, number):
    with open(f"/proc/{process.pid}/status") as status:
        return any(line.startswith("SigCgt:") and int(line.split()[1], 16) >> number - 1 & 1 for line in status)


def check_signals_of_verbs():
    """Each verb that waits for its input, while it does: SIGUSR1 changes nothing, others end it and leave no files. Of the verbs that wait
    for nothing, these differ in no handler (tests/style/readers.py), and `serve` has a test of its own."""
    source = path("endless")
    os.mkfifo(source)
    part = ["-o", path("part")]
    writer = os.open(source, os.O_RDWR)
    for number, program, *words in [
            (signal.SIGTERM, translator, "translate", *weights, *ids, "--input", source, "--output", path("part")),
            (signal.SIGXCPU, translator, "score", *weights, *ids, "--source", source, "--target", path("b")),
            (signal.SIGQUIT, translator, "prepare", "--format", "ids", "--source", source, "--target", path("b"), "--out", path("part")),
            (signal.SIGHUP, worded, "encode", "--vocab", path("one.model"), "--input", source),
            (signal.SIGINT, worded, "decode", "--vocab", path("one.model"), "--input", source),
            (signal.SIGALRM, translator, "evaluate", *weights, *ids, "--source", source, "--target", path("b")),
            (signal.SIGXCPU, translator, *training("part", "--valid-source", source, "--valid-target", path("b"))),
            (signal.SIGXCPU, xfc, "vocab", "--input", source, "--size", "30", *part),
            (signal.SIGTERM, xfc, "compile", "-", *part),
            (signal.SIGHUP, xfc, "inspect", "-", "--svg", path("part"))]:
        process = subprocess.Popen([program, *words], stdin=writer, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while process.poll() is None and not is_handled(process, signal.SIGUSR1):
            pass
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        expect(process.poll() is None, f"{words}: SIGUSR1 ends it with {process.returncode}")
        process.send_signal(number)
        process.send_signal(number)
        error = process.communicate(timeout=30)[1]
        expect(process.returncode == -number, f"{words}: {process.returncode} after signal {number}: {error}")
        left = glob.glob(path("part*")) + glob.glob(path("part/*"))
        expect(not left, f"{words}: signal {number} leaves {left}")
    os.close(writer)
    os.unlink(source)


def check_early_requests():
    """What asks for a save before the first step is heeded after it: while text is read, and while a teacher works, which it does not disturb."""
    os.mkfifo(path("slow"))
    words = training("early", "--steps", "2")
    words[words.index("--source") + 1] = path("slow")
    process = subprocess.Popen([translator, *words], stderr=subprocess.PIPE)
    with open(path("slow"), "wb") as source:
        process.send_signal(signal.SIGUSR1)
        source.write(read("a"))
    error = process.communicate(timeout=30)[1].decode()
    expect(process.returncode == 0 and "saved at step 1, as requested by SIGUSR1" in error, f"SIGUSR1 while reading: {process.returncode}, {error}")
    with open(path("teacher"), "w") as file:
        file.write(f'#!/bin/sh\nkill -USR1 $PPID $$\nexec {translator} "$@"\n')
    with open(path("idler"), "w") as file:
        file.write("#!/bin/sh\n")
    for name in ("teacher", "idler"):
        os.chmod(path(name), 0o755)
    taught = ["train", "--format", "ids", "--source", path("a"), "--teacher-model", path("w"), "--threads", "1", "--batch-tokens", "200",
              "--steps", "2", "--out", path("taught"), "--teacher"]
    # A teacher that ends without its files is named, and the next run does not rely on them.
    refused(f"{path('idler')} translate: the teacher has ended without writing ", *taught, path("idler"), "--teacher-n-best", "1")
    expect(not os.path.exists(path("taught/data.json")), "data.json vouches for a table that the teacher has not written")
    error = call(*taught, path("teacher"), "--teacher-n-best", "1", "--resume").stderr.decode()
    expect("saved at step 1, as requested by SIGUSR1" in error, f"SIGUSR1 while a teacher works: {error}")


def check_closed_streams():
    ours, theirs = os.pipe()
    process = started("closed", "--valid-source", path("a"), "--valid-target", path("b"), "--valid-every", "10", stderr=theirs)
    os.close(theirs)
    os.close(ours)
    time.sleep(1)
    expect(process.poll() is None, f"a closed standard error ends training: {process.returncode}")
    process.send_signal(signal.SIGTERM)
    expect(process.wait(timeout=30) == 0, f"after a closed standard error: {process.returncode}")
    shell = f"yes '5 6 7' | {translator} translate {' '.join(weights + ids)} --beam 1 --max-length 2 --quiet | head -3"
    result = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=60)
    expect(len(result.stdout.splitlines()) == 3, f"{shell}: {result}")


def check_two_runs():
    first = started("shared")
    refused(f"another training run uses this folder: process {first.pid} on ", *training("shared", "--steps", "1"))
    refused(f"another training run uses this folder: process {first.pid} on ", *training("shared", "--steps", "1", "--resume"))
    expect(first.poll() is None, "a second run ends the first")
    first.send_signal(signal.SIGTERM)
    expect(first.wait(timeout=30) == 0, "the first run fails")
    both = [subprocess.Popen([translator, *training("race", "--steps", "30", "--quiet")], stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        process.communicate(timeout=60)
    expect(sorted(process.returncode for process in both) == [0, 1], f"two starts: {[process.returncode for process in both]}")


def check_folders():
    shutil.copytree(path("w"), path("stateless"))
    shutil.rmtree(path("stateless/state"))
    kept = {name: read("stateless/" + name) for name in ("last.safetensors", "best.safetensors", "train.jsonl")}
    refused("no state/ to continue from", *training("stateless", "--resume", "--steps", "1"))
    expect(kept == {name: read("stateless/" + name) for name in kept}, "--resume without a state changes files")
    corpus = read("a")
    refused("is not empty; give a new file to --log", *training("logged", "--steps", "1", "--log", path("a")))
    expect(read("a") == corpus, "--log empties the corpus")
    result = subprocess.run([os.fsencode(word) for word in [translator, *training("odd", "--steps", "1")]] +
                            [b"--log", os.fsencode(path("x")) + b"\xe9"], capture_output=True)
    expect(result.returncode == 1 and b"is not valid UTF-8" in result.stderr, f"a name that is no UTF-8: {result}")


def check_identity():
    few = path("few")
    with open(few, "w") as file:
        file.write("5 6 7\n8 9\n")
    call("translate", *weights, *ids, "--input", few)
    refused('is "relu" there and "gelu" here', "translate", *weights, *ids, "--input", few, program=other)
    result = call("translate", *weights, *ids, "--input", few, "--force-model", program=other)
    expect(b"warning: --force-model overrides this: " in result.stderr, f"--force-model says {result.stderr}")
    # Old files, without metadata, load with a note.
    whole = read("w/last.safetensors")
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:8 + size])
    metadata = header.pop("__metadata__")
    expect(metadata["model"] == "tiny" and len(metadata["model_hash"]) == 64, f"metadata: {metadata}")
    plain = json.dumps(header).encode()
    plain += b" " * (-(8 + len(plain)) % 64)
    with open(path("plain.safetensors"), "wb") as file:
        file.write(len(plain).to_bytes(8, "little") + plain + whole[8 + size:])
    result = call("translate", "--weights", path("plain.safetensors"), *ids, "--input", few)
    expect(b"note: " in result.stderr and b"does not record which model" in result.stderr, f"old weights: {result.stderr}")
    # A flipped bit in a weight or in the header is found; the checksum of a tensor is recomputed here.
    for at in (len(whole) - 100, 8 + size + 4000, whole.index(b'"step"') + 9):
        changed = bytearray(whole)
        changed[at] ^= 1
        with open(path("changed.safetensors"), "wb") as file:
            file.write(changed)
        refused("changed.safetensors: ", "translate", "--weights", path("changed.safetensors"), *ids, "--input", few)
    name, entry = next(iter(header.items()))
    begin, end = entry["data_offsets"]
    expect(metadata["crc32c." + name] == block_sum(whole[8 + size + begin:8 + size + end]), f"the checksum of {name}")
    # A state with flipped bits is damaged.
    shutil.copytree(path("w"), path("bits"))
    for name in os.listdir(path("bits/state")):
        state = bytearray(read("bits/state/" + name))
        state[len(state) // 2] ^= 1
        with open(path("bits/state/" + name), "wb") as file:
            file.write(state)
    refused("damaged", *training("bits", "--resume", "--steps", "40"))
    # A run is continued by the model that began it.
    kept = folder_of("w")
    refused("w/state/training.safetensors: this run was started with another model", *training("w", "--resume", "--steps", "40"), program=other)
    expect(folder_of("w") == kept, "--resume with another model changes files")

    call("train", "--source", path("text"), "--target", path("text"), "--vocab", path("one.model"), "--out", path("words"), "--steps", "2",
         "--batch-tokens", "200", "--quiet", program=worded)
    kept = folder_of("words")
    refused("words/state/training.safetensors: this run was started with another vocabulary (source_vocabulary ", "train", "--source", path("text"),
            "--target", path("text"), "--vocab", path("two.model"), "--out", path("words"), "--resume", "--steps", "4", program=worded)
    expect(folder_of("words") == kept, "--resume with another vocabulary changes files")
    sentence, translate = b"anna berta\n", ["translate", "--beam", "1", "--model", path("words")]
    translation = call(*translate, program=worded, input=sentence).stdout
    refused("is not the one that the weights were trained with", *translate, "--vocab", path("two.model"), program=worded, input=sentence)
    result = call(*translate, "--vocab", path("two.model"), "--force-vocab", program=worded, input=sentence)
    expect(b"warning: --force-vocab overrides this: " in result.stderr, f"--force-vocab says {result.stderr}")
    call("pack", "--model", path("words"), "-o", path("packed"), program=worded)
    expect(call("translate", "--beam", "1", program=path("packed"), input=sentence).stdout == translation, "packed, other translations")
    # A vocabulary whose table points outside itself is refused.
    model = bytearray(read("one.model"))
    at = model.index(b"nmt_nfkc") + 8
    while model[at + 1] & 0x80:
        at += 1
    model[at + 6:at + 10] = b"\x00\xfc\xff\x7f"
    with open(path("broken.model"), "wb") as file:
        file.write(model)
    refused("not a SentencePiece model (its normalization table points outside itself)", *translate, "--vocab", path("broken.model"),
            program=worded, input=sentence)
    refused("not a SentencePiece model", "compile", path("gelu.json"), "--vocab", path("broken.model"), "-o",
            path("x"), program=xfc)


def block_sum(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)

    def crc(data):
        value = 0xFFFFFFFF
        for byte in data:
            value = value >> 8 ^ table[(value ^ byte) & 255]
        return value ^ 0xFFFFFFFF

    sums = b"".join(crc(data[at:at + 65536]).to_bytes(4, "little") for at in range(0, len(data), 65536))
    return f"{crc(sums):08x}"


def check_streams():
    """Each line is answered while the writer waits; a stream is translated like a file, whatever its windows; memory is bounded."""
    process = subprocess.Popen([translator, "translate", *weights, *ids, "--beam", "1", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for line in (b"5 6 7\n", b"8 9\n"):
        process.stdin.write(line)
        process.stdin.flush()
        expect(process.stdout.readline().strip() != b"", "no answer while the writer waits")
    process.stdin.close()
    expect(process.wait(timeout=30) == 0, "a stream that ends")
    lines = read("a").splitlines()
    sampled = ["translate", *weights, *ids, "--sample", "--seed", "5", "--max-length", "4", "--n-best", "2", "--quiet"]
    whole = call(*sampled, input=b"\n".join(lines[:6]) + b"\n").stdout
    process = subprocess.Popen([translator, *sampled], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for part in (lines[:2], lines[2:6]):
        process.stdin.write(b"\n".join(part) + b"\n")
        process.stdin.flush()
        time.sleep(0.5)
    expect(process.communicate()[0] == whole, "windows are sampled otherwise than one file")

    counts = [20000] if sanitized else [20000, 400000]
    for lines in counts:
        with open(path(f"lines-{lines}"), "wb") as file:
            file.write(b"5 6\n" * lines)
    for verb in (["translate", "--input", "MANY", "--output", path("many.out"), "--beam", "1", "--max-length", "1", "--quiet"],
                 ["score", "--source", "MANY", "--target", "MANY"],
                 ["evaluate", "--source", "MANY", "--target", "MANY", "--beam", "1", "--max-length", "1", "--quiet"],
                 ["evaluate", "--hypothesis", "MANY", "--target", "MANY", "--quiet"]):
        peaks = []
        for lines in counts:
            words = [path(f"lines-{lines}") if word == "MANY" else word for word in verb + ([] if "--hypothesis" in verb else [*weights, *ids])]
            process = subprocess.Popen([translator, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            expect(status == 0, f"{verb} of {lines} lines: status {status}")
            peaks.append(usage.ru_maxrss)
        # Kept lines would take 15 MB more: none is shorter than the string that holds it, of 32 bytes.
        expect(peaks[-1] < peaks[0] + (4 << 10), f"{verb[:2]} of {counts} lines: {peaks} kB")
    expect(read("many.out").count(b"\n") == counts[-1], "lines of the output are missing")
    limit = resource.RLIM_INFINITY if sanitized else 900 << 20
    with open(path("huge"), "wb") as file:
        file.write(b"5 " * 13000000 + b"\n6 7\n")
    begin = time.monotonic()
    result = call("translate", *weights, *ids, "--input", path("huge"), "--beam", "1", "--max-length", "2",
                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    expect(len(result.stdout.splitlines()) == 2 and time.monotonic() - begin < 20 and b"cut to the first 512 tokens" in result.stderr,
           f"a line of 26 MB: {time.monotonic() - begin:.1f} s, {result}")
    ampersands = path("ampersands")
    with open(ampersands, "wb") as file:
        file.write(b"&amp;" * 200000 + b"\n")
    # What other processes on the machine do is not counted.
    begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    call("evaluate", "--hypothesis", ampersands, "--target", ampersands)
    expect(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin < 20, "evaluate of a line of 1 MB of &amp;")
    refused("cannot both go to standard output", "translate", *weights, *ids, "--attention-svg", "-", status=2)
    # A signal leaves neither a partial nor a temporary file.
    process = subprocess.Popen([translator, "translate", *weights, *ids, "--output", path("half")], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    expect(process.wait(timeout=30) == -signal.SIGTERM, f"translate after SIGTERM: {process.returncode}")
    expect(not glob.glob(path("half*")), f"SIGTERM leaves {glob.glob(path('half*'))}")
    folder = path("benchmarks")
    os.mkdir(folder)
    process = subprocess.Popen([translator, "bench", "startup"], env={**os.environ, "TMPDIR": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.listdir(folder) and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    expect(os.listdir(folder) == [], "bench startup leaves its folder after SIGTERM")


def check_reports():
    """A log or a configuration that no run has written is shown as far as it can be."""
    shutil.copytree(path("w"), path("reported"), dirs_exist_ok=True)
    for record in ({"step": 1, "samples": ["x"]}, {"samples": 5}, {"samples": [{"source": 5}]}, {"samples": [{"source": "5 6"}]}):
        with open(path("reported/train.jsonl"), "w") as file:
            print(json.dumps(record), file=file)
        for configuration in ({"format": "ids"}, {"format": 5}, [5]):
            with open(path("reported/config.json"), "w") as file:
                json.dump(configuration, file)
            error = call("report", path("reported")).stderr.decode()
            expect("report: wrote " in error and "json" not in error.replace("config.json: format: not a string", ""), f"report of {record}: {error}")


def check_numbers():
    call(*training("octal", "--steps", "010", "--quiet"))
    expect(json.loads(read("octal/config.json"))["steps"] == 10, "--steps 010 is not 10")
    for seed in ("-1", "99999999999999999999"):
        refused("--seed", *training("x", "--steps", "1", "--seed", seed), status=2)
    call("train", "--format", "ids", "--source", path("a"), "--target", path("b"), "--out", path("seeded"), "--steps", "1", "--seed", str(2**64 - 1),
         "--quiet")
    call("train", "--out", path("seeded"), "--resume", "--quiet")
    for verb in (["train", "--steps", str(2**63 - 1)], ["decode", "--batch", str(2**63 - 1)], ["decode", "--sentences", str(10**18)]):
        refused(verb[1], "bench", *verb, status=2)
    refused("--temperature", "translate", *weights, *ids, "--sample", "--temperature", "1e-309", status=2)
    call(*training("epochs", "--epochs", str(2**63 - 1), "--schedule", "cosine", "--quiet")[:-1], "--valid-every", "1", "--valid-source", path("a"),
         "--valid-target", path("b"), "--early-stop", "1", "--lr", "1", "--warmup", "0", "--quiet")
    # Weights that are finite but too large are an error.
    named = tensors.read(path("w/last.safetensors"))
    tensors.write(path("large.safetensors"), {name: ("F32", shape, [value * 1e30 for value in values]) for name, (shape, values) in named.items()})
    refused("finite", "score", "--weights", path("large.safetensors"), *ids, "--source", path("a"), "--target", path("b"))
    # A diverged state does not replace a good one.
    shutil.copytree(path("w"), path("diverging"))
    refused("is intact", *training("diverging", "--resume", "--steps", "40", "--lr", "1e38", "--warmup", "0", "--save-every", "1"))
    call(*training("diverging", "--resume", "--steps", "40", "--lr", "1", "--warmup", "4000", "--save-every", "500", "--quiet"))
    call(*training("straight", "--steps", "40", "--quiet"))
    expect(read("diverging/last.safetensors") == read("straight/last.safetensors"), "after diverging, other weights")


call(*training("w", "--steps", "20", "--quiet"))
check_signals()
check_signals_of_verbs()
check_early_requests()
check_closed_streams()
check_two_runs()
check_folders()
check_identity()
check_streams()
check_reports()
check_numbers()
if failures:
    sys.exit(f"{len(failures)} failures:\n  " + "\n  ".join(failures[:20]))
print("nothing is lost")
