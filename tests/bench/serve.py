"""Compares `serve` under load with a server of FastAPI over CTranslate2, on one machine.

    serve.py --xfc build/bin/xfc --work FOLDER [--size small] [--seconds 10] [--clients 1 8 32] [--rounds 3] [--type float32]

Sentences have the lengths of real text (log-normal, 25 tokens on average); with random weights, each is translated to exactly its own length by a
beam of 5. Closed loop: so many clients ask again as soon as they are answered. Open loop: requests come at random (Poisson), at 0.6 of the rate
that the slower server reached in the closed loop, and latencies count from when they came. The servers take turns; the median of the rounds is shown.
The Python that runs this needs ctranslate2, fastapi, uvicorn and numpy."""
import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time

from common import EOS, HERE, SIZES, WORDS

TYPES = {"float32": "f32", "int8": "int8"}


def requests(size, count=2000):
    chosen, made = random.Random(1), []
    for _ in range(count):
        length = min(max(round(chosen.lognormvariate(3.05, 0.58)), 3), 120)
        ids = [chosen.randrange(WORDS, size.vocab) for _ in range(length - 1)] + [EOS]
        made.append((length, json.dumps({"q": " ".join(map(str, ids)), "beam": 5, "min_length": length, "max_length": length}).encode()))
    return made


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
    for length, body in work:
        when += chosen.expovariate(rate)
        if when > begin + seconds:
            break
        await asyncio.sleep(max(when - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(one(when, length, body)))
    await asyncio.gather(*tasks)
    for connection in idle:
        connection.writer.close()
    return tokens / (time.perf_counter() - begin), latencies


def started(command, port):
    process = subprocess.Popen(list(map(str, command)), cwd=HERE)
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
    parser.add_argument("--work", required=True)
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--type", default="float32", choices=TYPES)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    work, size = os.path.abspath(options.work), SIZES[options.size]
    os.makedirs(work, exist_ok=True)
    exe, run = os.path.join(work, f"translator-{size.name}"), os.path.join(work, f"run-{size.name}")
    if not os.path.exists(run):
        subprocess.run([options.xfc, "compile", os.path.join(HERE, "../../models/small.json"), *size.settings(), "-o", exe], check=True)
        with open(os.path.join(work, "ids"), "w", encoding="utf-8") as file:
            file.write("5 6 7\n" * 8)
        subprocess.run([exe, "train", "--format", "ids", "--source", os.path.join(work, "ids"), "--target", os.path.join(work, "ids"), "--out", run,
                        "--steps", "1", "--batch-tokens", "64", "--quiet"], check=True)
    sentences = requests(size)

    def command(name, port):
        if name == "xfc":
            return [exe, "serve", "--port", port, "--model", run, "--format", "ids", "--threads", options.threads, "--compute-type", TYPES[options.type]]
        return [sys.executable, "peer_serve.py", port, size.name, work, options.threads, options.type, name.split()[-1]]

    names, results = ["xfc", "CTranslate2, plain", "CTranslate2, batched"], {}

    def measure(key, load):
        for name in names:
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
            measure(("closed", clients), lambda port: closed(port, sentences, clients, options.seconds))
    most = options.clients[-1]
    rate = 0.6 * min(statistics.median(r[0] for r in results["closed", most, name]) for name in names)
    for _ in range(options.rounds):
        measure(("open", f"{rate:.0f} tokens/s"), lambda port: opened(port, sentences, rate, options.seconds))
    print("| loop | load | server | tokens/s | p50, ms | p99, ms |\n|---|---|---|---|---|---|")
    for (loop, load, name), rounds in results.items():
        print(f"| {loop} | {load} | {name} | " + " | ".join(f"{statistics.median(column):.{digits}f}" for column, digits in zip(zip(*rounds), (0, 1, 1))) + " |")


main()
