#!/usr/bin/env bash
# On a machine with a GPU, nvcc, torch and pytest, offline: builds the package from this source tree into a folder of
# its own, tests it there and measures. What the benchmark finds is in out/gpu.
#
#   lab/gpu_check.sh              PYTHON=python3.12 lab/gpu_check.sh
#   DEVICE=cpu lab/gpu_check.sh   the same steps without a GPU, on small sizes and the portable package
set -uxo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda}
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
step() { "$PYTHON" -m "$@" || failed=1; }
step pip install --no-build-isolation --no-deps --no-index --target "$PYTHONPATH" .
step clampgrad info
# What is about CUDA first, then the figures; the tests of the CPU can be interrupted.
step pytest -q -rs test/kernels/test_cuda.py test/kernels/test_devices.py
step benchmarks.run --out "out/gpu/$DEVICE.jsonl" --device "$DEVICE" "${sizes[@]}"
step pytest -q --device "$DEVICE" test/*/test_{gate,tensors,table,nan,forward,rounding,precision,in_place,gradcheck}.py
exit $failed
