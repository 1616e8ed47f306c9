#!/usr/bin/env bash
# On a machine with a GPU, offline: installs the package from this source tree as a user would, runs the
# tests there and measures. JSON, tables and the log go to $OUT (default: out/gpu). At most 9
# minutes.
#
#   lab/gpu_check.sh              PYTHON=python3.12 lab/gpu_check.sh
#   lab/gpu_check.sh --dry-run    the same steps without a GPU, on small sizes: tries the script
#
# It needs torch, setuptools 77, pip, pyyaml and, to test, pytest; ninja makes the build quick. A dry run
# builds the portable package, in seconds, and with CLAMPGRAD_PORTABLE=0 the compiled one.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

DRY_RUN=no
[ "${1:-}" = --dry-run ] && DRY_RUN=yes
PYTHON=${PYTHON:-python3}
OUT=$(mkdir -p "${OUT:-out/gpu}" && cd "${OUT:-out/gpu}" && pwd)
LIMIT=540
WORK=${WORK:-$(mktemp -d)}
exec > >(tee "$OUT/gpu_check.log") 2>&1

failed=()
# step NAME SECONDS COMMAND...: remembers a failure and goes on with the next step. All steps together
# end in time.
step() {
  local name=$1 start=$SECONDS left=$((LIMIT - SECONDS))
  local limit=$(($2 < left ? $2 : left))
  shift 2
  if [ $limit -le 0 ]; then
    echo "==> $name: no time is left"
    failed+=("$name")
    return
  fi
  echo "==> $name (at most $limit s)"
  timeout --kill-after=5 "$limit" "$@" || failed+=("$name")
  echo "==> $name took $((SECONDS - start)) s"
}
end() {
  echo "==> $SECONDS s; results in $OUT"
  [ ${#failed[@]} = 0 ] || { printf '==> failed: %s\n' "${failed[@]}"; exit 1; }
  exit 0
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
  # For the GPU that is here, which the build finds by itself; CUDA needs minutes for the others.
  unset TORCH_CUDA_ARCH_LIST
  export CLAMPGRAD_CUDA=1 CLAMPGRAD_PORTABLE=0 CLAMPGRAD_REQUIRE_COMPILED=1
  kernels=True
  DEVICE=(--device cuda)
  BENCH=(--device cuda)
else
  export CLAMPGRAD_CUDA=0 CLAMPGRAD_PORTABLE=${CLAMPGRAD_PORTABLE:-1}
  unset CLAMPGRAD_REQUIRE_COMPILED
  kernels=False
  DEVICE=(--device cpu -k "half and 0")
  BENCH=(--device cpu --elements 4096 --rounds 2)
  export OMP_NUM_THREADS=1 # beside other work, threads wait for each other
fi

# As README says, but into a folder of its own: what is installed on this machine stays as it is.
export MAX_JOBS=${MAX_JOBS:-$(nproc)} PIP_DISABLE_PIP_VERSION_CHECK=1
step build 300 "$PYTHON" -m pip install --quiet --no-build-isolation --no-deps --no-index \
  --no-compile --target "$WORK/lib" .
[ ${#failed[@]} = 0 ] || end

# Every step finds the package there, and nowhere else.
export PYTHONPATH=$WORK/lib PYTHONUNBUFFERED=1
step import 60 "$PYTHON" - << END
import importlib.metadata, sys, clampgrad
from clampgrad import _tools, nn, patches
from clampgrad.cli.info import facts
here, info = clampgrad.__file__, facts()
print(*(f"{name}: {value}" for name, value in info.items()), sep="\n")
assert here.startswith("$WORK/lib/"), f"another clampgrad: {here}"
assert clampgrad.__version__ == importlib.metadata.version("clampgrad")
assert info["cuda_kernels"] is $kernels, "the kernels for CUDA are not there"
END
[ ${#failed[@]} = 0 ] || end

# First the tests of CUDA, then the figures; the tests of the CPU take the time that is left.
if has pytest; then
  step "tests of CUDA" 200 "$PYTHON" -m pytest -q -rs -p no:cacheprovider \
    --junitxml="$OUT/tests-cuda.xml" test/kernels/test_cuda.py test/kernels/test_devices.py
else
  echo "==> there is no pytest: nothing is tested"
fi
step benchmark 120 "$PYTHON" -m benchmarks.gpu --out "$OUT" "${BENCH[@]}"
if has pytest; then
  files=(test/*/test_{gate,tensors,table,nan,forward,rounding,precision,in_place,gradcheck,fuzz}.py)
  workers=()
  has xdist && workers=(-n "$((MAX_JOBS < 8 ? MAX_JOBS : 8))")
  step "tests of the CPU, on the GPU" $LIMIT "$PYTHON" -m pytest -q -p no:cacheprovider \
    -m "not slow and not jax and not build" \
    --junitxml="$OUT/tests-device.xml" "${workers[@]}" "${DEVICE[@]}" "${files[@]}"
fi
end
