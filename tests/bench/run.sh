#!/usr/bin/env bash
# Runs the benchmarks beside the peers: makes the Python environment and builds xfc where they are missing, then bench.py.
# XFC_BENCH_VENV: another place for the environment.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${XFC_BENCH_VENV:-$root/build/venv}

[ -x "$root/build/bin/xfc" ] || "$root/.ci/setup.sh"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$root/tests/bench/requirements.txt"
exec "$venv/bin/python" "$root/tests/bench/bench.py" "$@"
