"""Checks that imported models train: check_training.py XFC WORK_FOLDER DRIVERS.

For one small model of each family, the loss and the gradients of `forward --gradients` are PyTorch's, of the model of transformers with the
labels that are pad ignored, and in f64 those of the program without fusion and of the interpreter. Then five steps of training: their first
loss is PyTorch's, too, with the label smoothing of the config; and when the trained model is exported and the export imported, it has the
same bytes, the same scores, and in a run that goes on from it (`--init`) the same first loss. A T5 does the same on a GPU.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from foreign_checks import expect, failures, path, run, same_on_gpu, xfc
from foreign_models import bart, marian, of_unit_logits, ragged, randomize, t5, untied

build = os.path.dirname(xfc)


def numbers(file):
    """The floating-point tensors of a file, in f64."""
    return {name: tensor.double() for name, tensor in load_file(file).items() if tensor.is_floating_point()}


def in_doubles(norm):
    """The norm of a T5, whose variance transformers computes in f32 whatever the type of the model."""
    return lambda rows: norm.weight * rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)


def reference(model, weights, inputs, pad):
    """The loss, and the gradient of each of our parameters: that of the tensor with the same numbers. If transformers has several
    tensors with these numbers, they are one parameter here, whose gradient is the sum."""
    model = model.double()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None  # here, pad's embedding is trained like any other
        if hasattr(module, "variance_epsilon"):
            module.forward = in_doubles(module)
    theirs = dict(model.named_parameters())
    if hasattr(model, "final_logits_bias"):
        theirs["final_logits_bias"] = model.final_logits_bias.requires_grad_()
    model.zero_grad()
    logits = model(input_ids=inputs["source"].long(), attention_mask=inputs["source_mask"], decoder_input_ids=inputs["target"].long()).logits
    loss = F.cross_entropy(logits.flatten(0, 1), inputs["labels"].long().flatten(), ignore_index=pad)
    loss.backward()
    gradients = {}
    for name, weight in weights.items():
        same = [each for each in theirs.values() if each.numel() == weight.numel() and torch.equal(each.detach().view_as(weight), weight)]
        found = [each.grad.view_as(weight) for each in same if each.grad is not None]
        expect(found, f"no parameter of transformers holds the numbers of {name}")
        gradients[name] = sum(found)
    return loss.item(), gradients


def compare(name, found, loss, gradients, tolerance):
    """Differences are relative to a gradient's largest number. Some gradients are sums of zero (those of the biases of keys), and
    have only rounding errors, so there is also a floor."""
    floor = 1e-3 * max(gradient.abs().max().item() for gradient in gradients.values())
    expect(abs(found["loss"].item() - loss) <= tolerance * loss, f"{name}: loss {found['loss'].item()}, expected {loss}")
    ours = {key.removeprefix("grad."): tensor for key, tensor in found.items() if key.startswith("grad.")}
    expect(ours.keys() == gradients.keys(), f"{name}: gradients of other parameters: {sorted(ours.keys() ^ gradients.keys())}")
    worst = 0
    for key in ours.keys() & gradients.keys():
        error = ((ours[key] - gradients[key]).abs().max() / max(floor, gradients[key].abs().max().item())).item()
        expect(error <= tolerance, f"{name}: the gradient of {key} differs by {error:.1e}")
        worst = max(worst, error)
    return worst


def interpreted(folder, weights, inputs, lengths, pad):
    """Loss and gradients as the interpreter computes them."""
    imported, differentiated, given, result = (path(end) for end in ("imported.mlir", "gradients.mlir", "inputs.json", "result.json"))
    run(xfc, "compile", folder, "--dtype", "f64", "--mode", "train", "--emit", "imported", "-o", imported)
    run(os.path.join(build, "xfc-opt"), imported, "--xfc-differentiate", "-o", differentiated)
    rows = {name: [row[:n] for row, n in zip(inputs[name].tolist(), lengths)] for name in ("source", "target", "labels")}
    labels = [label if label != pad else -1 for row in rows["labels"] for label in row]
    counted = sum(label >= 0 for label in labels)
    flat = {name: weight.flatten().tolist() for name, weight in weights.items()}
    with open(given, "w") as file:
        json.dump(dict(source=rows["source"], target=rows["target"],
                       inputs=dict(flat, labels=labels, smoothing=0, loss_scale=[1 / counted] * len(labels))), file)
    run(os.path.join(build, "xfc-interpret"), differentiated, given, "--function", "loss_and_gradients", "-o", result)
    with open(result) as file:
        results = {each["name"]: torch.tensor(each["data"], dtype=torch.float64) for each in json.load(file)["results"]}
    gradients = {key: tensor.view_as(weights[key.removeprefix("grad.")]) for key, tensor in results.items() if key.startswith("grad.")}
    return gradients | {"loss": results["loss"].sum() / counted}


def check_gradients(name, model, imported, translator, source, lengths, target):
    """The gradients of a batch, in f32, and three ways in f64."""
    config = model.config
    labels = torch.roll(target, -1, 1)
    for row, length in zip(labels, lengths):
        row[length - 1:] = config.pad_token_id
        row[length - 1] = config.eos_token_id
    inputs = dict(source=source.int(), target=target.int(), labels=labels.int(),
                  source_mask=torch.arange(source.shape[1])[None] < torch.tensor(lengths)[:, None])
    save_file({key: inputs[key] for key in ("source", "target", "labels")}, path("in"))
    weights = numbers(os.path.join(imported, "model.safetensors"))
    loss, gradients = reference(model, weights, inputs, config.pad_token_id)

    def forward(executable):
        run(executable, "forward", "--weights", os.path.join(imported, "model.safetensors"), "--input", path("in"), "--output", path("out"),
            "--gradients")
        return numbers(path("out"))

    three = interpreted(imported, weights, inputs, lengths, config.pad_token_id)
    # Sinusoids are rounded to f32 in transformers, so that only the three programs agree to more digits.
    errors = [compare(f"{name}, f32", forward(translator), loss, gradients, 5e-4), compare(f"{name}, interpreter", three, loss, gradients, 1e-5)]
    loss, gradients = three["loss"].item(), {key: three["grad." + key] for key in gradients}
    for kind, flags in (("f64", ()), ("f64 without fusion", ("--no-fuse",))):
        run(xfc, "compile", imported, "--dtype", "f64", "--mode", "train", *flags, "-o", path("f64"))
        errors.append(compare(f"{name}, {kind}", forward(path("f64")), loss, gradients, 1e-10))
    print(f"{name}: {len(gradients)} gradients; f32 and f64 differ from PyTorch by {errors[0]:.0e} and {errors[1]:.0e}, three ways by",
          *(f"{error:.0e}" for error in errors[2:]))


def check_steps(name, model, imported, translator, source, lengths, target):
    """Trains, exports, imports again, and goes on."""
    config = model.config
    eos, pad = config.eos_token_id, config.pad_token_id
    long = torch.tensor(lengths) > 1  # pairs without text on one side are not trained on
    source, lengths, target = source[long], torch.tensor(lengths)[long].tolist(), target[long]
    lines = dict(source=[row[:n] for row, n in zip(source.tolist(), lengths)], target=[row[1:n] for row, n in zip(target.tolist(), lengths)])
    for line in lines["source"]:
        line[-1] = eos  # as text ends
    for side, rows in lines.items():
        with open(path(side), "w") as file:
            file.writelines(" ".join(map(str, row)) + "\n" for row in rows)
    corpus = ("--format", "ids", "--source", path("source"), "--target", path("target"))

    def train(out, init, steps=1):
        """Returns the loss, which of several steps is the mean."""
        run(translator, "train", *corpus, "--init", init, "--out", out, "--steps", steps, "--batch-tokens", 1000,
            "--schedule", "constant", "--warmup", 0, "--lr", 1e-3, "--quiet")
        with open(os.path.join(out, "train.jsonl")) as file:
            return json.loads(file.read().splitlines()[-1])["loss"]

    def score(folder):
        return run(translator, "score", "--model", folder, *corpus).stdout

    trained, exported, again = (path(name + end) for end in (".trained", ".exported", ".again"))
    first, mean = (train(where, os.path.join(imported, "model.safetensors"), steps) for where, steps in ((path(name + ".begun"), 1), (trained, 5)))
    for row, line in zip(source, lines["source"]):
        row[: len(line)] = torch.tensor(line)
    labels = torch.full_like(target, pad)
    for row, line in zip(labels, lines["target"]):
        row[: len(line) + 1] = torch.tensor(line + [eos])
    mask = torch.arange(source.shape[1])[None] < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    # The smoothing of the config, or else that of the family.
    smoothing = getattr(config, "label_smoothing", 0 if "t5" in config.model_type else 0.1)
    wanted = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad, label_smoothing=smoothing).item()
    shown = json.loads(run(translator, "info", "--json").stdout)["training"]
    expect(shown == {"label_smoothing": smoothing}, f"{name}: info says {shown} of training, the config {smoothing}")
    expect(abs(first - wanted) <= 1e-5 * wanted, f"{name}: training begins with the loss {first}, but PyTorch's is {wanted}")
    expect(mean < first, f"{name}: the loss does not fall: first {first}, on average {mean}")

    run(xfc, "export", trained, "--to", "hf", "-o", exported)
    run(xfc, "import", exported, "-o", again)
    for file in (imported, again):
        with open(os.path.join(file, "model.json")) as text:
            found = json.load(text).get("training", {}).get("label_smoothing", 0.1)
        expect(found == smoothing, f"{name}: {file} has the label smoothing {found}, the config {smoothing}")
    before, after = load_file(os.path.join(trained, "last.safetensors")), load_file(os.path.join(again, "model.safetensors"))
    different = [key for key in before.keys() | after.keys() if key not in before or key not in after or not torch.equal(before[key], after[key])]
    expect(not different, f"{name}: trained, exported and imported with other weights: {sorted(different)}")
    scores = score(trained), score(again)
    expect(scores[0] == scores[1], f"{name}: the trained model scores {scores[0]}, exported and imported {scores[1]}")
    expect(scores[0] != score(imported), f"{name}: training has not changed the scores")
    on = [train(path(name + end), where) for end, where in ((".on", trained), (".on-again", os.path.join(again, "model.safetensors")))]
    expect(on[0] == on[1], f"{name}: training goes on with the loss {on[1]}, without export and import {on[0]}")
    expect(on[0] < mean, f"{name}: training goes on with the loss {on[0]}, after {mean} on average")
    print(f"{name}: losses {first:.3f}, {on[0]:.3f} after five steps")


def check_training(name, model, gpu=False):
    of_unit_logits(model)
    folder, imported, translator = (path(name + end) for end in ("", ".imported", ".translator"))
    model.save_pretrained(folder)
    run(xfc, "import", folder, "-o", imported)
    run(xfc, "compile", imported, "-o", translator, "--mode", "train,decode", *("--target", "cpu,cuda") * gpu)
    config = model.config
    generator = torch.Generator().manual_seed(11)
    pad, eos, start = config.pad_token_id, config.eos_token_id, model.generation_config.decoder_start_token_id
    special = {pad, eos, start, getattr(config, "bos_token_id", None)}
    source, mask = ragged(generator, config.vocab_size, special, pad)
    target, _ = ragged(generator, model.get_output_embeddings().weight.shape[0], special, pad, start)
    batch = source, mask.sum(1).tolist(), target
    check_gradients(name, model, imported, translator, *batch)
    check_steps(name, model, imported, translator, *batch)
    if gpu:
        same_on_gpu(translator, os.path.join(imported, "model.safetensors"), path(name + ".devices"), pad)


STILL = dict(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
check_training("marian", randomize(marian(**STILL, label_smoothing=0.25), 1))
check_training("bart", randomize(bart("Bart", **STILL), 2))
check_training("mbart", randomize(bart("MBart", **STILL, scale_embedding=True, decoder_start_token_id=2), 3))
check_training("m2m", randomize(bart("M2M100", **STILL), 4))
check_training("t5", randomize(t5("T5", dropout_rate=0.0), 5), gpu=True)
check_training("t5-1.1", randomize(untied(t5("T5", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False), dropout_rate=0.0)), 6))
check_training("umt5", randomize(t5("UMT5", dropout_rate=0.0), 7))
sys.exit("\n".join(failures) or 0)
