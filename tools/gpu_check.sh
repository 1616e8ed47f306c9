#!/usr/bin/env bash
# On a machine with a GPU, offline: builds from this source tree, runs the tests there and measures.
# JSON, tables and the log go to $OUT (default: benchmarks/results). At most 9 minutes.
#
#   tools/gpu_check.sh              PYTHON=python3.12 tools/gpu_check.sh
#   tools/gpu_check.sh --dry-run    the same steps without a GPU, on small sizes: tries the script
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DRY_RUN=no
[ "${1:-}" = --dry-run ] && DRY_RUN=yes
PYTHON=${PYTHON:-python3}
OUT=$(mkdir -p "${OUT:-benchmarks/results}" && cd "${OUT:-benchmarks/results}" && pwd)
LIMIT=540
WORK=${WORK:-$(mktemp -d)}
exec > >(tee "$OUT/gpu_check.log") 2>&1

failed=()
left() { echo $((LIMIT - SECONDS)); }
# step NAME SECONDS COMMAND...: what fails is remembered, and the next step is tried.
step() {
  local name=$1 limit=$2 start=$SECONDS
  shift 2
  echo "==> $name (at most $limit s)"
  timeout --kill-after=5 "$limit" "$@" || failed+=("$name")
  echo "==> $name took $((SECONDS - start)) s"
}
has() { "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)"; }

command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
"$PYTHON" - << 'END' || exit 1
import platform, torch
print("python", platform.python_version(), "torch", torch.__version__, "CUDA", torch.version.cuda)
print("GPU:", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
END

if [ $DRY_RUN = no ]; then
  "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
    { echo "There is no GPU that torch can use; --dry-run tries the steps without one."; exit 1; }
  export CLAMPGRAD_CUDA=1
  # For the GPU that is here; CUDA needs minutes for the others.
  TORCH_CUDA_ARCH_LIST=$("$PYTHON" -c 'import torch; print("%d.%d" % torch.cuda.get_device_capability())')
  export TORCH_CUDA_ARCH_LIST
  DEVICE=(--device cuda)
  BENCH=(--device cuda)
else
  DEVICE=(--device cpu -k "half or maximum")
  BENCH=(--device cpu --elements 4096 65536 --rounds 3)
fi

export MAX_JOBS=${MAX_JOBS:-$(nproc)}
step build 300 "$PYTHON" setup.py -q build_ext --build-lib "$WORK/lib" --build-temp "$WORK/temp"
[ ${#failed[@]} = 0 ] || { echo "==> failed: build"; exit 1; }
cp -r python/clampgrad "$WORK/lib/"
export PYTHONPATH=$WORK/lib PYTHONUNBUFFERED=1

# What is about CUDA first, then the figures; the tests of the CPU take the time that is left.
if has pytest; then
  step "tests of CUDA" 200 "$PYTHON" -m pytest -q -rs -p no:cacheprovider \
    --junitxml="$OUT/tests-cuda.xml" test/test_cuda.py test/test_devices.py
else
  echo "==> there is no pytest: the benchmark's own check of gradients is all that is tested"
fi
step benchmark $(($(left) > 120 ? 120 : $(left))) "$PYTHON" benchmarks/gpu.py --out "$OUT" "${BENCH[@]}"
if has pytest; then
  files=(test/test_{gate,tensors,table,nan,forward,rounding,precision,inplace_after,gradcheck}.py)
  has hypothesis && files+=(test/test_hypothesis.py)
  workers=()
  has xdist && workers=(-n "$((MAX_JOBS < 8 ? MAX_JOBS : 8))")
  step "tests of the CPU, on the GPU" "$(left)" "$PYTHON" -m pytest -q -p no:cacheprovider \
    --junitxml="$OUT/tests-device.xml" "${workers[@]}" "${DEVICE[@]}" "${files[@]}"
fi

echo "==> $SECONDS s; results in $OUT"
[ ${#failed[@]} = 0 ] || { printf '==> failed: %s\n' "${failed[@]}"; exit 1; }
