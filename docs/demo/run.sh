#!/usr/bin/env bash
# Goes from a clone of the repository to a translator trained on real data: builds xfc, and has `xfc demo` do the rest.
# MINUTES sets how long it trains (default 5), and OUT where its files go (default build/demo). What is there already is used again.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/demo}

echo "Install what is missing and build xfc: about 20 minutes on 2 slow cores, unless it is built already"
.ci/setup.sh -DXFC_BUILD_TESTS=OFF

echo "Make English-French pairs from Debian's own translations: about a minute"
mkdir -p "$out"
[ -e "$out/test.fr" ] || python3 docs/demo/pairs.py "$out"

exec build/bin/xfc demo --data "$out" --out "$out" --minutes "${MINUTES:-5}"
