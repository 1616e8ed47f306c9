"""Operators that a patch changes, on the samples of torch's own tests: gradcheck, forward mode and batched gradients
included, gradgradcheck, and inputs that are subclasses."""

from functools import partial

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.testing._internal import composite_compliance
from torch.testing._internal.common_utils import TestGradients
from torch.utils._pytree import tree_leaves

from .gradients import noted


def infos(operator):
    """The entries of OpInfo that call an operator of ATen."""
    from torch.testing._internal.common_methods_invocations import op_db

    also = {"maximum": ("max", "binary"), "minimum": ("min", "binary")}.get(operator)
    for op in op_db:
        plain = operator in (op.name, op.aten_name) and not op.variant_test_name
        if op.supports_autograd and (plain or (op.name, op.variant_test_name) == also):
            yield op


def forms(op):
    """The operator, and its in-place form, applied to a copy: it may have a formula of its own."""
    yield op, op.name, op
    of_functional = getattr(torch.nn.functional, op.name.rpartition(".")[2] + "_", None)
    if changing := op.inplace_variant or ("." in op.name and of_functional):
        yield op, f"{op.name}_", TestGradients()._get_safe_inplace(changing)


def check(key, op, call, samples, errors):
    """What upstream's own tests ask of an operator."""
    of_samples = partial(TestGradients()._check_helper, "cpu", torch.float64, op, call)
    with noted(errors, f"{key}: gradcheck"):  # whose gradients are compared all the same
        of_samples("gradcheck", check_forward_ad=op.supports_forward_ad)
        if op.supports_gradgrad:
            of_samples("bwgrad_bwgrad")
    for sample in samples if call is op else ():
        given = call, [sample.input, *sample.args], sample.kwargs
        last = op.gradcheck_wrapper, torch.testing.assert_close
        with noted(errors, f"{key} of subclasses"):
            composite_compliance.check_backward_formula(*given, None, *last)
            if op.supports_forward_ad:
                composite_compliance.check_forward_ad_formula(*given, *last)


def gradients(operators):
    """{OpInfo operator, form: a row with the gradients of each sample}, what fails, and which nodes ran."""
    found, errors, nodes = {}, {}, {}
    for operator in operators:
        for op, form, call in (one for info in infos(operator) for one in forms(info)):
            key, gradients = f"OpInfo {operator}, {form}", []
            torch.manual_seed(0)
            samples = op.sample_inputs("cpu", torch.float64, requires_grad=True)
            samples = [s for s in samples if call is op or not s.broadcasts_input]
            for sample in samples:
                y = call(sample.input, *sample.args, **sample.kwargs)
                given = tree_leaves([sample.input, sample.args, sample.kwargs])
                args = [a for a in given if isinstance(a, torch.Tensor) and a.requires_grad]
                if args and isinstance(y, torch.Tensor):
                    nodes.setdefault(key, set()).add(y.grad_fn.name())
                    with noted(errors, key):
                        g = torch.randn_like(y)
                        of_args = torch.autograd.grad(y, args, g, materialize_grads=True)
                        gradients.append(torch.cat([v.flatten() for v in of_args]))
            check(key, op, call, samples[:4], errors)
            if key not in errors and gradients:
                found[key] = pad_sequence(gradients, batch_first=True)
    return found, errors, nodes
