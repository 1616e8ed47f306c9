#!/usr/bin/env bash
# The files that the patches touch, out of Debian's source package of PyTorch in trixie (2.6.0), as Debian patches it,
# into a folder:
#     lab/debian_source.sh FOLDER
# Needs apt-get, dpkg-dev and a network; changes nothing of the system's package lists. Exit code 3: not to be had.
set -euo pipefail

to=$(mkdir -p "$1" && cd "$1" && pwd)
[ -f "$to/version.txt" ] && exit
command -v apt-get dpkg-source > /dev/null || { echo "no apt-get or dpkg-source"; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/parts"
# The archive that the system has its packages from, asked for source packages.
archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2> /dev/null | grep -om1 'https\?://[^ ]*/debian/\?\( \|$\)' || true)
[ -n "$archive" ] || { echo "no archive of Debian in the system's sources"; exit 3; }
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$keys] ${archive% } trixie main" > "$work/parts/trixie.list"
options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/parts"
         -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work")
cd "$work"
apt-get "${options[@]}" -qq update 2> log && apt-get "${options[@]}" -qq source --download-only pytorch 2>> log ||
  { tail -n 3 log; exit 3; }
dpkg-source --no-check -x pytorch_*.dsc source > log
cd source
cp --parents version.txt tools/autograd/derivatives.yaml torch/csrc/autograd/FunctionsManual.cpp "$to"
