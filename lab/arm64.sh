#!/usr/bin/env bash
# An environment for arm64 on another Debian: its python is emulated, the compiler it calls is a cross compiler.
#     lab/arm64.sh FOLDER TORCH
# FOLDER/bin/python then builds, installs and tests as that of any other environment (nox -s arm64).
# Needs g++-aarch64-linux-gnu, qemu-user-static and mmdebstrap, but not root.
set -euo pipefail
mkdir -p "$1/bin"
to=$(cd "$1" && pwd) root=$(cd "$1/.." && pwd)/arm64 torch=$2
source /etc/os-release

if [ ! -e "$root/complete" ]; then
  echo "    Python for arm64"
  rm -rf "$root"
  mmdebstrap --quiet --variant=extract --architectures=arm64 --aptopt='Acquire::Check-Valid-Until "false"' \
    --include=python3,libpython3-dev,libgomp1,libstdc++6 "$VERSION_CODENAME" "$root"
  # What the headers of Python include by their architecture; all others are those of the cross compiler.
  mkdir -p "$root/include"
  ln -s ../usr/include/aarch64-linux-gnu "$root/include"
  # What programs read about the machine; the emulator would show them this one.
  machine=$root/sys/devices/system/cpu/cpu0/regs/identification
  mkdir -p "$root/proc" "$machine"
  for core in 0 1; do
    printf '%s\t: %s\n' processor $core Features 'fp asimd aes sha1 sha2 crc32 atomics fphp asimdhp asimddp' \
      'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x3 'CPU part' 0xd0c 'CPU revision' 1
    echo
  done > "$root/proc/cpuinfo"
  echo 0x413fd0c1 > "$machine/midr_el1"
  touch "$root/complete"
fi

python=$(readlink "$root/usr/bin/python3")
packed=$to/lib/$python/site-packages
wheels() { # for arm64, by the pip of this machine: an emulated one would take minutes
  python3 -m pip install -q --upgrade --target "$packed" --only-binary=:all: --python-version "${python#python}" \
    --platform={manylinux2014,manylinux_2_{17,27,28}}_aarch64 "$@"
}
echo "    torch $torch for arm64 (the download is large)"
# torch requires all libraries of CUDA, gigabytes. It calls one of them when it is loaded; the others
# only have to be there.
wheels --no-deps "torch==$torch" 'nvidia-cuda-runtime<14'
wheels numpy 'setuptools>=77' wheel pyyaml pip filelock 'typing-extensions>=4.10' 'sympy>=1.13.3' networkx \
  jinja2 fsspec expecttest hypothesis 'pytest>=7.3'

# The emulator (7.2) may hang in a fork that comes right after the end of a thread, as in our build: there a pool of threads
# ends, and the next process is begun. So each begins a little later.
cat > "$packed/emulated.py" <<SCRIPT
import subprocess
import time

begin = subprocess.Popen._execute_child


def begin_later(*arguments):
    time.sleep(0.5)
    return begin(*arguments)


subprocess.Popen._execute_child = begin_later
SCRIPT
echo "import emulated" > "$packed/emulated.pth"

# Their names and symbols, with versions, in one library.
if [ -f "$packed/torch/lib/libtorch_cuda.so" ]; then
  cd "$packed/torch/lib"
  aarch64-linux-gnu-nm -D --undefined-only ./*.so | awk '{ print $2 }' |
    grep -E '^(cu[a-z]*[A-Z]|nccl|nvrtc|nvshmem)' | grep -v '@libcudart' | sort -u > absent
  sed -E 's/@.*//; s/.*/int &(void) { return 1; }/' absent > absent.c
  awk -F@ 'NF > 1 { of[$NF] = of[$NF] " " $1 ";" }
    END { for (version in of) print version " { global:" of[version] " };" }' absent > absent.map
  aarch64-linux-gnu-gcc -shared -fPIC -w -fno-builtin absent.c -Wl,--version-script=absent.map -o libabsent.so
  aarch64-linux-gnu-readelf -d ./*.so | grep -oE '\[lib(cu|nccl|nvrtc|nvshmem)[^]]*' | tr -d '[' |
    grep -v '^libcudart' | sort -u | while read -r name; do ln -sf libabsent.so "$name"; done
fi

# For the build, the compiler; ninja is of this machine, since it is not emulated.
python3 -m pip install -q --target "$to/ninja" --upgrade ninja
echo "home = $root/usr/bin" > "$to/pyvenv.cfg"
cat > "$to/bin/python" <<SCRIPT
#!/bin/sh
export PATH=$to/ninja/bin:\$PATH CXX=aarch64-linux-gnu-g++ CPLUS_INCLUDE_PATH=$root/include:$root/usr/include/$python
exec qemu-aarch64-static -cpu neoverse-n1 -L $root -0 "\$0" $root/usr/bin/$python "\$@"
SCRIPT
chmod +x "$to/bin/python"
