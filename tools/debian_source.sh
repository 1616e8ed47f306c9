#!/usr/bin/env bash
# The files that the patches touch, out of Debian's source package of PyTorch (1.13.1), into a folder:
#     tools/debian_source.sh FOLDER
# Needs apt-get and a network; changes nothing of the system's package lists. Exit code 3: not to be had.
set -euo pipefail

to=$(mkdir -p "$1" && cd "$1" && pwd)
[ -f "$to/version.txt" ] && exit
command -v apt-get > /dev/null || { echo "no apt-get"; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/parts"
# The system's own sources, asked for source packages instead of binary ones.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
  [ -f "$list" ] || continue
  sed -E 's/^Types: .*/Types: deb-src/; s/^deb /deb-src /' "$list" > "$work/parts/$(basename "$list")"
done
options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/parts"
         -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work")
cd "$work"
apt-get "${options[@]}" -qq update 2> log && apt-get "${options[@]}" -qq source --download-only --tar-only pytorch 2>> log ||
  { tail -n 3 log; exit 3; }
# By name: a folder for each, so that nothing else of the package is unpacked.
tar -xf pytorch_*.orig.tar.xz --no-same-owner --strip-components=1 -C "$to" --wildcards \
  '*/version.txt' '*/tools/autograd/derivatives.yaml' '*/torch/csrc/autograd/FunctionsManual.cpp' \
  '*/torch/csrc/jit/runtime/symbolic_script.cpp' '*/test/test_binary_ufuncs.py' \
  '*/docs/source/notes/autograd.rst'
