#!/usr/bin/env bash
# Compares what xfc emits when GCC has built it with what it emits when Clang has, to the byte: neither the order in which a
# compiler evaluates arguments nor anything else that it may choose becomes a part of the generated code.
#   compilers.sh BUILD
# Builds xfc-opt with the other compiler in BUILD/other, without optimization, and takes the models through all passes to the
# code of their kernels, for targets that between them use every core. The exit status is 77 if that compiler is not installed.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$(cd "$1" && pwd)"
if grep -q '^CMAKE_CXX_COMPILER:.*clang' "$build/CMakeCache.txt"; then other=g++ otherc=gcc; else other=clang++-22 otherc=clang-22; fi
command -v $other >/dev/null || { echo "skipped: $other is not installed"; exit 77; }
mkdir -p "$build/other"
archive="$build/third_party/sentencepiece-0.2.0.tar.gz" more=()
if [ -e "$archive" ]; then more+=(-DXFC_SENTENCEPIECE_ARCHIVE="$archive"); fi
cmake -S "$root" -B "$build/other" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
  -DCMAKE_CXX_COMPILER=$other -DCMAKE_C_COMPILER=$otherc -DXFC_BUILD_TESTS=OFF "${more[@]}" >"$build/other.log" ||
  { cat "$build/other.log" >&2; exit 1; }
cmake --build "$build/other" --target xfc-opt >>"$build/other.log" || { tail -40 "$build/other.log" >&2; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
different=0 compared=0
# compare MODEL TARGET PASS...: takes a model through passes, and its kernels to code for a target.
compare() {
  local model="$1" target="$2" file=0 pids=() pid settings=(--set encoder_layers=1)
  shift 2
  # As small as shows every form of a kernel, and with lengths that no tile divides.
  case "$model" in
    encoder-block) settings+=(--set d_model=64 --set heads=2 --set d_ff=96) ;;
    plain-attention) settings+=(--set d_model=64) ;;
    *) settings+=(--set decoder_layers=1 --set d_model=64 --set d_ff=96 --set source_vocab=300 --set target_vocab=300) ;;
  esac
  "$build/bin/xfc" compile "$root/models/$model.json" "${settings[@]}" --emit imported -o "$work/imported.mlir"
  for tool in "$build" "$build/other"; do
    "$tool/bin/xfc-opt" "$work/imported.mlir" "$@" --xfc-schedule="target=$target" -o "$work/$file.mlir" &
    pids+=($!) file=1
  done
  for pid in "${pids[@]}"; do wait "$pid" || { echo "$model for $target: a pass fails" >&2; exit 1; }; done
  grep -q "plan.target = \"$target\"" "$work/0.mlir" || { echo "$model for $target: there is no code" >&2; exit 1; }
  compared=$((compared + 1))
  cmp "$work/0.mlir" "$work/1.mlir" || { echo "$model for $target, $*: what the two make differs" >&2; different=$((different + 1)); }
}
fused=--xfc-fuse-pipeline after=--xfc-differentiate-pipeline
unfused=no-fuse=fuse-loss-gradient,fuse-optimizer,fuse-packing,fuse-norm-grad,fuse-epilogue,fuse-cache-write
compare tiny x86-64-v3 $fused $after
compare tiny x86-64-v4+vnni $fused $after=recompute=most
compare tiny x86-64-v4+bf16 $fused $after=dtype=bf16
compare tiny x86-64-v4+amx $fused $after="target=x86-64-v4+amx dtype=bf16"
compare tiny plain --canonicalize --cse $after="target=plain $unfused"
compare tiny sm_80 $fused=target=sm_80 $after=target=sm_80
compare tiny sm_90a $fused=target=sm_90a $after="target=sm_90a dtype=bf16"
# The others have few ops that these have not, so each is compared for one target.
at=0
for model in "$root"/models/*.json; do
  model="$(basename "$model" .json)"
  case "$model" in schema | tiny | small | original) continue ;; esac
  case $((at++ % 2)) in
    0) compare "$model" x86-64-v4 $fused $after ;;
    1) compare "$model" sm_80 $fused=target=sm_80 $after="target=sm_80 dtype=bf16" ;;
  esac
done
echo "$compared modules compared, $different differ"
[ $different = 0 ]
