#!/usr/bin/env bash
# Runs a command in every nth commit only: checks that build much once more take turns, since together they would take as long as all
# other tests.
#   turn.sh NUMBER/COUNT COMMAND...
# It runs if the number of commits modulo COUNT is NUMBER, if there is no history, or with XFC_TURNS=all. Otherwise the exit status is
# 77, which ctest shows as skipped.
set -euo pipefail
number="${1%/*}" count="${1#*/}"
shift
commits="$(git -C "$(dirname "${BASH_SOURCE[0]}")" rev-list --count HEAD 2>/dev/null || true)"
if [ -n "$commits" ] && [ $((commits % count)) != "$number" ] && [ "${XFC_TURNS:-}" != all ]; then
  echo "skipped: its turn is every commit whose number modulo $count is $number, and this is number $commits; XFC_TURNS=all runs it"
  exit 77
fi
exec "$@"
