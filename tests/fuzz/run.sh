#!/usr/bin/env bash
# Fuzzes everything that is read from outside, with libFuzzer: builds the preset `fuzz`, and runs every target or those named.
#   run.sh [--seconds N] [--executions N] [--counts FILE] [--limit N] [--seed N] [--jobs N] [--compiler] [--build FOLDER] [TARGET...]
# Each target runs for --seconds (default: 60), or, with --executions, until FILE counts so many executions of it, or until
# both have been reached, whichever is first. A finding is saved in FOLDER/findings and fuzzing goes on, up to 20 findings
# per target. The corpus grows in FOLDER/corpus, and the next call continues from it. FILE (default: FOLDER/counts.tsv)
# gets a line for each target that ran: time, commit, target, executions, findings; also if the call is interrupted.
# --limit is the most seconds that one input may take (default: 2); this is wall time, so a busy machine needs more.
# --seed is the random seed (default: a different one each time). --compiler also instruments and fuzzes the compiler,
# which takes long to build. The exit status is 1 if there is a finding, and 77 if clang 22 or libFuzzer is not installed.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"
seconds= most= counts= limit=2 seed=0 jobs="$(nproc)" build="$root/build/fuzz" compiler=OFF sentencepiece= targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="$2"; shift 2 ;;
    --executions) most="$2"; shift 2 ;;
    --counts) counts="$2"; shift 2 ;;
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
# libFuzzer reads 0 as no limit of time, and -1 as none of executions.
if [ -z "$seconds" ]; then seconds=$([ -n "$most" ] && echo 0 || echo 60); fi
counts="${counts:-$build/counts.tsv}"

clang="$(command -v clang++-22 || true)"
if [ -z "$clang" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char *, unsigned long) { return 0; }' |
    "$clang" -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null; then
  echo "skipped: clang++-22 with libFuzzer is not installed (Debian: clang-22 libclang-rt-22-dev)"
  exit 77
fi
mkdir -p "$build"
exec 9>"$build/lock"
flock -n 9 || { echo "error: another run fuzzes in $build; wait for it, or give another folder by --build" >&2; exit 2; }
more=()
if [ -n "$sentencepiece" ] && [ -e "$sentencepiece" ]; then more+=(-DXFC_SENTENCEPIECE_ARCHIVE="$sentencepiece"); fi
cmake -S "$root" --preset fuzz -B "$build" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" \
  -DXFC_BUILD_COMPILER=$compiler "${more[@]}" >"$build.log" || { cat "$build.log" >&2; exit 1; }
only=()
[ ${#targets[@]} -eq 0 ] || only=(--target "${targets[@]/#/fuzz_}")
cmake --build "$build" -j "$jobs" "${only[@]}" >>"$build.log" || { tail -40 "$build.log" >&2; exit 1; }
commit="$(git -C "$root" describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)"

if [ ${#targets[@]} -eq 0 ]; then
  for file in "$build"/tests/fuzz/fuzz_*; do targets+=("${file##*/fuzz_}"); done
fi
[ -e "$counts" ] || printf 'date\tcommit\ttarget\texecutions\tfindings\n' >"$counts"

# Long inputs cost executions, and most formats show all they have in short ones.
longest() {
  case "$1" in
    packed) echo 256 ;;
    module) echo 65536 ;;
    vocabulary|tokenizer|model) echo 8192 ;;
    metrics) echo 512 ;;
    *) echo 4096 ;;
  esac
}

# The sanitizers keep short stacks of allocations and little freed memory, and skip checks of returned stack frames: each of
# these costs a good part of the speed. tests/sanitizers/run.sh says why the compiler has options of its own.
sanitizing() {
  local options=allocator_may_return_null=0:detect_leaks=0:detect_stack_use_after_return=0:malloc_context_size=4:quarantine_size_mb=16
  case "$1" in
    model|module|compiler_options) options+=:detect_container_overflow=0:allow_user_poisoning=0:malloc_fill_byte=1 ;;
  esac
  echo "$options"
}

# Runs a target again after each finding.
fuzz() {
  local target="$1" corpus="$build/corpus/$1" findings="$build/findings/$1" log="$build/$1.log" options=() seeds=() folder
  mkdir -p "$corpus" "$findings"
  for folder in corpus findings; do
    [ -d "$here/$folder/$target" ] && seeds+=("$here/$folder/$target")
  done
  [ -e "$here/dictionaries/$target.dict" ] && options+=(-dict="$here/dictionaries/$target.dict")
  local executions=0 found=0 left=-1 begin=$SECONDS time=$seconds interrupted= pid= status done
  trap 'interrupted=1; [ -z "$pid" ] || kill -USR1 "$pid" 2>/dev/null' TERM INT
  if [ -n "$most" ]; then
    left=$((most - $(awk -F'\t' -v target="$target" '$3 == target { sum += $4 } END { printf "%d", sum }' "$counts")))
  fi
  while [ -z "$interrupted" ] && [ $found -lt 20 ] && [ $left -ne 0 ] && [ $left -ge -1 ]; do
    if [ "$seconds" -gt 0 ]; then
      time=$((seconds - (SECONDS - begin)))
      [ $time -gt 0 ] || break
    fi
    ASAN_OPTIONS=$(sanitizing "$target") \
      UBSAN_OPTIONS=print_stacktrace=1 \
      "$build/tests/fuzz/fuzz_$target" -max_total_time="$time" -runs="$left" -timeout="$limit" -seed="$seed" -rss_limit_mb=2048 \
      -max_len="$(longest "$target")" -print_final_stats=1 -verbosity=1 -artifact_prefix="$findings/" "${options[@]}" \
      "$corpus" "${seeds[@]}" >"$log" 2>&1 &
    pid=$! status=0
    wait $pid || status=$?
    while kill -0 $pid 2>/dev/null; do wait $pid || status=$?; done # a trap ends the first wait
    pid=
    done="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
    executions=$((executions + ${done:-0}))
    # 72: it was interrupted itself, as by Ctrl-C, which every process of the group receives
    if [ $status = 0 ] || [ $status = 72 ] || [ -n "$interrupted" ]; then break; fi
    if [ -z "$done" ]; then
      echo "error: $target: the fuzzer does not run: $(tail -1 "$log")" >&2
      return 1
    fi
    found=$((found + 1))
    echo "$target: a finding in $findings"
    grep -E -m1 -A12 'ERROR:|runtime error|does not hold|terminate called' "$log" || tail -20 "$log"
    # Another seed, which does not lead to the same input.
    [ "$seed" = 0 ] || seed=$((seed + 1))
    if [ -n "$most" ]; then left=$((left - ${done:-0} > 0 ? left - ${done:-0} : 0)); fi
  done
  if [ $executions -gt 0 ]; then
    printf '%s\t%s\t%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$commit" "$target" "$executions" "$found" >>"$counts"
  fi
  echo "$target: $executions executions, $found findings"
  [ $found = 0 ]
}

failed=0 stop=
trap 'stop=1; kill -TERM $(jobs -rp) 2>/dev/null || true' TERM INT
for target in "${targets[@]}"; do
  while [ -z "$stop" ] && [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
  [ -z "$stop" ] || break
  fuzz "$target" &
done
while [ -n "$(jobs -rp)" ]; do wait -n || [ -n "$stop" ] || failed=1; done
exit $failed
