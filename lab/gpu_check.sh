#!/usr/bin/env bash
# What there is to know on a machine with a GPU, in one call of at most eight minutes on 16 cores, offline. It needs torch,
# a C++ compiler, an nvcc (a toolkit's, or pip's: docs/install.md), pytest and pytest-xdist; for models also timm and
# transformers. It builds the package from this source tree into a folder of its own, tests it there and measures, what
# tells most first. A step that takes too long is ended, and what it had found by then is kept.
#
#   lab/gpu_check.sh              PYTHON=python3.12 lab/gpu_check.sh
#   lab/gpu_check.sh STEP...      these steps alone; only so run `t5`, whether a pin makes a model slower, and `ends`, which
#                                 takes five minutes
#   WHEEL=... lab/gpu_check.sh    with a wheel that it has built before (build/gpu), or the two of a release
#   SECONDS_IN_ALL=900 lab/gpu_check.sh
#   DEVICE=cpu lab/gpu_check.sh   a rehearsal without a GPU: the same steps on small sizes and the portable package
#
# In out/gpu: a log of each step, summary.txt, and records (*.jsonl; move them to records/).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3} DEVICE=${DEVICE:-cuda} OUT=${OUT:-out/gpu}
# A rehearsal may share two cores with others.
times=1 && [[ $DEVICE == cuda ]] || times=6
SECONDS_IN_ALL=${SECONDS_IN_ALL:-$((450 * times))}
STEPS=("${@:-all}")
mkdir -p "$OUT"
rm -f "$OUT"/*.log
# What is installed on this machine stays as it is.
PYTHONPATH=$(mktemp -d)
export PYTHONPATH
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
failed=0 summary=()

# step NAME LIMIT COMMAND...: the command, for at most LIMIT seconds and not beyond the end.
step() {
  local name=$1 limit=$2 start=$SECONDS code how
  shift 2
  [[ " ${STEPS[*]} " == *" $name "* || " build install info " == *" $name "* || ${STEPS[0]} == all && $name != t5 && $name != ends ]] || return 0
  ((limit *= times, limit = limit < SECONDS_IN_ALL - SECONDS ? limit : SECONDS_IN_ALL - SECONDS))
  if ((limit < 5)); then
    summary+=("$name: left out, no time was left")
    failed=1
    return 1
  fi
  # pytest ends by an interrupt as it does otherwise, and says what it has found.
  timeout -s INT -k 15 "$limit" "$@" > "$OUT/$name.log" 2>&1
  code=$?
  case $code in
    0) how=passed ;;
    124 | 137) how="cut off" ;;
    *) how="failed ($code)" ;;
  esac
  ((code)) && failed=1
  summary+=("$name: $how after $((SECONDS - start)) s: $(grep -v '^ *$' "$OUT/$name.log" | tail -n 1 | cut -c 1-150)")
  echo "==> ${summary[-1]}"
  return $code
}
# The tests of these files and folders.
tests() {
  step "$1" "$2" "$PYTHON" -m pytest -q -rfE -n "$(nproc)" --dist worksteal -p no:benchmark --tb=short --device "$DEVICE" \
    "${@:3}"
}
at_the_end() {
  printf '%s\n' "on ${gpu:-a machine without a GPU}, after $SECONDS s:" "${summary[@]}" | tee "$OUT/summary.txt"
}
trap at_the_end EXIT

if [[ $DEVICE == cuda ]]; then
  export CLAMPGRAD_CUDA=1 CLAMPGRAD_REQUIRE_COMPILED=1
  kernels=(test/kernels) pins=(test/pin test/compile) matrix=(test/matrix) others=(test/{table,transforms,tools})
  sizes=(--seconds 1)
else
  export CLAMPGRAD_PORTABLE=1
  kernels=(test/kernels/test_{devices,layouts}.py) pins=(test/pin/test_pin{,_calls}.py)
  matrix=(test/matrix/test_refused.py) others=(test/table/test_{seeds,nan}.py)
  sizes=(--elements 4096 --seconds 0.1)
fi
# A compiler whose libraries may live beside libtorch: a build finds that out at its end.
read -r release torch < <("$PYTHON" -c 'import torch; print(torch.__version__.split("+")[0], torch.__path__[0] + "/lib")')
for compiler in "${CXX:-c++}" /usr/bin/g++ clang++; do
  trial=$(mktemp --suffix=.so)
  code='#include <stdexcept>
    int f(int n) { try { return n ? throw std::runtime_error("") : n; } catch (const std::logic_error&) { return 1; } }'
  if $compiler -x c++ -shared -fPIC - -o "$trial" <<< "$code" && CXX=$compiler "$PYTHON" -m buildtools.linked "$trial" "$torch"; then
    [[ $compiler == "${CXX:-c++}" ]] || unset CC # which is of the one that will not do
    export CXX=$compiler
    break
  fi
done
# What the names of records end in: cuda-2.11.0-nvidia-h200.
here=$DEVICE-$release${gpu:+-$(tr 'A-Z ' 'a-z-' <<< "$gpu")}
if [[ -z ${WHEEL:-} ]]; then
  rm -f build/gpu/*.whl
  step build 200 env MAX_JOBS="${MAX_JOBS:-$(nproc)}" "$PYTHON" -m pip wheel -v --no-build-isolation --no-deps --no-index -w build/gpu . || exit 1
  WHEEL=$(echo build/gpu/*.whl)
fi
read -ra wheels <<< "$WHEEL"
step install 60 "$PYTHON" -m pip install -q --no-deps --no-index --target "$PYTHONPATH" "${wheels[@]}" || exit 1
step info 60 "$PYTHON" -m clampgrad info || exit 1
cat "$OUT/info.log"
if [[ $DEVICE == cuda ]] && ! grep -q '^cuda kernels *yes' "$OUT/info.log"; then
  summary+=("what was installed has no CUDA kernels for this torch")
  exit 1
fi

tests kernels 90 "${kernels[@]}"
tests pins 90 "${pins[@]}"
tests matrix 60 "${matrix[@]}"
step benchmark 90 "$PYTHON" -m benchmarks.run --out "$OUT/$here.jsonl" --device "$DEVICE" "${sizes[@]}"
step broadcast 45 "$PYTHON" -m benchmarks.broadcast --out "$OUT/broadcast-$here.jsonl" --device "$DEVICE" --seconds 0.2
step models 150 "$PYTHON" -m lab.real_models --out "$OUT/real-models-$here.jsonl" --device "$DEVICE" --rounds 1
step compiled 90 "$PYTHON" -m lab.real_models --out "$OUT/compiled-models-$here.jsonl" --device "$DEVICE" --rounds 1 --compiled
tests others 90 "${others[@]}"
step t5 300 "$PYTHON" -m lab.real_models --out "$OUT/t5-$here.jsonl" --device "$DEVICE" --rounds 5 --models T5
# It stops by itself in time for what it has started.
((left = SECONDS_IN_ALL - SECONDS - 60))
step ends 400 "$PYTHON" -m lab.ends --out "$OUT/ends-$here.jsonl" --device "$DEVICE" --seconds $((left < 340 ? left : 340))
exit $failed
