#!/usr/bin/env bash
# The two commands of README.md on a minimal Debian, from nothing: records/from-nothing-SUITE.jsonl has their times.
#     lab/distro.sh SUITE        forky, trixie, bookworm, ...; needs mmdebstrap, and no root where there is uidmap
# It has a compiler, make, git and Python, and nothing else: no ninja, no cmake, locale C. It takes some 12 GB in TMPDIR.
set -euo pipefail
suite=${1:?Name a suite, as in lab/distro.sh trixie}
command -v mmdebstrap > /dev/null || { echo "No mmdebstrap: apt install mmdebstrap uidmap"; exit 1; }
mkdir -p build
git bundle create --quiet build/distro.bundle HEAD
# How this machine reaches the network, and pip its index.
copied=()
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  [[ ! -e $file ]] || copied+=(--customize-hook="copy-in $file ${file%/*}")
done
# The mirror may be a snapshot. The hooks run in mmdebstrap's own namespaces, and the system goes when they have ended.
mmdebstrap --variant=minbase --include=python3,python3-venv,python3-dev,g++,make,git,ca-certificates \
  --aptopt='Acquire::Check-Valid-Until "false"' "${copied[@]}" --customize-hook="copy-in build/distro.bundle /root" \
  --customize-hook='chroot "$1" env -i HOME=/root PATH=/usr/local/bin:/usr/bin:/bin PIP_DEFAULT_TIMEOUT=180 MAX_JOBS='"${MAX_JOBS:-}"' \
    bash -c "cd && git -c advice.detachedHead=false clone --quiet distro.bundle clampgrad && cd clampgrad && python3 -m lab.from_nothing from-nothing-'"$suite"'"' \
  --customize-hook="copy-out /root/clampgrad/records/from-nothing-$suite.jsonl ${RECORDS:-records}" "$suite" /dev/null
echo "==> python -m lab.fill_tables puts it into docs/support.md"
