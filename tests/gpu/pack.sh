#!/usr/bin/env bash
# pack.sh [--cuda-arch LIST] BUILD PACK.tar.xz [MODEL...]: packs what verify.py needs on a machine with a GPU: for each model (by default, all
# of them) an executable with code for the CPU, and for sm_80 and sm_90a or the architectures of LIST, and the scripts. As many models are
# compiled at a time as there are processors. That machine needs only python3 and NVIDIA's driver:
#   python3 -m tarfile -e PACK.tar.xz gpu && python3 gpu/verify.py
set -euo pipefail
limit=$((64 << 20)) # the most bytes that the archive may have
names=(toy toy-bf16 odd-f32 odd-bf16 steps-f32 steps-bf16 base-f32 base-bf16 peer-base peer-big) # and peer-tiny, peer-small
archs=sm_80,sm_90a
if [ "${1:-}" = --cuda-arch ]; then
  archs=${2:-}
  shift 2
fi
[ $# -ge 2 ] || { echo "usage: pack.sh [--cuda-arch LIST] BUILD PACK.tar.xz [MODEL...]   models: ${names[*]}" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$(dirname "$2")"
pack=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
shift 2
bench=$here/../bench
models=$here/../../models
[ -x "$build/bin/xfc" ] || { echo "error: $build/bin/xfc is not there; build it first" >&2; exit 1; }

toy=(--set source_vocab=60 --set target_vocab=60 --set d_model=32 --set heads=2 --set encoder_layers=1 --set decoder_layers=1)
# No size is a multiple of a tile's size, and most are odd.
odd=(--set source_vocab=1003 --set target_vocab=997 --set d_model=222 --set heads=3 --set d_ff=517 --set encoder_layers=2 --set decoder_layers=2)
peer() { # SIZE: the model of this size in tests/bench, which builds the same model in other libraries
  (cd "$bench" && python3 -c "import common, sys; print(*common.SIZES[sys.argv[1]].settings())" "$1")
}
flags_of() { # MODEL: its file in models/, and the options to compile it with
  case $1 in
  toy) echo tiny "${toy[@]}" --set d_ff=48 ;;
  toy-bf16) echo tiny --dtype bf16 "${toy[@]}" --set d_ff=136 ;; # wide enough for the products by warpgroups
  odd-f32) echo tiny "${odd[@]}" ;;
  odd-bf16) echo tiny --dtype bf16 "${odd[@]}" ;;
  steps-f32) echo ../tests/gpu/steps ;;
  steps-bf16) echo ../tests/gpu/steps --dtype bf16 ;;
  base-f32) echo original ;;
  base-bf16) echo original --dtype bf16 ;;
  peer-*) echo small --dtype bf16 "$(peer "${1#peer-}")" ;;
  *) echo "error: unknown model '$1'; known: ${names[*]}" >&2; return 1 ;;
  esac
}

work=$(mktemp -d "$(dirname "$pack")/pack.XXXXXX")
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- "${names[@]}"
running=()
for name in "$@"; do
  flags=$(flags_of "$name")
  read -ra words <<<"$flags"
  if [ ${#running[@]} -ge "$(nproc)" ]; then
    wait "${running[0]}"
    running=("${running[@]:1}")
  fi
  "$build/bin/xfc" compile "$models/${words[0]}.json" --target cpu,cuda --cpu x86-64-v3 --cuda-arch "$archs" -o "$work/$name" "${words[@]:1}" &
  running+=($!)
done
for compilation in "${running[@]}"; do wait "$compilation"; done
cp "$here"/{verify,tables,peers}.py "$here"/{README.md,minutes.sh} "$here/../lit/EndToEnd/Inputs/check_cuda.py" "$here/../lit/EndToEnd/Inputs/tensors.py" \
  "$bench"/{common,kernels,report,torch_model,torch_training,peer_train,ctranslate2_model}.py "$work"

# One stream for all executables: they have much in common, and xz finds it at any distance.
tar -C "$work" --sort=name --owner=0 --group=0 -c . | xz -9 -T1 >"$pack.unfinished"
mv "$pack.unfinished" "$pack"
bytes=$(stat -c %s "$pack")
echo "$pack: $# models, $bytes bytes ($((bytes * 100 / limit)) % of the $limit that it may have)"
if [ "$bytes" -gt "$limit" ]; then
  echo "error: the pack is larger than $limit bytes; name fewer models" >&2
  exit 1
fi
