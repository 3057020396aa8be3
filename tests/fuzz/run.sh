#!/usr/bin/env bash
# Fuzzes everything that is read from outside, with libFuzzer: builds the preset `fuzz`, and runs every target or those named.
#   run.sh [--seconds N] [--limit N] [--seed N] [--jobs N] [--compiler] [--build FOLDER] [TARGET...]
# --seconds is the time for each target. --limit is the most seconds that one input may take (default: 2); this is wall
# time, so a busy machine needs more. --seed is the random seed (default: a different one each time). The corpus grows in
# FOLDER/corpus, and the next call continues from it; counts are appended to FOLDER/counts.tsv, and findings are saved in
# FOLDER/findings. --compiler also instruments and fuzzes the compiler, which takes long to build. The exit status is 1
# if there is a finding, and 77 if clang 22 or libFuzzer is not installed.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
seconds=60 limit=2 seed=0 jobs="$(nproc)" build="$root/build/fuzz" compiler=OFF sentencepiece= targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="$2"; shift 2 ;;
    --limit) limit="$2"; shift 2 ;;
    --seed) seed="$2"; shift 2 ;;
    --jobs) jobs="$2"; shift 2 ;;
    --build) build="$2"; shift 2 ;;
    --sentencepiece) sentencepiece="$2"; shift 2 ;;
    --compiler) compiler=ON; shift ;;
    -*) echo "error: unknown option $1" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done

clang="$(command -v clang++-22 || true)"
if [ -z "$clang" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, unsigned long) { return 0; }' |
    "$clang" -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null; then
  echo "skipped: clang++-22 with libFuzzer is not installed (Debian: clang-22 libclang-rt-22-dev)"
  exit 77
fi
mkdir -p "$build"
more=()
if [ -n "$sentencepiece" ] && [ -e "$sentencepiece" ]; then more+=(-DXFC_SENTENCEPIECE_ARCHIVE="$sentencepiece"); fi
cmake -S "$root" --preset fuzz -B "$build" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" \
  -DXFC_BUILD_COMPILER=$compiler "${more[@]}" >"$build.log" || { cat "$build.log" >&2; exit 1; }
cmake --build "$build" -j "$jobs" >>"$build.log" || { tail -40 "$build.log" >&2; exit 1; }

if [ ${#targets[@]} -eq 0 ]; then
  for file in "$build"/tests/fuzz/fuzz_*; do targets+=("${file##*/fuzz_}"); done
fi

fuzz() {
  local target="$1" corpus="$build/corpus/$1" findings="$build/findings/$1" options=()
  mkdir -p "$corpus" "$findings"
  local seeds=()
  for folder in corpus findings; do
    [ -d "$here/$folder/$target" ] && seeds+=("$here/$folder/$target")
  done
  [ -e "$here/dictionaries/$target.dict" ] && options+=(-dict="$here/dictionaries/$target.dict")
  local status=0
  ASAN_OPTIONS=allocator_may_return_null=0:detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    "$build/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout="$limit" -seed="$seed" -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -verbosity=1 -artifact_prefix="$findings/" "${options[@]}" "$corpus" "${seeds[@]}" \
    >"$build/$target.log" 2>&1 || status=1
  local executions
  executions="$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")"
  printf '%s\t%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$target" "${executions:-0}" "$status" >>"$build/counts.tsv"
  echo "$target: ${executions:-?} executions, $([ $status = 0 ] && echo no finding || echo "a finding in $findings")"
  if [ $status != 0 ]; then
    grep -E -m1 -A12 'ERROR:|runtime error|does not hold|terminate called' "$build/$target.log" || tail -20 "$build/$target.log"
  fi
  return $status
}

failed=0 running=()
for target in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
  fuzz "$target" &
done
while [ -n "$(jobs -rp)" ]; do wait -n || failed=1; done
wait
exit $failed
