"""PyTorch's own tests of clamp and its relatives: its OpInfo entries run against our functions.

An entry (torch.testing._internal.common_methods_invocations.op_db) says on which inputs
and mistakes an operator must be tested. torch's own function is the reference.
Derivatives: test_gradcheck.py.
"""

import pytest
import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db

import clampgrad
from oracle import CLAMPS, EXTREMA
from testing.comparing import assert_same, result_or_error

pytestmark = pytest.mark.slow

DEVICE = torch.get_default_device().type  # --device
NAMES = (*CLAMPS, *EXTREMA)
OPINFOS = [op for op in op_db if op.name in NAMES]
every_operator = pytest.mark.parametrize("op", OPINFOS, ids=lambda op: op.name)


@pytest.fixture(autouse=True)
def no_unittest_to_look_for(monkeypatch):
    """To name samples after a unittest, each iterator over them would read
    the source of the whole stack."""
    monkeypatch.setattr(common_utils, "extract_test_fn", lambda: None)


def outcomes(op, sample, recorded=False):
    """The outcomes of our operator and of torch's own."""

    def leaf(a):
        differentiable = recorded and isinstance(a, torch.Tensor) and a.is_floating_point()
        return a.detach().clone().requires_grad_() if differentiable else a

    for function in (getattr(clampgrad, op.name), op.op):
        yield result_or_error(function, *map(leaf, (sample.input, *sample.args)), **sample.kwargs)


def test_every_operator_has_an_entry():
    assert {op.name for op in OPINFOS} == set(NAMES)


MANY = (torch.float32, torch.bfloat16, torch.int32)  # noncontiguous, broadcast, extremal, promoted


@pytest.mark.parametrize("recorded", [False, True], ids=["constant", "recorded"])
@every_operator
def test_sample_inputs(op, recorded):
    """On every dtype that torch supports, and on those that it must refuse."""
    dtypes = set(op.supported_dtypes(DEVICE))
    assert dtypes >= {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64}
    for dtype in sorted(dtypes | {torch.bool, torch.complex64}, key=str):
        samples = op.reference_inputs if dtype in MANY else op.sample_inputs
        for sample in samples(DEVICE, dtype, set_seed=False):
            actual, expected = outcomes(op, sample, recorded)
            if not isinstance(expected, torch.Tensor):
                assert actual == expected
                continue
            # For +0 and -0 of two Tensors, torch's own vector loop and its
            # tail differ, so compare with ==.
            assert_same(actual.detach(), expected.detach(), sample)
            assert actual.stride() == expected.stride()
            assert actual.requires_grad == expected.requires_grad


@every_operator
def test_error_inputs(op):
    if op.error_inputs_func is None:
        assert op.name == "clamp"  # torch lists no mistakes for it; test_errors.py does
        return
    mistakes = list(op.error_inputs(DEVICE))
    assert mistakes
    for mistake in mistakes:
        actual, expected = outcomes(op, mistake.sample_input)
        if isinstance(expected, torch.Tensor):
            assert_same(actual, expected)  # listed for the reference in Python, no mistake here
        elif "invalid combination of arguments" in expected[1]:
            # Followed by torch's signatures, which lack our keywords: the type must do.
            assert actual[0] is expected[0]
        else:
            assert actual == expected
