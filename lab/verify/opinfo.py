"""Operators that a patch changes, on the samples of torch's own tests: gradcheck, forward mode and batched gradients
included, gradgradcheck, and inputs that are subclasses."""

from functools import partial

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal.composite_compliance import (
    check_backward_formula,
    check_forward_ad_formula,
)


def infos(operator):
    """The entries of OpInfo that call an operator of ATen."""
    from torch.testing._internal.common_methods_invocations import op_db

    also = {"maximum": ("max", "binary"), "minimum": ("min", "binary")}.get(operator)
    for op in op_db:
        named = operator in (op.name, op.aten_name) and not op.variant_test_name
        if op.supports_autograd and (named or (op.name, op.variant_test_name) == also):
            yield op


def forms(op):
    """The operator, and its in-place form, applied to a copy: it may have a formula of its own."""
    yield f"{op.name} {op.variant_test_name}".strip(), op
    of_functional = getattr(torch.nn.functional, op.name.rpartition(".")[2] + "_", None)
    if changing := op.inplace_variant or ("." in op.name and of_functional):
        yield f"{op.name}_", lambda x, *args, **kwargs: changing(x.clone(), *args, **kwargs)


def differentiable(call, sample):
    """The sample as a function of its Tensors that require grad, and those Tensors."""
    places = [sample.input, *sample.args]
    which = [i for i, a in enumerate(places) if isinstance(a, torch.Tensor) and a.requires_grad]

    def function(*variables):
        given = dict(zip(which, variables))
        return call(*(given.get(i, a) for i, a in enumerate(places)), **sample.kwargs)

    return function, [places[i] for i in which]


def checks(op, call, sample, of_subclasses):
    """What has to hold of a sample, by name."""
    function, args = differentiable(call, sample)
    forward = op.supports_forward_ad
    yield "", lambda: gradcheck(function, args, check_forward_ad=forward, check_batched_grad=True)
    if op.supports_gradgrad:
        yield "", lambda: gradgradcheck(function, args)
    if of_subclasses:
        given = call, [sample.input, *sample.args], sample.kwargs
        last = op.gradcheck_wrapper, torch.testing.assert_close
        yield ", of subclasses", lambda: check_backward_formula(*given, None, *last)
        if forward:
            yield ", of subclasses", lambda: check_forward_ad_formula(*given, *last)


def gradients(operators, check):
    """{name: the gradients of each sample}, which nodes ran, what fails, if they are checked, and which operators have
    no samples."""
    found, nodes, failures = {}, {}, {}

    def attempt(name, action):
        try:
            return action()
        except Exception as error:
            failures[name] = str(error).strip().splitlines()[0]

    ops = [op for operator in operators for op in infos(operator)]
    for op, (name, call) in [(of, form) for of in ops for form in forms(of)]:
        torch.manual_seed(0)
        samples = op.sample_inputs("cpu", torch.float64, requires_grad=True)
        found[name], of_copies = [], name.endswith("_")
        for sample in (s for s in samples if not (of_copies and s.broadcasts_input)):
            function, args = differentiable(call, sample)
            y = function(*args)
            if not args or not isinstance(y, torch.Tensor):
                continue
            nodes.setdefault(name, set()).add(y.grad_fn.name())
            torch.manual_seed(0)  # gradgradcheck draws too, and does not run on stock
            g = torch.randn_like(y)
            ask = partial(torch.autograd.grad, y, args, g, materialize_grads=True)
            found[name].append(attempt(name, ask) or ())
            first = not of_copies and len(found[name]) <= 4
            for what, holds in checks(op, call, sample, first) if check else ():
                attempt(name + what, holds)
    return found, nodes, failures, [o for o in operators if not any(infos(o))]
