"""An HTTP server of FastAPI over CTranslate2 with random weights, as people write it: `plain` translates each request by itself; `batched`
collects what comes within 5 ms, at most 64 sentences.

usage: peer_serve.py PORT SIZE WORK THREADS TYPE plain|batched"""
import asyncio
import contextlib
import sys

import ctranslate2
import fastapi
import uvicorn

from common import SIZES
from peer_decode import made_by

port, size, work, threads, kind, mode = sys.argv[1:]
translator = ctranslate2.Translator(made_by("ctranslate2_model.py", f"{work}/ctranslate2-{size}", SIZES[size].name), device="cpu", compute_type=kind,
                                    inter_threads=1, intra_threads=int(threads))


@contextlib.asynccontextmanager
async def collecting(_):
    task = asyncio.create_task(collect())
    yield
    task.cancel()


app = fastapi.FastAPI(lifespan=collecting)
waiting = asyncio.Queue()


def translate(requests):
    """All of one length: a batch has one limit."""
    found = translator.translate_batch([[f"w{i}" for i in request["q"].split()] for request in requests], beam_size=requests[0]["beam"],
                                       max_batch_size=64, min_decoding_length=requests[0]["min_length"],
                                       max_decoding_length=max(request["max_length"] for request in requests))
    return [{"tokens": result.hypotheses[0][:request["max_length"]]} for result, request in zip(found, requests)]


async def collect():
    while True:
        batch = [await waiting.get()]
        await asyncio.sleep(0.005)
        while len(batch) < 64 and not waiting.empty():
            batch.append(waiting.get_nowait())
        answers = await asyncio.to_thread(translate, [request for request, _ in batch])
        for (_, future), answer in zip(batch, answers):
            future.set_result(answer)


if mode == "plain":
    @app.post("/v1/translate")
    def plain(request: dict):
        return translate([request])[0]
else:
    @app.post("/v1/translate")
    async def batched(request: dict):
        future = asyncio.get_running_loop().create_future()
        await waiting.put((request, future))
        return await future

uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error")
