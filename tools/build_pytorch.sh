#!/usr/bin/env bash
# Builds PyTorch from a checkout, before and after a series, and shows what changed:
#
#     tools/build_pytorch.sh CHECKOUT SERIES [--any-release]
#     tools/build_pytorch.sh pytorch v2.13.0/strict
#
# check, build, test, apply, build again (only what changed is compiled), test again, compare. Run it
# in the environment that PyTorch is to be installed in, with `pip install -r requirements.txt` done;
# clampgrad is installed there, or where the Python is that CLAMPGRAD_PYTHON names. Interrupted, it goes on
# where it stopped: a step that is done leaves a file in CHECKOUT/build/clampgrad, with its log and its time.
# Variables such as USE_CUDA and MAX_JOBS count as in PyTorch's own build; the defaults are the least that the
# tests of autograd need.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,12s/^# \?//p' "$0"; exit 2; }

checkout=$(cd "$1" && pwd) series=$2
shift 2
out=$checkout/build/clampgrad
tag=${series##*/}
# clampgrad's own torch must not be the one that is built: any with the same release will do, or none.
patches="${CLAMPGRAD_PYTHON:-python} -m clampgrad.patches"
for flag in CUDA ROCM DISTRIBUTED MKLDNN FBGEMM XNNPACK NNPACK QNNPACK PYTORCH_QNNPACK KINETO; do
  export "USE_$flag=$(eval "echo \${USE_$flag:-0}")"
done
export BUILD_TEST=${BUILD_TEST:-0} MAX_JOBS=${MAX_JOBS:-$(nproc)}
mkdir -p "$out"
cd "$checkout"

# A step of the name $1, unless it is done: the rest is its command, with output in a log.
step() {
  local name=$1 start=$SECONDS
  shift
  if [ -e "$out/$name.seconds" ]; then
    echo "==> $name: done before, in $(cat "$out/$name.seconds") s"
    return
  fi
  echo "==> $name (log: build/clampgrad/$name.log)"
  "$@" 2>&1 | tee "$out/$name.log" | progress || { tail -n 20 "$out/$name.log"; echo "==> $name failed"; exit 1; }
  echo $((SECONDS - start)) > "$out/$name.seconds"
}

# Of a compiler's output one line a minute.
progress() {
  awk '/^\[[0-9]+\/[0-9]+\]/ { if (systime() - last > 60) { last = systime(); print "    " $1; fflush() } }'
}

build() {
  if [ -f pyproject.toml ] && grep -q build-backend pyproject.toml; then
    python -m pip install -e . -v --no-build-isolation
  else
    python setup.py develop
  fi
}

# A line for each test, and the gradient at a bound. A test that fails is a result, not a failed step.
tests() {
  cd "$checkout/test"
  python -c "import torch; x = torch.zeros(1, requires_grad=True); x.clamp(0, 1).backward(); print('gradient of clamp at a bound ...', x.grad.item())" || return
  python test_binary_ufuncs.py -v -k subgradient -k forward_ad_is_transpose || true
  for file in test_ops_gradients.py test_ops_fwd_gradients.py; do
    python $file -v -k clamp -k maximum -k minimum -k fmax -k fmin || true
  done
  python test_autograd.py -v || true
  python test_jit.py -v -k clamp -k autodiff -k symbolic || true
}

results() {
  grep -E ' \.\.\. ' "$out/$1.log" | sort
}

step check $patches apply "$checkout" --series "$series" --check "$@"
step build build
step tests-before tests
step apply $patches apply "$checkout" --series "$series" "$@"
export PYTORCH_BUILD_VERSION PYTORCH_BUILD_NUMBER=1
PYTORCH_BUILD_VERSION=$(sed 's/a0.*//' version.txt)+$tag
step build-again build
step tests-after tests

echo "==> what changed in the tests, - before and + after:"
{ diff <(results tests-before) <(results tests-after) || true; } | sed -n 's/^< /  - /p; s/^> /  + /p'
echo "==> $(python -c 'import torch; print("torch", torch.__version__)')"
echo "    build $(cat "$out/build.seconds") s; after the patch $(cat "$out/build-again.seconds") s," \
  "$(grep -cE '^\[[0-9]+/[0-9]+\] (Building|Generating)' "$out/build-again.log" || true) steps"
echo "    Delete caches of compiled code now (~/.cache/torch, TORCHINDUCTOR_CACHE_DIR): they hold old gradients."
