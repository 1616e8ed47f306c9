#!/usr/bin/env bash
# Runs a command, and shows the steps of pip and of the build as they happen; if it fails, its errors. The log has all.
#     buildtools/logged.sh LOG COMMAND...
set -uo pipefail
log=$1
shift
"$@" 2>&1 | tee "$log" | sed -u -nE 's/^ *((Downloading|Processing|Installing collected|clampgrad:).{0,80}).*/    \1/p
  s:.*(\[[0-9]+/[0-9]+\]) .*/([^/ ]+\.(cpp|cu))( .*|\.o)$:    \1 \2:p' || {
  grep -iE -B 2 -A 2 'error: ' "$log" | head -n 40 || tail -n 40 "$log"
  echo "==> failed; the whole log is in $log"
  exit 1
}
