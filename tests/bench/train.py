"""Compares training with torch: eager nn.Transformer, scaled_dot_product_attention with fused Adam, and torch.compile of the latter; in bfloat16,
torch trains by autocast."""
import os

from common import TYPES, BenchError, Contestant, fastest_peer, python_peer, relative, run_json, take_turns, translator
from corpus import copies, read_lines, vocabulary
from report import megabytes, percent, ratio, table

VARIANTS = {"eager": "torch eager", "sdpa": "torch SDPA", "compile": "torch compile"}
TARGETS = {"tiny": (1.8, 2.0), "small": (1.5, 1.7), "base": (1.2, 1.35)}  # fixed lengths, real lengths
PAIRS = 30000


def pieces(options, vocab):
    """The first pairs of the text as files of ids from a vocabulary of that size, with eos at the end of sources; and their mean lengths."""
    import sentencepiece

    files = copies(options, "text", (options.source, options.target), PAIRS)
    processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary(options, "text", files, vocab))
    sources, targets = (processor.encode(read_lines(file)) for file in files)
    pairs = [(s + [processor.eos_id()], t) for s, t in zip(sources, targets) if s and t]
    paths = [os.path.join(options.work, f"ids-{vocab}.{side}") for side in ("source", "target")]
    for path, side in zip(paths, zip(*pairs)):
        with open(path, "w") as file:
            file.writelines(" ".join(map(str, ids)) + "\n" for ids in side)
    source, target = (sum(map(len, side)) / len(pairs) for side in zip(*pairs))
    return paths, (source, target + 1)


def measure(options):
    rows = []
    variants = [name for name in VARIANTS if not (options.quick and name == "compile")]
    for size in options.sizes:
        kinds = {"32": (["--length", "32"], {"length": 32}, (32, 32))}
        if options.source:
            # A text of this size does not have more pieces; the models keep their vocabulary.
            files, lengths = pieces(options, min(size.vocab, 16000))
            kinds["real"] = (["--source", files[0], "--target", files[1], "--format", "ids"], dict(zip(("source", "target"), files)), lengths)
        for kind, (arguments, specification, lengths) in kinds.items():
            steps = options.steps or size.steps * (2 if kind == "real" else 1)
            for type_ in (name for name in options.types if name != "int8"):
                path = translator(options, size, TYPES[type_][0])
                parameters = run_json([path, "info", "--json"])["parameters"]
                for threads in options.threads:
                    options.log(f"train {size.name}, {type_}, length {kind}, {threads} threads")
                    ours = [path, "bench", "train", "--batch-tokens", options.batch_tokens, "--steps", steps, "--threads", threads, "--json"]
                    contestants = [Contestant("xfc", {"": ([*ours, *arguments], {})})]
                    contestants += [Contestant(VARIANTS[variant], {"": python_peer("peer_train.py", threads, {
                        "size": size.name, "variant": variant, "type": type_, "steps": steps, "batch_tokens": options.batch_tokens, **specification})})
                        for variant in variants]
                    results = take_turns(contestants, options.rounds, options.log)
                    for name in results.keys() - {"xfc"}:
                        if (theirs := results[name]["runs"][0]["parameters"]) != parameters:
                            raise BenchError(f"{name} has {theirs} parameters, and xfc {parameters}: they do not do the same work")
                    rows.append({"size": size.name, "type": type_, "length": kind, "threads": threads, "lengths": lengths, "results": results,
                                 "flops_per_token": size.training_flops(*lengths) / lengths[1]})
    return rows


def markdown(rows, machine):
    lines = []
    for row in rows:
        ours, (name, rival) = row["results"]["xfc"], fastest_peer(row["results"])
        peak = machine["peak"][row["threads"]][TYPES[row["type"]][1]] * 1e9
        shares = [result["tokens_per_second"] * row["flops_per_token"] / peak for result in (ours, rival)]
        target = TARGETS.get(row["size"], (None, None))[row["length"] == "real"] if row["type"] == "float32" else None
        lines.append([row["size"], row["type"], row["length"], row["threads"], f"{ours['tokens_per_second']:.0f} ±{percent(ours['spread'] / 2)}",
                      *(f"{r['tokens_per_second']:.0f} ±{percent(r['spread'] / 2)}" for n, r in row["results"].items() if n != "xfc"),
                      ratio(ours, rival), f"{target} or 75 % of peak" if target else "", percent(shares[0]), percent(shares[1]),
                      megabytes(ours), f"{megabytes(rival)} ({ours['peak_rss_mb'] / rival['peak_rss_mb']:.2f})"])
    first = rows[0]["results"]
    torch = first[fastest_peer(first)[0]]["runs"][0]
    return "\n\n".join([
        "Median target tokens a second; ratio to the fastest torch. Both do the same work: dropout in the same places, nothing tied, label "
        "smoothing, clipping, Adam. In bfloat16, products round their operands to it, and weights stay f32 "
        "(torch: autocast). Shares are of the measured peak of the type, in the FLOPs of the model itself (pads and recomputation do not "
        "count). Real lengths: batches of the same number of tokens, those of torch sorted by length and padded. "
        f"Memory is the peak of a process; importing torch {torch['torch']} takes {torch['imported_mb']:.0f} MB of it. Instruction sets: xfc "
        f"{first['xfc']['cpu']}, torch {torch['cpu']}.",
        table(["size", "type", "length", "threads", *first, "xfc / best torch", "aim", "xfc of peak", "torch of peak", "xfc MB", "torch MB (xfc / torch)"],
              lines)])


def bars(rows):
    """For the plot: the groups, and for each name one value per group."""
    groups = [f"{row['size']} {row['type']} {row['length']}, {row['threads']} t" for row in rows]
    return groups, relative(rows, list(rows[0]["results"])), "tokens/s beside the fastest peer"
