"""Somebody else's code, unmodified, under a pin: Python, C++, a saved model, a program."""

import pytest
import torch

import clampgrad
from common import HALF, OWN, THROUGH, slope

pytestmark = pytest.mark.thorough

CPP = """
#include <ATen/ops/clamp.h>
#include <torch/library.h>

at::Tensor saturate(const at::Tensor& x) {
  return at::clamp(x, 0, 1);
}

at::Tensor saturate_a_copy(const at::Tensor& x) {
  return x.clone().clamp_(0, 1);
}

TORCH_LIBRARY(clamps_in_cpp, m) {
  m.def("saturate", saturate);
  m.def("saturate_a_copy", saturate_a_copy);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
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
    return torch.ops.clamps_in_cpp


def test_cpp(library):
    for function in (library.saturate, library.saturate_a_copy):
        for pin, expected in ((None, OWN), ("half", HALF), ("straight_through", THROUGH)):
            with clampgrad.pin(pin):
                assert slope(function) == expected


class Clamps(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, 0, 1)


def test_a_saved_model_has_the_pin_under_which_it_runs(tmp_path):
    model = torch.nn.Hardtanh(0, 1)  # has a formula of its own
    exported = torch.export.export(Clamps(), (torch.zeros(2, requires_grad=True),))
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
