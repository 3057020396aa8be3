"""Runs an imported model once, in the translator that xfc made or in CTranslate2; prints tokens per second and peak memory as JSON.
Both get the same token ids, load the weights from their files, and write the same number of tokens for every sentence."""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from common import BenchError, peak_megabytes

FIRST_WORD = 10


def sentences(count, vocabulary, eos):
    draw = random.Random(3)
    return [[draw.randrange(FIRST_WORD, vocabulary) for _ in range(draw.randint(10, 29))] + [eos] for _ in range(count)]


def of_ctranslate2(job, sources):
    import ctranslate2

    folder = os.path.join(job["folder"], job["type"])
    with open(os.path.join(folder, "shared_vocabulary.json")) as file:
        pieces = json.load(file)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type=job["type"], inter_threads=1, intra_threads=job["threads"])

    def run(part):
        begin = time.perf_counter()
        results = translator.translate_batch([[pieces[i] for i in source] for source in part], max_batch_size=job["batch"], max_input_length=0,
                                             beam_size=job["beam"], max_decoding_length=job["length"], min_decoding_length=job["length"])
        if any(len(result.hypotheses[0]) != job["length"] for result in results):
            raise BenchError("CTranslate2 ended a translation early")
        return time.perf_counter() - begin

    run(sources[: job["batch"]])
    return run(sources), peak_megabytes()


def of_xfc(job, sources):
    """The time of a longer run minus that of a shorter one, so that loading does not count."""
    def run(part):
        with tempfile.NamedTemporaryFile("w", suffix=".ids") as file, tempfile.NamedTemporaryFile() as written:
            file.writelines(" ".join(map(str, source)) + "\n" for source in part)
            file.flush()
            # Sentences have at most 30 tokens, so that the number of sentences is what limits a batch.
            command = [os.path.join(job["folder"], "translator"), "translate", "--model", os.path.join(job["folder"], "imported"), "--format", "ids",
                       "--input", file.name, "--output", written.name, "--beam", job["beam"], "--max-length", job["length"], "--min-length",
                       job["length"], "--threads", job["threads"], "--batch-tokens", max(30, job["beam"]) * job["batch"],
                       "--batch-sentences", job["batch"], "--quiet", "--compute-type", {"float32": "f32"}.get(job["type"], job["type"])]
            begin = time.perf_counter()
            process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
            message = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            if status:
                raise BenchError(f"{' '.join(map(str, command))}:\n{message}")
            with open(written.name) as lines:
                if any(len(line.split()) != job["length"] for line in lines):
                    raise BenchError("xfc ended a translation early")
            return seconds, usage.ru_maxrss * 1024 / 1e6

    short, _ = run(sources[: job["batch"]])
    long, peak = run(sources[: job["batch"]] + sources)
    if long <= short:
        raise BenchError(f"{len(sources)} sentences took no longer than loading: too few to measure")
    return long - short, peak


def main():
    job = json.loads(sys.argv[1])
    sources = sentences(job["sentences"], job["vocabulary"], job["eos"])
    seconds, peak = {"xfc": of_xfc, "CTranslate2": of_ctranslate2}[job["program"]](job, sources)
    print(json.dumps({"tokens_per_second": len(sources) * job["length"] / seconds, "peak_rss_mb": peak}))


if __name__ == "__main__":
    main()
