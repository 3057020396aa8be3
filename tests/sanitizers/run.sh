#!/usr/bin/env bash
# Runs end-to-end tests with executables whose runtime is instrumented with the address and undefined-behaviour
# sanitizers, or with the thread sanitizer; or the lit suite with a compiler that is instrumented with the former.
#   run.sh address|thread|compiler [--build FOLDER] [--filter REGEX]
# FOLDER (default: build) is a complete build. What is instrumented is built in FOLDER/fuzz, which the fuzz targets share,
# or in FOLDER/thread. With `address` and `thread`, the compiler of FOLDER compiles the models, but its objects are linked
# with the instrumented runtime. All end-to-end tests run but those that are left out below; with `address`, unit tests of
# what reads files or is indexed by untrusted numbers run before. With `compiler`, whose instrumented build takes half an
# hour, the tests of imports, passes and code generation run too. The exit status is 77 if clang 22 is not installed.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
build="$root/build" filter= sanitizer="${1:-}"
preset=fuzz folder=fuzz flags=fuzzer-no-link,address,undefined compiler=OFF targets=(xfc_runtime)
tests='EndToEnd/'
left_out=(
  # They look at the executable or the archives themselves, or link programs with them in other ways.
  hardening install library
  # They measure time or memory, or limit it.
  bench commands growth memory seconds-and-megabytes
  # They load a library before the sanitizer's, which has to be the first: interposers and the emulator of tiles.
  amx faults litter out-of-memory
  # They load MPI, or a driver and an NCCL, that are not instrumented.
  cuda-archs gpu-pack overlap ranks
  # They run kernels, which are not instrumented, of many models that the other tests' models resemble.
  random-models
)
case "$sanitizer" in
  address) targets+=(runtime_address_sanitizer) ;;
  thread) preset=tsan folder=thread flags=thread ;;
  compiler)
    compiler=ON targets+=(xfc xfc-opt xfc-interpret xfc-ptx xfc-models)
    left_out+=(deep) # which is to import a thousand layers in seconds
    tests="(Dialect|Import|Interpreter|Pipeline|Plain|Plan|Schedule|Transforms|CPU|GPU)/|$tests"
    ;;
  *) echo "usage: run.sh address|thread|compiler [--build FOLDER] [--filter REGEX]" >&2; exit 2 ;;
esac
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build="$(cd "$2" && pwd)"; shift 2 ;;
    --filter) filter="$2"; shift 2 ;;
    *) echo "error: unknown option $1" >&2; exit 2 ;;
  esac
done
clang="$(command -v clang++-22 || true)"
if [ -z "$clang" ]; then
  echo "skipped: clang++-22 is not installed (Debian: clang-22 libclang-rt-22-dev)"
  exit 77
fi
runtime="$build/$folder"
mkdir -p "$runtime"
archive="$build/third_party/sentencepiece-0.2.0.tar.gz" more=()
if [ -e "$archive" ]; then more+=(-DXFC_SENTENCEPIECE_ARCHIVE="$archive"); fi
cmake -S "$root" --preset $preset -B "$runtime" -DCMAKE_CXX_COMPILER="$clang" -DCMAKE_C_COMPILER="${clang/++/}" \
  -DXFC_BUILD_COMPILER=$compiler -DXFC_BUILD_TESTS=OFF "${more[@]}" >"$runtime.log" || { cat "$runtime.log" >&2; exit 1; }
cmake --build "$runtime" --target "${targets[@]}" >>"$runtime.log" || { tail -40 "$runtime.log" >&2; exit 1; }

# `xfc compile` finds this linker first; it links the generated objects with the instrumented runtime. A library, which an
# executable may load (--draft-library), gets the runtime that it always has, also from the instrumented compiler.
mkdir -p "$runtime/linker"
cat >"$runtime/linker/ld.lld-22" <<END
#!/usr/bin/env bash
set -euo pipefail
instrumented="$runtime/lib/" plain="$build/lib/"
case " \$* " in *" -shared "*) exec "$(command -v ld.lld-22)" "\${@//\$instrumented/\$plain}" ;; esac
output= objects=()
while [ \$# -gt 0 ]; do
  case "\$1" in
    -r) exec "$(command -v ld.lld-22)" "\$@" ;;
    -o) output="\$2"; shift ;;
    */crt*.o | */Scrt1.o) ;;
    *.o) objects+=("\$1") ;;
  esac
  shift
done
exec "$clang" -fsanitize=$flags "\${objects[@]}" "$runtime/lib/libxfc_runtime.a" "$runtime/lib/libsentencepiece.a" "$runtime/lib/libutf8proc.a" "$runtime/lib/libz.a" "$runtime/lib/libzstd.a" "$runtime/lib/libevent_extra.a" "$runtime/lib/libevent_core.a" -ldl -lpthread -o "\$output"
END
chmod +x "$runtime/linker/ld.lld-22"
export PATH="$runtime/linker:$PATH"

[ "$sanitizer" != address ] || "$runtime/tests/runtime_address_sanitizer" --gtest_brief=1
# Leak detection uses a process that traces the tested one, which the confinement of `translate` forbids. Little freed
# memory is kept from being used again, since serve.test has the server's memory stay the same.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0:quarantine_size_mb=16 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1
if [ "$sanitizer" = thread ]; then
  # Open MPI's modules take two of their own locks in either order.
  echo "deadlock:mca_btl_" >"$runtime/suppressions"
  # A process whose mapped file is truncated ends at once, without waiting for its threads.
  TSAN_OPTIONS+=:suppressions=$runtime/suppressions:report_thread_leaks=0
fi
printf -v names '|%s' "${left_out[@]}"
arguments=(-v --time-tests --param sanitized=1 --param output="$runtime/lit" --filter "${filter:-$tests}" --filter-out "/(${names:1})\.(test|mlir)")
if [ $compiler = ON ]; then
  arguments+=(--param tools="$runtime/bin")
  # The libraries of LLVM and MLIR are not instrumented: they do not mark what part of a vector's memory, or of an
  # allocator's, is in use. Debian builds them for releases, in which passes have no statistics. The compiler's own code
  # has them in this build, but the libraries do not initialize them: they keep the byte that memory is filled with, and
  # 1 means that they have been registered already.
  ASAN_OPTIONS+=:detect_container_overflow=0:allow_user_poisoning=0:malloc_fill_byte=1
fi
LIT="$(command -v lit-22 || command -v lit)"
export XFC_TURNS=all
exec "$LIT" "${arguments[@]}" "$build/tests/lit"
