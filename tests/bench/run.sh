#!/usr/bin/env bash
# Benchmarks xfc beside other libraries: builds xfc and makes the Python environment if they are missing, then runs bench.py.
# XFC_BENCH_VENV chooses another folder for the environment.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${XFC_BENCH_VENV:-$root/build/venv}

[ -x "$root/build/bin/xfc" ] || "$root/.ci/setup.sh"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$root/tests/bench/requirements.txt"
exec "$venv/bin/python" "$root/tests/bench/bench.py" "$@"
