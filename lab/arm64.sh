#!/usr/bin/env bash
# An environment for arm64 on another Linux: its python is emulated, the compiler it calls is a cross compiler.
#     lab/arm64.sh FOLDER TORCH
# FOLDER/bin/python then builds, installs and tests as that of any other environment (make check-arm64).
# All of it comes from Debian's packages and PyPI's wheels and is unpacked beside FOLDER; nothing is
# installed. Exit code 3: not available here.
set -euo pipefail

torch=$2
mkdir -p "$1/bin" "$(dirname "$1")/arm64"
to=$(cd "$1" && pwd)
base=$(cd "$to/../arm64" && pwd) # what every release of torch stands on
tools=$base/tools root=$base/root

# Packages of one architecture with all they depend on, whatever the system has installed.
packages() { # FOLDER ARCHITECTURE NAME...
  local apt=$base/apt folder=$1 architecture=$2
  rm -rf "$folder" "$apt"
  mkdir -p "$folder" "$apt/lists/partial" "$apt/archives/partial"
  touch "$apt/status"
  cat > "$apt/conf" <<CONF
Dir::State "$apt";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Debug::NoLocking "true";
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
CONF
  APT_CONFIG=$apt/conf apt-get -qq update &&
    APT_CONFIG=$apt/conf apt-get -qq install -y --download-only "${@:3}" > /dev/null ||
    { echo "Debian's packages for $architecture are not to be had"; exit 3; }
  for package in "$apt"/archives/*.deb; do
    case $architecture,${package##*/} in
      arm64,*) dpkg -x "$package" "$folder" ;;
      *,libc6*) ;; # the system's own; for arm64, that of $root
      *,qemu-user-static*) # one of its emulators
        dpkg --fsys-tarfile "$package" | tar -x -C "$folder" ./usr/bin/qemu-aarch64-static ;;
      *) dpkg -x "$package" "$folder" ;;
    esac
  done
  rm -rf "$apt"
}

script() { # FILE LINE...
  printf '#!/bin/sh\n' > "$1"
  printf '%s\n' "${@:2}" >> "$1"
  chmod +x "$1"
}

if [ ! -f "$base/complete" ]; then
  command -v apt-get > /dev/null || { echo "no apt-get: it takes Debian's packages"; exit 3; }
  echo "    a cross compiler, the emulator and Python for arm64"
  packages "$tools" "$(dpkg --print-architecture)" g++-aarch64-linux-gnu qemu-user-static
  packages "$root" arm64 python3 libpython3-dev libgomp1 libstdc++6
  mkdir -p "$base/bin"
  for name in gcc g++ nm objdump readelf; do
    sysroot=$([[ $name = g[c+]* ]] && echo "--sysroot=$root" || true)
    script "$base/bin/aarch64-linux-gnu-$name" \
      "export LD_LIBRARY_PATH=$(printf '%s:' "$tools"/usr/lib/*-linux-gnu)" \
      "exec $tools/usr/bin/aarch64-linux-gnu-$name $sysroot \"\$@\""
  done
  # What programs read about the machine; the emulator would show them this one.
  machine=$root/sys/devices/system/cpu/cpu0/regs/identification
  mkdir -p "$root/proc" "$machine"
  for core in 0 1; do
    printf '%s\t: %s\n' processor $core Features 'fp asimd aes sha1 sha2 crc32 atomics fphp asimdhp asimddp' \
      'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x3 'CPU part' 0xd0c 'CPU revision' 1
    echo
  done > "$root/proc/cpuinfo"
  echo 0x413fd0c1 > "$machine/midr_el1"
  touch "$base/complete"
fi

export PATH=$base/bin:$PATH
python=$(readlink "$root/usr/bin/python3")
packed=$to/lib/$python/site-packages
wheels() { # for arm64, by the pip of this machine: an emulated one would take minutes
  local platforms=(--platform manylinux2014_aarch64)
  for minor in {17..36}; do platforms+=(--platform "manylinux_2_${minor}_aarch64"); done
  python3 -m pip install -q --upgrade --target "$packed" --only-binary=:all: "${platforms[@]}" \
    --python-version "${python#python}" "$@" 2>&1 | { grep -v '^WARNING' || true; }
}
echo "    torch $torch for arm64 (the download is large)"
# torch requires all libraries of CUDA, gigabytes. It calls one of them when it is loaded; the others
# only have to be there.
wheels --no-deps "torch==$torch"
wheels --no-deps 'nvidia-cuda-runtime<14'
wheels numpy 'setuptools>=77' wheel pyyaml pip filelock 'typing-extensions>=4.10' 'sympy>=1.13.3' networkx \
  jinja2 fsspec expecttest hypothesis 'pytest>=7.3'

# Their names and symbols, with versions, in one library.
missing=('cu[a-z]*[A-Z]|nccl|nvrtc|nvshmem' 'cu|nccl|nvrtc|nvshmem')
if [ -f "$packed/torch/lib/libtorch_cuda.so" ]; then
  aarch64-linux-gnu-nm -D --undefined-only "$packed"/torch/lib/*.so | awk '{ print $2 }' |
    grep -E "^(${missing[0]})" | grep -v '@libcudart' | sort -u > "$to/absent"
  sed -E 's/@.*//; s/.*/int &(void) { return 1; }/' "$to/absent" > "$to/absent.c"
  awk -F@ 'NF > 1 { of[$NF] = of[$NF] " " $1 ";" }
    END { for (version in of) print version " { global:" of[version] " };" }' "$to/absent" > "$to/absent.map"
  aarch64-linux-gnu-gcc -shared -fPIC -w -fno-builtin "$to/absent.c" \
    -Wl,--version-script="$to/absent.map" -o "$packed/torch/lib/libabsent.so"
  aarch64-linux-gnu-readelf -d "$packed"/torch/lib/*.so | grep -oE "\[lib(${missing[1]})[^]]*" | tr -d '[' |
    grep -v '^libcudart' | sort -u | while read -r name; do ln -sf libabsent.so "$packed/torch/lib/$name"; done
fi

# For the build, the compiler; ninja is of this machine, since it is not emulated.
python3 -m pip install -q --target "$base/ninja" --upgrade ninja 2>&1 | { grep -v '^WARNING' || true; }
echo "home = $root/usr/bin" > "$to/pyvenv.cfg"
script "$to/bin/python" "export PATH=$base/bin:$base/ninja/bin:\$PATH CXX=aarch64-linux-gnu-g++" \
  "exec $tools/usr/bin/qemu-aarch64-static -cpu neoverse-n1 -L $root -0 \"\$0\" $root/usr/bin/$python \"\$@\""
