#!/usr/bin/env python3
"""Compares `serve` under load with a server of FastAPI over CTranslate2: one trained model, real sentences, one machine.

    serve.py --xfc build/bin/xfc --demo FOLDER --text test.en --work FOLDER [--seconds 10] [--clients 1 8 32] [--rounds 3] [--type float32]

--demo is what `xfc demo` made; `xfc export` makes CTranslate2's model of it. Every request is one line of text, in the order of the file, which a
beam of 5 translates. Closed loop: so many clients ask again as soon as they are answered. Open loop: requests come at random (Poisson), at 0.6 of
the rate that the fastest other server reached in the closed loop with the most clients, to the servers that reached more than this rate there;
latencies count from when they came. CTranslate2 runs as one worker with all threads and as so many workers of one thread, and translates each
request by itself or together those that come within 5 ms. The servers take turns; the median of the rounds is shown. Tokens are those of xfc's
translations for all. The Python that runs this needs ctranslate2, sentencepiece, fastapi and uvicorn."""
import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time

from common import HERE

TYPES = {"float32": "f32", "int8": "int8"}
SEARCH = {"beam": 5, "length_penalty": 1, "length_penalty_form": "power"}  # CTranslate2's usual length penalty


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Connection:
    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, body):
        self.writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        answer = await self.reader.readexactly(size)
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(answer)
        return answer


async def closed(port, work, clients, seconds):
    end, latencies, tokens, places = time.perf_counter() + seconds, [], 0, iter(range(10**9))

    async def client():
        nonlocal tokens
        connection = await Connection().open(port)
        while (begin := time.perf_counter()) < end:
            length, body = work[next(places) % len(work)]
            await connection.ask(body)
            latencies.append(time.perf_counter() - begin)
            tokens += length
        connection.writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return tokens / (time.perf_counter() - begin), latencies


async def opened(port, work, rate, seconds):
    """`rate`: tokens per second."""
    chosen, latencies, tokens, idle, tasks = random.Random(2), [], 0, [], []
    rate /= statistics.mean(length for length, _ in work)

    async def one(when, length, body):
        nonlocal tokens
        connection = idle.pop() if idle else await Connection().open(port)
        await connection.ask(body)
        idle.append(connection)
        latencies.append(time.perf_counter() - when)
        tokens += length

    begin = when = time.perf_counter()
    for place in range(10**9):
        when += chosen.expovariate(rate)
        if when > begin + seconds:
            break
        await asyncio.sleep(max(when - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(one(when, *work[place % len(work)])))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.writer.close()
    return tokens / (time.perf_counter() - begin), latencies


def started(command, port):
    process = subprocess.Popen(list(map(str, command)), cwd=HERE, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command}: does not listen")
            time.sleep(0.05)


def at(latencies, share):
    return sorted(latencies)[min(int(len(latencies) * share), len(latencies) - 1)] * 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--xfc", required=True)
    parser.add_argument("--demo", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--type", default="float32", choices=TYPES)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    demo, work, threads = os.path.abspath(options.demo), os.path.abspath(options.work), options.threads
    exe, run, vocabulary = (os.path.join(demo, name) for name in ("translator", "run", "spm.model"))
    os.makedirs(work, exist_ok=True)
    exported = os.path.join(work, "ctranslate2")
    shutil.rmtree(exported, ignore_errors=True)
    subprocess.run([options.xfc, "export", run, "--to", "ctranslate2", "-o", exported], check=True)
    searched = [f"--{name.replace('_', '-')}={value}" for name, value in SEARCH.items()]
    found = subprocess.run([exe, "translate", "--model", run, "--input", os.path.abspath(options.text), "--json", "--quiet", *searched], check=True,
                           capture_output=True, text=True).stdout
    sentences = []
    for line in map(json.loads, found.splitlines()):
        sentences.append((len(line["hypotheses"][0]["ids"]) + 1, json.dumps({"q": line["source"], **SEARCH}).encode()))
    print(f"{len(sentences)} sentences, {statistics.mean(length for length, _ in sentences):.1f} tokens on average", file=sys.stderr)

    names = {"xfc": None}
    for workers in sorted({1, threads}):
        for mode in ("plain", "batched"):
            names[f"CTranslate2, {mode}, {workers} worker{'s' * (workers > 1)}"] = (mode, workers)

    def command(name, port):
        if name == "xfc":
            return [exe, "serve", "--port", port, "--model", run, "--threads", threads, "--compute-type", TYPES[options.type], "--quiet"]
        mode, workers = names[name]
        return [sys.executable, "peer_serve.py", port, exported, vocabulary, options.type, mode, workers, threads // workers]

    results = {}

    def measure(key, load, contestants):
        for name in contestants:
            port = free_port()
            process = started(command(name, port), port)
            try:
                asyncio.run(closed(port, sentences, 4, 1))  # warm
                speed, latencies = asyncio.run(load(port))
                print(key, name, round(speed), "tokens/s,", len(latencies), "sentences", file=sys.stderr)
                results.setdefault((*key, name), []).append((speed, at(latencies, 0.5), at(latencies, 0.99)))
            finally:
                process.terminate()
                process.wait()

    for _ in range(options.rounds):
        for clients in options.clients:
            measure(("closed", clients), lambda port: closed(port, sentences, clients, options.seconds), names)
    speed = {name: statistics.median(each[0] for each in results["closed", options.clients[-1], name]) for name in names}
    rate = 0.6 * max(speed[name] for name in names if name != "xfc")
    for _ in range(options.rounds):
        measure(("open", f"{rate:.0f} tokens/s"), lambda port: opened(port, sentences, rate, options.seconds), [name for name in names if speed[name] > rate])
    print("| loop | load | server | tokens/s | p50, ms | p99, ms |\n|---|---|---|---|---|---|")
    for (loop, load, name), rounds in results.items():
        print(f"| {loop} | {load} | {name} | " + " | ".join(f"{statistics.median(column):.{digits}f}" for column, digits in zip(zip(*rounds), (0, 1, 1))) + " |")


main()
