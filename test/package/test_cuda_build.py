"""The build decides about CUDA and says why. `nox -s cuda` tests what it then builds."""

import ctypes
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from buildtools import cuda_build, pip_nvcc
from testing.processes import run_checked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def decide(monkeypatch):
    """cuda_build() with this flag on a machine like this one: each nvcc with its version."""

    monkeypatch.setattr(cuda_build, "architectures", lambda path: f"those of {path}")

    def f(
        flag,
        torch_cuda="13.0",
        nvcc="13.0",
        error=None,
        beside="2.13.0",
        pip=True,
        pips=None,
        gpus=1,
        named="",
    ):
        versions = {"nvcc": nvcc, "pips": pips}
        monkeypatch.setenv("CLAMPGRAD_CUDA", flag)
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", named)
        monkeypatch.setattr(cuda_build.torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setenv("CUDA_HOME", "elsewhere")
        monkeypatch.setattr(cuda_build.torch.version, "cuda", torch_cuda)
        monkeypatch.setattr(cuda_build, "torch_of_the_environment", lambda: beside)
        here = [name for name, version in versions.items() if version]
        monkeypatch.setattr(cuda_build, "nvcc_beside", lambda torch, cuda: ["pips"] if pips else [])
        monkeypatch.setattr(cuda_build, "compilers", lambda of_pip: here)
        monkeypatch.setattr(cuda_build, "version", versions.get)
        monkeypatch.setattr(cuda_build, "toolkit", lambda path: f"/toolkit/of/{path}")
        monkeypatch.setattr(cuda_build, "cannot_compile", lambda path: error)
        return cuda_build.cuda_build(pip)

    return f


LINE = 'pip install "cuda-toolkit[nvcc,crt,nvvm,cccl]==13.0.*"'
# What differs from a machine with a GPU and an nvcc that fits; the nvcc that is taken, if any; and
# what is said.
DECISIONS = {
    "all is there": ({}, "nvcc", "those of nvcc"),
    "another minor version": ({"torch_cuda": "13.2"}, "nvcc", "13.0 for torch's CUDA 13.2"),
    "architectures that are named": ({"named": "9.0"}, "nvcc", ", 9.0"),
    # A toolkit on PATH that is too old does not stand in the way.
    "one that fits behind one that does not": ({"nvcc": "12.4", "pips": "13.0"}, "pips", "pips 13.0"),
    "a torch without CUDA": ({"torch_cuda": None}, None, "a build without CUDA"),
    "in isolation": ({"beside": "2.13.0+cpu"}, None, "torch 2.13.0+cpu is a build without CUDA"),
    # Whoever has no compiler is told how to get the one of torch's own CUDA: pip takes the newest.
    "no nvcc": ({"nvcc": None}, None, f"there is no nvcc in CUDA_HOME, on PATH or in /usr/local/cuda; {LINE} brings one"),
    "an old nvcc": ({"nvcc": "12.4"}, None, f"the first number must be the same; {LINE} brings one"),
    # Pip's compiler and headers are in one folder. A toolkit has headers of its own.
    "pip's compiler beside other headers": ({"nvcc": None, "pips": "13.5"}, None, f"they must be the same; {LINE} brings one"),
    # But not where pip has none, where CMake needs a toolkit, and where pip's is there.
    "no nvcc, and pip has none": ({"torch_cuda": "12.8", "nvcc": None}, None, "/usr/local/cuda"),
    "no toolkit": ({"nvcc": None, "pip": False}, None, "/usr/local/cuda"),
    "a C++ compiler that is too new": ({"nvcc": None, "pips": "13.0", "error": "cannot compile"}, None, "cannot compile"),
}  # fmt: skip


@pytest.mark.parametrize("machine", DECISIONS)
def test_what_is_there_decides(decide, machine):
    """Where something is missing, the kernels are left out or, with the flag 1, the build ends."""
    differs, taken, phrase = DECISIONS[machine]
    built, why = decide("auto", **differs)
    assert built == bool(taken) and phrase in why
    assert ("pip install" in why) == (LINE in phrase)
    if taken:
        assert cuda_build.os.environ["CUDA_HOME"] == f"/toolkit/of/{taken}"
        assert decide("1", **differs) == (True, why)
    else:
        with pytest.raises(SystemExit, match=re.escape(f"CLAMPGRAD_CUDA=1, but {why}")):
            decide("1", **differs)
    assert decide("0", **differs) == (False, "CLAMPGRAD_CUDA=0")


def test_without_a_gpu_they_are_built_if_somebody_asks(decide):
    """It takes minutes. What the demo shows of the line has the variable's name."""
    built, why = decide("auto", gpus=0)
    assert not built and "CLAMPGRAD_CUDA=1" in f"clampgrad: without CUDA kernels ({why})"[:90]
    assert decide("auto", gpus=0, named="native")[0] is False
    assert decide("auto", gpus=0, named="9.0")[0] and decide("1", gpus=0)[0]
    # What is missing besides is what matters.
    assert "without CUDA" in decide("auto", gpus=0, torch_cuda=None)[1]


def test_a_wrong_flag(decide):
    with pytest.raises(SystemExit, match="'yes': it is auto, 0 or 1"):
        decide("yes")


def test_the_page_says_how_to_get_a_compiler():
    assert LINE in (ROOT / "docs/install.md").read_text()


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine without a compiler; put(folder) gives it an nvcc there."""
    monkeypatch.setattr(pip_nvcc.sysconfig, "get_path", lambda name: str(tmp_path / "environment"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))

    def put(place):
        nvcc = tmp_path / place / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\n")
        nvcc.chmod(0o755)
        return str(nvcc)

    return put


def test_where_a_compiler_is_looked_for(machine, tmp_path):
    """The one that is asked for; pip's, beside torch and, for a build in isolation, in the
    environment; the machine's. One for another CUDA is not looked at."""
    machine("site/nvidia/cu12/bin")
    places = ("home/bin", "site/nvidia/cu13/bin", "environment/nvidia/cu13/bin", "path")
    found = [machine(place) for place in places]
    of_pip = pip_nvcc.nvcc_beside(tmp_path / "site/torch", "13.2")
    assert of_pip == found[1:3] and cuda_build.compilers(of_pip)[:4] == found
    assert cuda_build.compilers([])[:2] == [found[0], found[3]]


TORCHS = "sm_75 sm_80 sm_86 sm_90a sm_100 sm_120 compute_120"  # what torch's own kernels are for
NVCCS = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 130)
# The GPUs that are here, what differs from these two lists, and what is compiled for.
GPUS = {
    "none": ([], {}, "7.5;8.0;9.0;10.0;12.0+PTX"),
    "none, an older nvcc": ([], {"nvccs": NVCCS[:6]}, "7.5;8.0;9.0+PTX"),
    "none, a torch that runs on older GPUs": ([], {"torchs": "sm_50 sm_70 sm_86"}, "8.6+PTX"),
    "none, a torch that does not say": (
        [],
        {"torchs": None},
        "7.5;8.0;9.0;10.0;11.0;12.0;13.0+PTX",
    ),
    "one": ([(8, 6)], {}, "8.6+PTX"),
    "later minor versions": ([(8, 9), (10, 3)], {}, "8.6;10.0+PTX"),
    "several": ([(12, 0), (9, 0), (9, 0)], {}, "9.0;12.0+PTX"),
    "one that nvcc no longer knows": ([(6, 1), (8, 9)], {}, "8.6+PTX"),
    "only one that nvcc no longer knows": ([(7, 0)], {}, "7.5;8.0;9.0;10.0;12.0+PTX"),
    "newer than torch": ([(13, 0), (7, 5)], {}, "7.5;12.0+PTX"),
}


@pytest.mark.parametrize("which", GPUS)
def test_the_kernels_are_for_gpus_that_torch_runs_on(monkeypatch, which):
    """For those that are here; in a wheel, for all, each by code of its first number."""
    here, differs, expected = GPUS[which]
    listed = "\n".join(f"compute_{version}" for version in differs.get("nvccs", NVCCS))
    monkeypatch.setattr(
        cuda_build.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=listed)
    )
    monkeypatch.setattr(cuda_build.torch.cuda, "device_count", lambda: len(here))
    monkeypatch.setattr(cuda_build.torch.cuda, "get_device_capability", lambda i: here[i])
    torchs = differs.get("torchs", TORCHS)
    monkeypatch.setattr(cuda_build.torch._C, "_cuda_getArchFlags", lambda: torchs, raising=False)
    assert cuda_build.architectures("nvcc") == expected


CODE = """
#include "base/gpu.h"
extern "C" bool runs_on(const char* code, int major, int minor) {
  return clampgrad::runs_on(code, major, minor);
}
"""
# What is built, and on which of all these GPUs it runs. nvcc has names that torch does not use:
# code for a family runs on its later members.
EVERY = [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (10, 3), (12, 0)]
GPUS_OF = {
    "7.5;8.0;9.0;10.0;12.0+PTX": EVERY[2:],
    "7.5;8.0;9.0+PTX": EVERY[2:],
    "7.5;8.0": [(7, 5), (8, 0), (8, 6)],
    "8.6": [(8, 6)],
    "8.6+PTX": EVERY[4:],
    "9.0a+PTX": [(9, 0)],
    "10.0+PTX": EVERY[6:],
    "sm_100f": [(10, 0), (10, 3)],
    "compute_100f": [(10, 0), (10, 3)],
    "": [],
}


@pytest.fixture(scope="module")
def runs_on(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    (folder / "gpu.cpp").write_text(CODE)
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", f"-I{ROOT / 'csrc'}"]
    run_checked(*command, folder / "gpu.cpp", "-o", folder / "gpu.so")
    function = ctypes.CDLL(str(folder / "gpu.so")).runs_on
    function.restype = ctypes.c_bool
    return function


@pytest.mark.parametrize("given", GPUS_OF)
def test_where_no_code_runs_the_composed_path_does(runs_on, monkeypatch, given):
    """The architectures given to nvcc decide which GPUs run the kernels. PTX runs on later ones."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", given)
    code = cuda_build.code() if "." in given else given
    assert [gpu for gpu in EVERY if runs_on(code.encode(), *gpu)] == GPUS_OF[given]
