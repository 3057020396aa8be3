"""factored_states.py STATE.safetensors [FROZEN_PREFIX]: checks which tensors a state file of adafactor has, and their shapes; those of frozen
parameters must be 0, and all others positive."""
import sys

from safetensors.torch import load_file

file, *frozen = sys.argv[1:]
tensors = load_file(file)
expected = {}
for name, tensor in tensors.items():
    if name.startswith("weights."):
        parameter = name.removeprefix("weights.")
        expected[f"row_mean.{parameter}"] = tensor.shape[:-1] if tensor.dim() > 1 else tensor.shape
        if tensor.dim() > 1:
            expected[f"column_mean.{parameter}"] = tensor.shape[-1:]
kept = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] in ("row_mean", "column_mean")}
if {name: tensor.shape for name, tensor in kept.items()} != expected:
    sys.exit(f"{file} has {sorted(kept)}, expected {sorted(expected)}")
for name, tensor in kept.items():
    still = any(name.split(".", 1)[1].startswith(prefix) for prefix in frozen)
    if not ((tensor == 0).all() if still else (tensor > 0).all()):
        sys.exit(f"{name}: {tensor}")
