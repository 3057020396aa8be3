#!/usr/bin/env bash
# Runs a command unless it has succeeded before and nothing has changed since of what it depends on.
#   unchanged.sh RECORD PATH... -- COMMAND...
# RECORD is a file that keeps a hash of all files in the PATHs of the source tree, of the command and of the compiler's version. The exit
# status is 77, which ctest shows as skipped, if the hash is that of a success. XFC_UNCHANGED=run runs the command in any case.
set -euo pipefail
record="$1" paths=()
shift
while [ "$1" != -- ]; do paths+=("$1"); shift; done
shift
hash="$({
  printf '%s\n' "$@"
  clang++-22 --version 2>/dev/null || true
  find "${paths[@]}" -type f -print0 | sort -z | xargs -0 sha256sum
} | sha256sum | cut -d' ' -f1)"
if [ "${XFC_UNCHANGED:-}" != run ] && [ -e "$record" ] && [ "$(head -1 "$record")" = "$hash" ]; then
  echo "skipped: nothing that this depends on has changed since it passed on $(sed -n 2p "$record"); XFC_UNCHANGED=run runs it"
  exit 77
fi
rm -f "$record"
"$@" || exit
printf '%s\n%s\n' "$hash" "$(date -u +%FT%TZ)" >"$record.new"
mv "$record.new" "$record"
