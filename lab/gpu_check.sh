#!/usr/bin/env bash
# On a machine with a GPU, nvcc, torch, pytest and pytest-xdist, offline: builds the package from this source tree into
# a folder of its own, tests it there and measures. The wheel, what ran and the figures are in out/gpu.
#
#   lab/gpu_check.sh              PYTHON=python3.12 lab/gpu_check.sh
#   WHEEL=... lab/gpu_check.sh    with a wheel that it has built before
#   DEVICE=cpu lab/gpu_check.sh   the same steps without a GPU, on small sizes and the portable package
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} OUT=${OUT:-out/gpu}
sizes=()
if [ "$DEVICE" = cuda ]; then
  export CLAMPGRAD_CUDA=1 CLAMPGRAD_REQUIRE_COMPILED=1
else
  export CLAMPGRAD_PORTABLE=1
  sizes=(--elements 4096 --seconds 0.1)
fi
# As README says, but what is installed on this machine stays as it is.
PYTHONPATH=$(mktemp -d)
export PYTHONPATH
failed=0
step() {
  local start=$SECONDS
  "$PYTHON" -m "$@" || failed=1
  echo "==> $((SECONDS - start)) s: ${*:1:3}"
}
if [ -z "${WHEEL:-}" ]; then
  rm -f "$OUT"/*.whl
  step pip wheel -q --no-build-isolation --no-deps --no-index -w "$OUT" .
  WHEEL=$(echo "$OUT"/*.whl)
fi
step pip install -q --no-deps --no-index --target "$PYTHONPATH" "$WHEEL"
step clampgrad info
# What is about CUDA first, then the figures; the tests of the CPU can be interrupted.
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
tests() {
  step pytest -q -rs -n 8 -p no:benchmark --tb=short --maxfail=40 --unlike="$gpu" --record="$OUT/support.json" "$@"
}
tests test/kernels/test_{cuda,devices}.py
step benchmarks.run --out "$OUT/$DEVICE.jsonl" --device "$DEVICE" "${sizes[@]}"
tests --device "$DEVICE" test/*/test_{gate,tensors,table,nan,forward,rounding,precision,in_place,gradcheck}.py
exit $failed
