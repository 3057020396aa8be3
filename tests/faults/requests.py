"""requests.py TRANSLATOR MODEL LINES [--requests N] [--clients N] [--reload-every N] [--workers N] [--device cuda] [--seed N]: a server under many requests, of which some are broken off.

Clients ask for translations of the lines with several options, some with words that the translations must contain, at once and on connections
that they keep. Of a hundred requests, about four leave before the answer, three end in the middle of the request, two are streams that the
client leaves after the first event, and one is no HTTP. Now and then the server is told to load its model again. Every answer has to be that
of `translate`, none may be missing, and the server's memory may not grow with the number of requests. Plain Python.
"""
import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

OPTIONS = [{}, {"beam": 1}, {"beam": 4, "n_best": 3, "no_repeat_ngram": 2}, {"sample": True, "seed": 7}, {"repetition_penalty": 1.3, "max_length_ratio": 1.5},
           {"beam": 2, "n_best": 2, "token_scores": True, "alignments": "soft"}, {"alignments": "hard", "replace_unknowns": True}]
GROWTH = 16 << 20  # bytes that memory may vary by: what is allocated depends on which requests meet
END = b"\r\n\r\n"


def translation(line, options):
    """What `translate` answers for the line alone, as a request is: the random numbers of a sample depend on the number of its line."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as constraints:
        constraints.write("\t".join(" || ".join(choice) for choice in options.get("constraints", [])) + "\n")
        constraints.flush()
        flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in options.items() if name != "constraints"]
        flags += ["--constraints", constraints.name] if "constraints" in options else []
        command = [arguments.translator, "translate", "--model", arguments.model, "--json", "--quiet", "--device", arguments.device, *flags]
        return json.loads(subprocess.run(command, input=line + "\n", capture_output=True, text=True, check=True).stdout)


def kinds(lines):
    """(line, options): each of OPTIONS, and words of the translations of the lines as constraints, one or two of them, and one of two."""
    yield from ((line, options) for options in OPTIONS for line in lines)
    words = sorted({word for line in lines for word in translation(line, {})["translation"].split() if word.isalnum()})
    for number, line in enumerate(lines):
        first, second, third = (words[(number + i) % len(words)] for i in range(3))
        yield line, {"constraints": [[[first]], [[first], [second]], [[first, second], [third]]][number % 3], **([{}, {"beam": 1}, {"beam": 3}][number // 3 % 3])}


def request(fields):
    body = json.dumps(fields).encode()
    return b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class Clients:
    def __init__(self, port, pid):
        self.port, self.pid = port, pid
        self.begun = self.answered = self.broken = 0
        self.memory = []

    def resident(self):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))

    async def open(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def client(self, chosen):
        reader, writer = await self.open()
        while self.begun < arguments.requests:
            self.begun += 1
            if self.begun % arguments.reload_every == 0:
                server.send_signal(signal.SIGHUP)
            if self.begun % (arguments.requests // 20) == 0:
                self.memory.append(self.resident())
                print(f"{self.begun} requests, {self.memory[-1] >> 10} kB", file=sys.stderr)
            case = chosen.choice(cases)
            kind = chosen.random()
            if kind < 0.9:
                writer.write(case["request"])
                head = await reader.readuntil(END)
                size = int(re.search(rb"(?i)content-length: *(\d+)", head)[1])
                answer = await reader.readexactly(size)
                if b" 200 " not in head.split(b"\r\n", 1)[0] or json.loads(answer)["translations"][0]["hypotheses"] != case["expected"]:
                    sys.exit(f"{case['request']}: {head} {answer}, expected {case['expected']}")
                self.answered += 1
                continue
            self.broken += 1
            if kind < 0.94:
                writer.write(case["request"])
            elif kind < 0.97:
                writer.write(case["request"][:chosen.randrange(1, len(case["request"]))])
            elif kind < 0.99:
                writer.write(case["stream"])
                await reader.readuntil(b"data: ")
            else:
                writer.write(chosen.randbytes(chosen.randrange(1, 400)))
            await writer.drain()
            writer.close()
            reader, writer = await self.open()
        writer.close()

    async def all(self):
        await asyncio.gather(*(self.client(random.Random(arguments.seed + i)) for i in range(arguments.clients)))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("translator")
parser.add_argument("model", help="a folder of train or import")
parser.add_argument("lines", help="a file, of which the first 40 lines are asked for")
parser.add_argument("--requests", type=int, default=1000000)
parser.add_argument("--clients", type=int, default=16)
parser.add_argument("--reload-every", type=int, default=50000)
parser.add_argument("--workers", type=int, default=1, help="of the server, each with a thread")
parser.add_argument("--device", default="cpu", help="of the server, and of `translate`")
parser.add_argument("--seed", type=int, default=1)
arguments = parser.parse_args()
with open(arguments.lines, encoding="utf-8") as file:
    lines = [line for line in file.read().splitlines() if line][:40]
cases = [{"request": request({"q": line} | options), "stream": request({"q": line, "stream": True} | options),
          "expected": translation(line, options)["hypotheses"]} for line, options in kinds(lines)]
threads = ["--workers", str(arguments.workers), "--threads", str(arguments.workers)] if arguments.workers > 1 else []
server = subprocess.Popen([arguments.translator, "serve", "--model", arguments.model, "--port", "0", "--device", arguments.device, *threads], stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
try:
    said = server.stderr.readline()
    clients = Clients(int(re.search(r":(\d+)\n", said)[1]), server.pid)
    begin = time.monotonic()
    asyncio.run(clients.all())
    seconds = time.monotonic() - begin
    server.terminate()
    assert server.wait(timeout=60) == 0, server.returncode
finally:
    server.kill()
early, late = max(clients.memory[1:5]), max(clients.memory[-4:])
if arguments.device == "cpu" and late > early + GROWTH:  # a driver has memory of its own
    sys.exit(f"memory grows: {[size >> 10 for size in clients.memory]} kB")
print(f"{clients.answered} answers as translate's, {clients.broken} requests broken off, {clients.answered / seconds:.0f} answers a second, "
      f"memory {early >> 10} kB early and {late >> 10} kB late")
