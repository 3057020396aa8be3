#!/usr/bin/env bash
# minutes.sh [PART...]: what a few minutes of a GPU decide, in order of importance, in the folder of a pack that has toy-bf16, odd-bf16, steps-bf16
# and peer-base. Each part prints as it goes and has a limit of time; without arguments, all of these run, with what they took on an H200 with
# 16 cores:
#   kernels      each kernel of sm_90a beside the CPU's (7 s, beside a profile)
#   products     products and output losses beside torch (30 s)
#   attention    the same for attention (35 s at most)
#   correctness  steps, losses, equal bits and NVIDIA's checkers (18 s)
#   training     steps of 32,768 tokens beside torch.compile, which compiles for each row (175 s, in which two of the rows were finished)
# Only if it is asked for, and of a pack that has base-f32, with --cuda-arch sm_86,sm_90a:
#   f32          steps of $F32_TOKENS tokens (16,384) in f32 by tensor cores (sm_90a) and by fused multiply-adds (sm_86), in turns (not tried on a GPU)
# What verify.py records goes to $OUT, or to this folder; the kernels' answers to kernels.MODEL there.
set -uo pipefail
cd "$(dirname "$0")"
image=sm_90a out=${OUT:-.} begin=$SECONDS
[ $# -gt 0 ] || set -- kernels products attention correctness training
for part in "$@"; do
  echo "=== $part, after $((SECONDS - begin)) s"
  case $part in
  kernels)
    for model in toy-bf16 odd-bf16 steps-bf16; do
      timeout 100 "./$model" selfcheck --kernels --device cuda --cuda-image $image --batch-tokens 2600 >"$out/kernels.$model" 2>&1 &
    done
    wait
    tail -n 3 "$out"/kernels.*
    ;;
  products | attention) timeout 60 python3 verify.py "$part" --model peer-base --batch 16384 --image $image ;;
  correctness)
    timeout 120 python3 verify.py correctness --model toy-bf16,odd-bf16,steps-bf16 --image $image --steps 10 --check outputs,weights,training,bits,sanitizer
    ;;
  training) timeout 175 python3 verify.py training --model peer-base --batch 32768 --image $image ;;
  f32)
    for turn in 1 2 3; do
      for code in sm_90a sm_86; do
        echo "$code, turn $turn"
        timeout 40 ./base-f32 bench train --quiet --device cuda --cuda-image $code --batch-tokens "${F32_TOKENS:-16384}" --profile
      done
    done
    ;;
  *)
    echo "error: unknown part '$part'" >&2
    exit 2
    ;;
  esac
done
echo "=== end, after $((SECONDS - begin)) s"
