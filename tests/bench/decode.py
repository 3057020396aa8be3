"""Compares decoding with CTranslate2, ONNX Runtime and Hugging Face: random weights, every sentence to exactly the same length."""
import importlib.util

from common import TYPES, Contestant, fastest_peer, python_peer, relative, take_turns, translator
from report import megabytes, percent, ratio, table

LENGTH = 25
MODULES = {"CTranslate2": "ctranslate2", "ONNX Runtime": "onnxruntime", "Hugging Face": "transformers"}
TARGETS = {("float32", 64): {"tiny": 1.5, "small": 1.3, "base": 1.15}, ("float32", 1): {"tiny": 1.3, "small": 1.3, "base": 1.3},
           ("int8", 64): {"tiny": 1.3, "small": 1.3, "base": 1.3}, ("int8", 1): {"tiny": 1.8, "small": 1.8, "base": 1.8}}


def ctranslate2_type(kind):
    """The type of CTranslate2 that competes with one of xfc's: the same if it has it on this CPU, otherwise float32."""
    import ctranslate2

    return kind if kind in ctranslate2.get_supported_compute_types("cpu") else "float32"


def ctranslate2_modes(options, job):
    job = {**job, "type": ctranslate2_type(job["type"])}
    modes = {}
    for mkl in ("oneDNN", "MKL"):
        for threads, workers in [(count, 1) for count in options.threads] + [(1, count) for count in options.threads if count > 1]:
            if workers <= job["batch"]:
                command, environment = python_peer("peer_decode.py", threads, {**job, "peer": "CTranslate2", "workers": workers})
                modes[f"{mkl}, {workers} x {threads}"] = command, {**environment, "CT2_USE_MKL": str(int(mkl == "MKL"))}
    return modes


def our_modes(options, ours, batch):
    modes = {f"{count} threads": ([*ours, "--threads", count], {}) for count in options.threads}
    return modes | {f"{count} workers": ([*ours, "--threads", count, "--workers", count], {}) for count in options.threads if 1 < count <= batch}


def measure(options):
    rows = []
    for size in options.sizes:
        path = translator(options, size)
        for kind in options.types:
            ours_in, rate = TYPES[kind]
            for beam in (1, 5):
                for batch, sentences in ((64, 64), (1, 4)):
                    options.log(f"decode {size.name}, {kind}, beam {beam}, batch {batch}")
                    repetitions = 1 if options.quick else 3
                    ours = [path, "bench", "decode", "--sentences", sentences, "--batch", batch, "--length", LENGTH, "--beam", beam,
                            "--steps", repetitions, "--compute-type", ours_in, "--json"]
                    job = {"size": size.name, "type": kind, "beam": beam, "batch": batch, "sentences": sentences, "length": LENGTH,
                           "repetitions": repetitions, "work": options.work, "workers": 1}
                    contestants = [Contestant("xfc", our_modes(options, ours, batch))]
                    for name, module in MODULES.items():
                        if options.quick and not importlib.util.find_spec(module):
                            continue
                        if name == "CTranslate2":
                            contestants.append(Contestant(name, ctranslate2_modes(options, job)))
                        elif kind == "float32":
                            contestants.append(Contestant(name, {f"{n} threads": python_peer("peer_decode.py", n, {**job, "peer": name})
                                                                 for n in options.threads}))
                    rows.append({"size": size.name, "type": kind, "beam": beam, "batch": batch, "rate": rate,
                                 "flops_per_token": size.forward_flops(LENGTH, LENGTH, beam) / LENGTH,
                                 "weight_bytes_per_step": size.decoder_weights() * {"float32": 4, "bfloat16": 2, "int8": 1}[kind],
                                 "results": take_turns(contestants, options.rounds, options.log)})
    return rows


def share_of_peak(row, ours, machine):
    """Batch 64: relative to the peak of products in the type. Batch 1: relative to the read bandwidth, with each decoder weight read once per step."""
    peak = machine["peak"][int(ours["mode"].split()[0])]
    if row["batch"] > 1:
        return f"{percent(ours['tokens_per_second'] * row['flops_per_token'] / peak[row['rate']] * 1e-9)} of products"
    return f"{percent(ours['tokens_per_second'] * row['weight_bytes_per_step'] / peak['peak_read_gb_per_second'] * 1e-9)} of reading"


def markdown(rows, machine):
    names = list(dict.fromkeys(name for row in rows for name in row["results"] if name != "xfc"))
    lines = []
    for row in rows:
        ours, (name, rival) = row["results"]["xfc"], fastest_peer(row["results"])
        cells = [f"{r['tokens_per_second']:.0f} ±{percent(r['spread'] / 2)} ({r['mode']}, {r['type']})" if (r := row["results"].get(n)) else "" for n in names]
        ratios = [f"{ratio(ours, rival)} {name}", megabytes(rival)] if rival else ["", ""]
        library = row["results"].get("CTranslate2")
        lines.append([row["size"], row["type"], row["beam"], row["batch"], f"{ours['tokens_per_second']:.0f} ±{percent(ours['spread'] / 2)} ({ours['mode']})",
                      *cells, ratios[0], ratio(ours, library) if library else "", TARGETS.get((row["type"], row["batch"]), {}).get(row["size"], ""), share_of_peak(row, ours, machine),
                      megabytes(ours), ratios[1]])
    return "\n\n".join([
        f"Median output tokens a second, source and translation {LENGTH} tokens, each program in its fastest mode (found in the first round, in "
        "brackets, with the type that a peer computed in: CTranslate2's modes are library, workers x threads; xfc's workers have a thread each). CTranslate2 decodes in float32 where it lacks a type on this CPU. Random weights; the end of a sentence is forbidden on all sides.",
        table(["size", "type", "beam", "batch", "xfc", *names, "xfc / best peer", "xfc / CTranslate2", "aim", "xfc of peak", "xfc MB", "peer MB"], lines)])


def bars(rows):
    groups = [f"{row['size']} {row['type']} beam {row['beam']}, batch {row['batch']}" for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row["results"]))
    return groups, relative(rows, names), "tokens/s beside the fastest peer"
