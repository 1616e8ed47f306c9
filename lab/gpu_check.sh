#!/usr/bin/env bash
# On a machine with a GPU, nvcc, torch and pytest, offline: builds the package from this source tree into a folder of
# its own, tests it there and measures. What the steps say and find is in $OUT (default: out/gpu).
#
#   lab/gpu_check.sh              PYTHON=python3.12 lab/gpu_check.sh
#   DEVICE=cpu lab/gpu_check.sh   the same steps without a GPU, on small sizes and the portable package
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} OUT=$(realpath -m "${OUT:-out/gpu}")
LIB=$(mktemp -d)
mkdir -p "$OUT"
failed=()
step() { # NAME COMMAND...
  local start=$SECONDS
  "${@:2}" 2>&1 | tee "$OUT/$1.log" || failed+=("$1")
  echo "==> $1: $((SECONDS - start)) s"
}
if [ "$DEVICE" = cuda ]; then
  export CLAMPGRAD_CUDA=1 CLAMPGRAD_REQUIRE_COMPILED=1
  sizes=()
else
  export CLAMPGRAD_PORTABLE=1
  sizes=(--elements 4096 --seconds 0.1)
fi
# As README says, but what is installed on this machine stays as it is.
step build "$PYTHON" -m pip install --no-build-isolation --no-deps --no-index --target "$LIB" .
export PYTHONPATH=$LIB
step info "$PYTHON" -m clampgrad info
# What is about CUDA first, then the figures; the tests of the CPU can be interrupted.
step tests-cuda "$PYTHON" -m pytest -q -rs test/kernels/test_cuda.py test/kernels/test_devices.py
step benchmark "$PYTHON" -m benchmarks.run --out "$OUT/$DEVICE.jsonl" --device "$DEVICE" "${sizes[@]}"
step tests-device "$PYTHON" -m pytest -q --device "$DEVICE" \
  test/*/test_{gate,tensors,table,nan,forward,rounding,precision,in_place,gradcheck}.py
[ ${#failed[@]} = 0 ] || { printf '==> failed: %s\n' "${failed[@]}"; exit 1; }
