"""Somebody else's code, unmodified, under a pin: Python, C++, a saved model, a program."""

import pytest
import torch

import clampgrad
from common import HALF, OWN, slope

pytestmark = pytest.mark.thorough

CPP = """
#include <ATen/ops/clamp.h>
#include <torch/library.h>

at::Tensor saturate(const at::Tensor& x) { return at::clamp(x, 0, 1); }

TORCH_LIBRARY(clamps_in_cpp, m) { m.def("saturate", saturate); }
"""


@pytest.fixture(scope="module")
def saturate(tmp_path_factory):
    """A compiled extension that knows nothing of clampgrad."""
    from torch.utils import cpp_extension

    cpp_extension.load_inline(
        "clamps_in_cpp",
        CPP,
        build_directory=str(tmp_path_factory.mktemp("extension")),
        extra_cflags=["-O0"],
        is_python_module=False,
        no_implicit_headers=True,  # it compiles in half the time
    )
    return torch.ops.clamps_in_cpp.saturate


@pytest.mark.parametrize("pin, expected", [(None, OWN), ("half", HALF)])
def test_cpp(saturate, pin, expected):
    with clampgrad.pin(pin):
        assert slope(saturate) == expected


class Clamps(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, 0, 1)


@pytest.mark.parametrize("strict", [False, True])
def test_a_saved_model_has_the_pin_under_which_it_runs(strict, tmp_path):
    model = torch.nn.Hardtanh(0, 1)  # has a formula of its own
    exported = torch.export.export(Clamps(), (torch.zeros(2),), strict=strict)
    with clampgrad.pin("half"):
        torch.export.save(exported, tmp_path / "model.pt2")
        torch.save(model, tmp_path / "model.pt")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    assert slope(loaded) == OWN
    with clampgrad.pin("half"):
        assert slope(loaded) == HALF
        assert slope(torch.load(tmp_path / "model.pt", weights_only=False)) == [0, 0]


# ---- clampgrad run ---------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, message", [
    (["run", "--gradient", "nope", "train.py"], "unknown gradient 'nope'; expected one of"),
    (["run", "--gradient", "half", "--maximize", "train.py"], "maximize=True does not apply"),
    (["run", "train.py"], "required: --gradient"),
    (["run", "train.py", "--gradient", "half"], "required: --gradient"),
])  # fmt: skip
def test_wrong_arguments(arguments, message, folder_of_programs, command):
    (folder_of_programs / "train.py").touch()
    code, out, err = command(*arguments)
    assert (code, clampgrad.pin.current(), out) == (2, None, "") and message in err
