#!/usr/bin/env bash
# Builds PyTorch from a checkout, before and after each series of patches, and proves what changed:
#
#     tools/build_pytorch.sh CHECKOUT SERIES [SERIES ...] [--minimal]
#     tools/build_pytorch.sh pytorch v2.13.0/strict v2.13.0/joint --minimal
#
# Run it in the environment that PyTorch is to be installed in; what that needs is one line:
#
#     pip install -r CHECKOUT/requirements.txt expecttest hypothesis 'setuptools>=77'
#
# `--help` lists the options. docs/upstream/build.md explains the steps.
set -euo pipefail
python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  { echo "Python 3.10 or later is needed: name one with PYTHON=..." >&2; exit 2; }
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/source_build" "$@"
