"""Trains with xfc and with torch until the greedy translations of held-out text reach a given BLEU, and compares the seconds of training."""
import dataclasses
import json
import os
import subprocess
import time

from common import SIZES, BenchError, python_peer, run_json, translator
from corpus import copies, read_lines, vocabulary
from report import percent, table
from train import VARIANTS


@dataclasses.dataclass(frozen=True)
class Task:
    name: str
    option: str  # of bench.py, with the files
    size: str    # also of the vocabulary
    pairs: int   # the first ones of the text; None: all
    warmup: int  # updates
    bleu: float  # to reach
    every: int   # updates between validations


# Multi30k has 29,000 pairs.
TASKS = [Task("Tatoeba", "tatoeba", "small", None, 400, 25, 50), Task("Multi30k-like", "multi30k", "tiny", 29000, 400, 20, 50)]
QUICK = {"size": "tiny", "pairs": 5000, "warmup": 100, "bleu": 0.5, "every": 20}


@dataclasses.dataclass
class Progress:
    """What a log says: of the training alone, and of each validation (seconds of training until then, updates, BLEU)."""
    seconds: float = 0
    tokens: int = 0
    parameters: int = None
    curve: list = dataclasses.field(default_factory=list)

    def add(self, record):
        if "wps" in record:  # a validation begins after such a record, and the next one does not count it
            # The first one of xfc counts the preparation, too, and the wall time does not.
            self.seconds += record["tokens"] / record["wps"] if self.seconds else record["wall"]
            self.tokens += record["tokens"]
            self.parameters = record.get("parameters")
        elif "bleu" in record:
            self.curve.append((self.seconds, record["step"], record["bleu"]))


def follow(path):
    """The records of a log, as they are written; None while there is no other."""
    while not os.path.exists(path):
        yield None
    with open(path, encoding="utf-8") as log:
        line = ""
        while True:
            line += log.readline()
            if line.endswith("\n"):
                yield json.loads(line)
                line = ""
            else:
                yield None


def train(options, name, command, environment, log, task):
    """Lets a program train until a validation reaches the task's BLEU, or until --bleu-minutes have gone into training."""
    command = [str(word) for word in command]
    progress = Progress()
    with open(os.path.join(options.work, "messages"), "w+", encoding="utf-8") as messages, \
         subprocess.Popen(command, stdout=messages, stderr=messages, env={**os.environ, **environment}) as process:
        try:
            for record in follow(log):
                if record is None:
                    if process.poll() is not None:
                        messages.seek(0)
                        raise BenchError(f"{' '.join(command)}\nended with status {process.returncode} before it was stopped:\n"
                                         f"{messages.read()[-3000:]}")
                    time.sleep(0.1)
                    continue
                progress.add(record)
                if "bleu" in record:
                    seconds, updates, bleu = progress.curve[-1]
                    options.log(f"  {name}: {updates} updates, {seconds:.0f} s, BLEU {bleu:.2f}")
                    if bleu >= task.bleu or seconds >= 60 * options.bleu_minutes:
                        break
        finally:
            process.terminate()
    seconds, updates, bleu = progress.curve[-1]
    return {"reached": bleu >= task.bleu, "seconds": seconds, "updates": updates, "bleu": bleu, "tokens_per_second": progress.tokens / seconds,
            "parameters": progress.parameters, "curve": progress.curve}


def check_score(path, run, files, threads, result):
    """The weights with the best validation translate as the validation did: their score by sacreBLEU must be the one that the log has."""
    import sacrebleu

    made = subprocess.run([path, "translate", "--model", run, "--beam", "1", "--input", files[0], "--threads", str(threads), "--quiet"],
                          capture_output=True, text=True)
    if made.returncode != 0:
        raise BenchError(f"{path} translate failed:\n{made.stderr}")
    score = sacrebleu.corpus_bleu(made.stdout.split("\n")[:-1], [read_lines(files[1])]).score
    logged = max(bleu for _, _, bleu in result["curve"])
    if abs(score - logged) > 0.01:
        raise BenchError(f"by sacreBLEU the translations have a BLEU of {score:.2f}, and in the log of {run} {logged:.2f}")


def measure_task(options, task):
    size, threads = SIZES[task.size], max(options.threads)
    source, target, *held_out = getattr(options, task.option)
    text, held_out = copies(options, task.option, (source, target), task.pairs), copies(options, task.option + "-valid", held_out)
    vocab = vocabulary(options, task.option, text, size.vocab)
    path, name = translator(options, size), VARIANTS[options.variant]
    parameters = run_json([path, "info", "--json"])["parameters"]
    results = {"xfc": [], name: []}
    for seed in range(1, options.rounds + 1):
        options.log(f"bleu {task.name}, {threads} threads, to {task.bleu:g}, seed {seed}")
        run, log = (os.path.join(options.work, f"{task.option}-{seed}{end}") for end in ("", ".jsonl"))
        # The first state is saved by the first validation, and no other before the end.
        ours = [path, "train", "--source", text[0], "--target", text[1], "--vocab", vocab, "--valid-source", held_out[0], "--valid-target", held_out[1],
                "--best", "bleu", "--valid-every", task.every, "--save-every", 10**9, "--steps", 10**9, "--batch-tokens", options.batch_tokens,
                "--warmup", task.warmup, "--seed", seed, "--threads", threads, "--out", run, "--quiet"]
        theirs, environment = python_peer("peer_bleu.py", threads, {
            "size": task.size, "variant": options.variant, "seed": seed, "vocabulary": vocab, "source": text[0], "target": text[1],
            "valid_source": held_out[0], "valid_target": held_out[1], "batch_tokens": options.batch_tokens, "warmup": task.warmup,
            "every": task.every, "log": log})
        results["xfc"].append(train(options, "xfc", ours, {}, os.path.join(run, "train.jsonl"), task))
        check_score(path, run, held_out, threads, results["xfc"][-1])
        results[name].append(train(options, name, theirs, environment, log, task))
        if (trained := results[name][-1]["parameters"]) != parameters:
            raise BenchError(f"{name} has {trained} parameters, and xfc {parameters}: they do not do the same work")
    return {**dataclasses.asdict(task), "threads": threads, "pairs": len(read_lines(text[0])), "results": results}


def measure(options):
    tasks = [dataclasses.replace(task, **(QUICK if options.quick else {})) for task in TASKS if getattr(options, task.option)]
    if options.bleu:
        tasks = [dataclasses.replace(task, bleu=options.bleu) for task in tasks]
    return [measure_task(options, task) for task in tasks]


def middle(runs):
    """The median run, by the time to the BLEU; those that did not reach it come last."""
    return sorted(runs, key=lambda run: (not run["reached"], run["seconds"]))[len(runs) // 2]


def speedup(row):
    """How many times the seconds of xfc torch took; None if one of them did not reach the BLEU."""
    ours, theirs = map(middle, row["results"].values())
    return theirs["seconds"] / ours["seconds"] if ours["reached"] and theirs["reached"] else None


def time_to(runs):
    times, run = [run["seconds"] for run in runs], middle(runs)
    spread = f" ±{percent((max(times) - min(times)) / 2 / run['seconds'])}" if len(runs) > 1 else ""
    return f"{run['seconds']:.0f}{spread}" if run["reached"] else f"not in {run['seconds']:.0f}"


def markdown(rows, machine):
    if not rows:
        return "No text was given."
    lines = []
    for row in rows:
        medians = [middle(runs) for runs in row["results"].values()]
        lines.append([row["name"], row["size"], f"{row['pairs']:,}", row["threads"], f"{row['bleu']:g}", *map(time_to, row["results"].values()),
                      f"**{speedup(row):.2f}**" if speedup(row) else "", *(run["updates"] for run in medians),
                      *(f"{run['tokens_per_second']:.0f}" for run in medians), *(f"{run['bleu']:.1f}" for run in medians)])
    names = list(rows[0]["results"])
    heads = [f"{name}, {what}" for what in ("updates", "tokens/s", "BLEU") for name in names]
    count = len(rows[0]["results"]["xfc"])
    return "\n\n".join([
        "Seconds of training until the greedy translations of held-out text reach a BLEU; validations and the time before the first update do not count. "
        "The same model, vocabulary, text, limit of a batch, dropout, label smoothing, clipping, Adam, and schedule (noam, factor 1, warm-up "
        f"{rows[0]['warmup']}); validations every {rows[0]['every']} updates. "
        + (f"The median of {count} runs, with the seeds 1 to {count}" if count > 1 else "One run, with the seed 1")
        + ", from which the programs draw different weights, batches and dropout. BLEU is sacreBLEU's; what xfc measured itself was compared with it.",
        table(["data", "size", "pairs", "threads", "BLEU", *(f"{name}, s" for name in names), f"{names[1]} / xfc", *heads], lines)])


def bars(rows):
    return ([f"{row['name']}, BLEU {row['bleu']:g}" for row in rows],
            {"xfc": [speedup(row) or 0 for row in rows], list(rows[0]["results"])[1]: [1] * len(rows)}, "speed to the BLEU beside torch")
