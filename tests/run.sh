#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test: GoogleTest and lit through ctest.
set -euo pipefail
cd "$(dirname "$0")/.."

# Installs the libraries that some tests compare with, such as numpy, sacreBLEU, PyTorch, transformers and CTranslate2; and, unless a CUDA
# toolkit has it, NVIDIA's assembler, which must accept the generated PTX.
venv=build/venv
prepare_python() {
  local packages=(numpy safetensors sacrebleu torch transformers tokenizers sentencepiece protobuf ctranslate2)
  command -v ptxas >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/ptxas" ] || packages+=('nvidia-cuda-nvcc>=13')
  [ -x $venv/bin/python ] || python3 -m venv $venv
  $venv/bin/python -m pip install --quiet --disable-pip-version-check "${packages[@]}"
}
mkdir -p build
if command -v python3 >/dev/null && python3 -c 'import ensurepip' 2>/dev/null; then
  prepare_python >build/python.log 2>&1 &
  python=$!
  .ci/setup.sh -DXFC_BUILD_TESTS=ON
  wait "$python" || { cat build/python.log >&2; exit 1; }
else
  .ci/setup.sh -DXFC_BUILD_TESTS=ON
  prepare_python
fi
export XFC_TEST_PYTHON="$PWD/$venv/bin/python"
export XFC_REQUIRE_MPI=1 # .ci/setup.sh has installed the launchers: without them, tests of several processes would be skipped unnoticed
mkdir -p build/tests/seconds
rm -f build/tests/seconds/*
status=0
ctest --test-dir build --output-on-failure -j "$(nproc)" --timeout 2400 --output-junit "$PWD/build/tests/seconds/ctest.xml" || status=$?
python3 tests/seconds.py build
exit $status
