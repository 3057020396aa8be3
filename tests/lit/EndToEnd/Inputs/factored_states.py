"""factored_states.py STATE.safetensors [FROZEN_PREFIX]: checks which tensors a state file of adafactor has, and their shapes; those of frozen
parameters must be 0, and all others positive. Plain Python."""
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import tensors

file, *frozen = sys.argv[1:]
state = tensors.read(file)
expected = {}
for name, (shape, _) in state.items():
    if name.startswith("weights."):
        parameter = name.removeprefix("weights.")
        expected[f"row_mean.{parameter}"] = shape[:-1] if len(shape) > 1 else shape
        if len(shape) > 1:
            expected[f"column_mean.{parameter}"] = shape[-1:]
kept = {name: tensor for name, tensor in state.items() if name.split(".")[0] in ("row_mean", "column_mean")}
if {name: shape for name, (shape, _) in kept.items()} != expected:
    sys.exit(f"{file} has {sorted(kept)}, expected {sorted(expected)}")
for name, (_, numbers) in kept.items():
    still = any(name.split(".", 1)[1].startswith(prefix) for prefix in frozen)
    if not all(number == 0 if still else number > 0 for number in numbers):
        sys.exit(f"{name}: {numbers}")
