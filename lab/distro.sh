#!/usr/bin/env bash
# The two commands of README.md on a minimal Debian, from nothing: records/from-nothing-SUITE.jsonl has their times.
#     lab/distro.sh SUITE        forky, trixie, bookworm, ...; root's, for debootstrap and chroot
# It has a compiler, make, git and Python, and nothing else: no ninja, no cmake, locale C. KEEP=1 keeps its folder.
set -euo pipefail
suite=${1:?Name a suite, as in lab/distro.sh trixie} root=$PWD/build/distro-$1
if [[ $(id -u) != 0 ]]; then echo "debootstrap and chroot need root: sudo lab/distro.sh $suite"; exit 1; fi
command -v debootstrap > /dev/null || { echo "No debootstrap: apt install debootstrap"; exit 1; }
mkdir -p build && rm -rf "$root"
[[ ${KEEP:-} ]] || trap 'rm -rf "$root"' EXIT
# A debootstrap that is older than the suite makes it like any other.
script=/usr/share/debootstrap/scripts/$suite
[[ -e $script ]] || script=${script%/*}/sid
debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,g++,make,git,ca-certificates \
  "$suite" "$root" "" "$script" > "$root.log" || { tail "$root.log"; exit 1; }
git clone --quiet . "$root/root/clampgrad"
# How this machine reaches the network, and pip its index.
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
  [[ ! -e $file ]] || cp -L "$file" "$root$file"
done
# Mounts of its own go when it ends, before the folder is removed.
unshare --mount bash -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" env -i \
  HOME=/root PATH=/usr/local/bin:/usr/bin:/bin PIP_DEFAULT_TIMEOUT=180 MAX_JOBS=$1 \
  bash -c "cd ~/clampgrad && python3 -m lab.from_nothing from-nothing-$2"' "$root" "${MAX_JOBS:-}" "$suite"
cp "$root/root/clampgrad/records/from-nothing-$suite.jsonl" records/
echo "==> python -m lab.fill_tables puts it into docs/support.md"
