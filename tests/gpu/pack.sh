#!/usr/bin/env bash
# pack.sh BUILD FOLDER: what verify.py needs on a machine with a GPU, built here: executables of the shipped models for both
# targets, and the scripts. There, python3 and NVIDIA's driver are enough.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
folder=$2
models=$here/../../models
mkdir -p "$folder"
compile() { # NAME MODEL FLAGS...
  local name=$1 model=$2
  shift 2
  "$build/bin/xfc" compile "$models/$model.json" --target cpu,cuda --cpu x86-64-v3 --cuda-arch "${XFC_CUDA_ARCH:-sm_80}" -o "$folder/$name" "$@"
}
toy=(--set source_vocab=60 --set target_vocab=60)
compile toy tiny "${toy[@]}" --set d_model=32 --set heads=2 --set d_ff=48 --set encoder_layers=1 --set decoder_layers=1
compile tiny-f32 tiny
compile tiny-bf16 tiny --dtype bf16
compile small-f32 small
compile base-f32 original
compile base-bf16 original --dtype bf16
compile big-bf16 original --dtype bf16 --set d_model=1024 --set heads=16 --set d_ff=4096
# The models of tests/bench in bf16, whose twins in other libraries are there: sizes as in common.py.
for size in base big; do
  read -ra settings <<<"$(cd "$here/../bench" && python3 -c "import common; print(*common.SIZES['$size'].settings())")"
  compile "peer-$size" small --dtype bf16 "${settings[@]}"
done
bench=$here/../bench
cp "$here"/*.py "$here/../lit/EndToEnd/Inputs/check_cuda.py" "$here/../lit/EndToEnd/Inputs/tensors.py" \
  "$bench"/{common,kernels,report,torch_model,peer_train,ctranslate2_model}.py "$folder"
echo "on the machine with the GPU: python3 $folder/verify.py > gpu.md"
