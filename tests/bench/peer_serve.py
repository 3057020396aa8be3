"""An HTTP server of FastAPI over CTranslate2, as people write it: `plain` translates each request by itself; `batched` collects what comes
within 5 ms, at most 64 sentences.

usage: peer_serve.py PORT MODEL VOCABULARY TYPE plain|batched WORKERS THREADS"""
import asyncio
import contextlib
import sys

import ctranslate2
import fastapi
import sentencepiece
import uvicorn

port, model, vocabulary, kind, mode, workers, threads = sys.argv[1:]
translator = ctranslate2.Translator(model, device="cpu", compute_type=kind, inter_threads=int(workers), intra_threads=int(threads))
pieces = sentencepiece.SentencePieceProcessor(model_file=vocabulary)


@contextlib.asynccontextmanager
async def collecting(_):
    tasks = [asyncio.create_task(collect()) for _ in range(int(workers))]
    yield
    for task in tasks:
        task.cancel()


app = fastapi.FastAPI(lifespan=collecting)
waiting = asyncio.Queue()


def translate(requests):
    """All with the search settings of the first one."""
    found = translator.translate_batch([pieces.encode(request["q"], out_type=str) for request in requests], beam_size=requests[0]["beam"],
                                       length_penalty=requests[0]["length_penalty"], max_batch_size=64)
    return [{"translation": pieces.decode(result.hypotheses[0])} for result in found]


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
