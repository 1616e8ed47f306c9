#!/usr/bin/env bash
# How long README's two commands take in a fresh clone of HEAD, with nothing that pip has kept from before:
#     lab/from_nothing.sh          here, into records/from-nothing.jsonl: leave the machine alone meanwhile
#     lab/from_nothing.sh trixie   on a minimal Debian (forky, bookworm, ...), with a compiler, make, git and Python alone,
#                                  in locale C; needs mmdebstrap, 12 GB in TMPDIR, and no root where there is uidmap
# What is installed before anything is compiled is timed by itself, because it depends on the network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
commands='
set -eu
git -c advice.detachedHead=false clone --quiet "$1" clampgrad
cd clampgrad
export PIP_NO_CACHE_DIR=1
torch=$(make -s print-VENV)/torch
for target in "$torch" demo test; do
  start=$(date +%s)
  make "$target"
  echo "{\"what\":\"${target/$torch/installing torch}\",\"seconds\":$(($(date +%s) - start))}" | tee -a ../times
done'

if [[ -z ${1:-} ]]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  bash -c "$commands" - "$root"
  cd clampgrad
  "$(make -s print-VENV)/bin/python" - "$root/records/from-nothing.jsonl" <<< '
import json, sys, records
rows = [*map(json.loads, open("../times"))]
records.write(sys.argv[1], rows, **records.here())'
  exit
fi
command -v mmdebstrap > /dev/null || { echo "No mmdebstrap: apt install mmdebstrap uidmap"; exit 1; }
mkdir -p build
git bundle create --quiet build/distro.bundle HEAD
echo "$commands" > build/from_nothing
# How this machine reaches the network, and pip its index.
copied=()
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  [[ ! -e $file ]] || copied+=(--customize-hook="copy-in $file ${file%/*}")
done
# The mirror may be a snapshot. The hooks run in mmdebstrap's own namespaces, and the system goes when they have ended.
mmdebstrap --variant=minbase --include=python3,python3-venv,python3-dev,g++,make,git,ca-certificates \
  --aptopt='Acquire::Check-Valid-Until "false"' "${copied[@]}" --customize-hook="copy-in build/distro.bundle build/from_nothing /root" \
  --customize-hook='chroot "$1" env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin PIP_DEFAULT_TIMEOUT=180 MAX_JOBS='"${MAX_JOBS:-}"' \
    bash -c "cd && bash from_nothing distro.bundle"' "$1" /dev/null
