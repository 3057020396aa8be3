"""Runs decoding once with CTranslate2, ONNX Runtime or Hugging Face: random weights, every sentence to the same length; prints tokens
per second as JSON. Sources, batches and beams are those of `translator bench decode`."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from common import BOS, EOS, HERE, PAD, SIZES, WORDS, BenchError, peak_megabytes

FORBIDDEN = [PAD, 1, BOS, EOS]  # in a search that must not end early


def batches_of(sources, count):
    return [sources[i : i + count] for i in range(0, len(sources), count)]


def made_by(script, folder, *arguments):
    """A folder with a model, made atomically by a separate process, whose memory does not count here."""
    if not os.path.isdir(folder):
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as unfinished:
            made = os.path.join(unfinished, "model")
            os.mkdir(made)
            command = [sys.executable, os.path.join(HERE, script), *map(str, arguments), made]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                raise BenchError(f"{' '.join(command)} failed:\n{result.stderr[-3000:]}")
            os.rename(made, folder)
    return folder


class CTranslate2:
    @property
    def type(self):
        return self.translator.compute_type  # what it computes in on this CPU, which is not always what was asked for

    def __init__(self, job, size):
        import ctranslate2

        folder = made_by("ctranslate2_model.py", os.path.join(job["work"], f"ctranslate2-{size.name}"), size.name)
        self.job = job
        self.translator = ctranslate2.Translator(folder, device="cpu", compute_type=job["type"],
                                                 inter_threads=job["workers"], intra_threads=job["threads"])

    def decode(self, sources):
        job = self.job
        # With several workers, split the batch among them.
        results = self.translator.translate_batch(
            [[f"w{i}" for i in source] for source in sources], beam_size=job["beam"], num_hypotheses=1,
            max_batch_size=max(job["batch"] // job["workers"], 1), min_decoding_length=job["length"], max_decoding_length=job["length"])
        return [len(result.hypotheses[0]) for result in results]


class OnnxRuntime:
    type = "float32"

    def __init__(self, job, size):
        import onnxruntime

        folder = made_by("onnx_model.py", os.path.join(job["work"], f"onnx-{size.name}-beam{job['beam']}"), size.name, job["beam"])
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = job["threads"]
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.value = onnxruntime.OrtValue.ortvalue_from_numpy
        self.encoder, self.step = (onnxruntime.InferenceSession(os.path.join(folder, name), settings, ["CPUExecutionProvider"])
                                   for name in ("encoder.onnx", "step.onnx"))
        self.job, self.size = job, size

    def decode_batch(self, sources):
        beam, size = self.job["beam"], self.size
        names = [output.name for output in self.step.get_outputs()]
        state_names = [value.name for value in self.step.get_inputs() if value.name.startswith("past")]
        memory = self.encoder.run_with_ort_values(None, {"source": self.value(np.array(sources, np.int64))})
        feeds = {f"memory_{i}": value for i, value in enumerate(memory)}
        rows = len(sources) * beam
        empty = np.zeros((rows, size.heads, 0, size.d_model // size.heads), np.float32)
        states = [self.value(empty) for _ in state_names]
        tokens, parents = np.full((rows, 1), BOS, np.int64), np.arange(rows)
        scores = np.full((len(sources), beam), -np.inf, np.float32)
        scores[:, 0] = 0
        backward = []
        for position in range(self.job["length"]):
            feeds.update(zip(state_names, states))
            feeds.update({"tokens": self.value(tokens), "position": self.value(np.array([position])),
                          "parents": self.value(parents), "scores": self.value(scores)})
            values = self.step.run_with_ort_values(names, {value.name: feeds[value.name] for value in self.step.get_inputs()})
            scores, chosen, states = values[0].numpy(), values[1].numpy(), values[2:]
            tokens = (chosen % size.vocab).reshape(rows, 1)
            parents = (chosen // size.vocab + np.arange(len(sources))[:, None] * beam).reshape(rows)
            backward.append((tokens[:, 0], parents))
        row = np.arange(len(sources)) * beam
        ids = []
        for tokens, parents in reversed(backward):
            ids.append(tokens[row])
            row = parents[row]
        return [len(sentence) for sentence in np.stack(ids[::-1], 1)]

    def decode(self, sources):
        return [n for batch in batches_of(sources, self.job["batch"]) for n in self.decode_batch(batch)]


class HuggingFace:
    """Pegasus: among Hugging Face's models, the pre-norm encoder and decoder with final norms and sinusoidal positions."""
    type = "float32"

    def __init__(self, job, size):
        import torch
        from transformers import PegasusConfig, PegasusForConditionalGeneration

        torch.set_num_threads(job["threads"])
        torch.manual_seed(1)
        config = PegasusConfig(
            vocab_size=size.vocab, d_model=size.d_model, encoder_layers=size.layers, decoder_layers=size.layers,
            encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=size.d_ff, decoder_ffn_dim=size.d_ff,
            max_position_embeddings=size.positions, activation_function="relu", scale_embedding=True, pad_token_id=PAD, eos_token_id=EOS,
            bos_token_id=BOS, decoder_start_token_id=BOS, forced_eos_token_id=None)
        self.torch, self.job = torch, job
        self.model = PegasusForConditionalGeneration(config).eval()

    def decode(self, sources):
        job, lengths = self.job, []
        for batch in batches_of(sources, job["batch"]):
            ids = self.torch.tensor(batch)
            with self.torch.inference_mode():
                output = self.model.generate(ids, attention_mask=self.torch.ones_like(ids), num_beams=job["beam"], do_sample=False,
                                             suppress_tokens=FORBIDDEN, min_new_tokens=job["length"], max_new_tokens=job["length"])
            lengths += [output.shape[1] - 1] * len(output)
        return lengths


PEERS = {"CTranslate2": CTranslate2, "ONNX Runtime": OnnxRuntime, "Hugging Face": HuggingFace}


def main():
    job = json.loads(sys.argv[1])
    size = SIZES[job["size"]]
    peer = PEERS[job["peer"]](job, size)
    sources = np.random.default_rng(1).integers(WORDS, size.vocab, (job["sentences"], job["length"]))
    sources[:, -1] = EOS
    seconds = []
    for repetition in range(job["repetitions"] + 1):  # the first one warms up
        begin = time.perf_counter()
        lengths = peer.decode(sources.tolist())
        if repetition:
            seconds.append(time.perf_counter() - begin)
        if lengths != [job["length"]] * job["sentences"]:
            raise BenchError(f"{job['peer']} decoded {sorted(set(lengths))} tokens a sentence where {job['length']} were asked for")
    print(json.dumps({"tokens_per_second": sum(lengths) / statistics.median(seconds), "peak_rss_mb": peak_megabytes(), "type": peer.type}))


if __name__ == "__main__":
    main()
