"""OpInfo: the samples of torch's own tests for the operators that a patch changes."""

import hashlib

import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing._internal.composite_compliance import (
    check_backward_formula,
    check_forward_ad_formula,
)


def infos(operator):
    """The entries of OpInfo that call `operator`, the name of an ATen operator without its overload."""
    from torch.testing._internal.common_methods_invocations import op_db

    name = operator.strip("_").removeprefix("_foreach_")
    also = {"maximum": ("max", "binary"), "minimum": ("min", "binary")}.get(name)
    for op in op_db:
        if name in (op.name, op.aten_name) and op.supports_autograd:
            if not op.variant_test_name:
                yield op
        elif (op.name, op.variant_test_name) == also:
            yield op


def forms(op):
    """The operator, and its in-place form, applied to a copy: it may have a formula of its own."""
    yield "", op
    owner, _, short = op.name.rpartition(".")
    of_functional = getattr(torch.nn.functional, short + "_", None) if owner else None
    if changing := op.inplace_variant or of_functional:
        yield "_", lambda x, *args, **kwargs: changing(x.clone(), *args, **kwargs)


def differentiable(call, sample):
    """The sample as a function of its Tensors that require grad, and those Tensors."""
    places = [sample.input, *sample.args]
    which = [i for i, a in enumerate(places) if isinstance(a, torch.Tensor) and a.requires_grad]

    def function(*variables):
        filled = list(places)
        for i, v in zip(which, variables):
            filled[i] = v
        return call(*filled, **sample.kwargs)

    return function, [places[i] for i in which]


def of_subclasses(op, call, samples):
    """Why the formulas do not work on inputs some of which are a subclass; None if they do."""
    for sample in samples:
        args, wrapper = [sample.input, *sample.args], op.gradcheck_wrapper
        equal = torch.testing.assert_close
        try:
            check_backward_formula(call, args, sample.kwargs, None, wrapper, equal)
            if op.supports_forward_ad:
                check_forward_ad_formula(call, args, sample.kwargs, wrapper, equal)
        except Exception as error:
            return str(error).strip().splitlines()[0]
    return None


def digest(values):
    """Gradients in a form that is cheap to compare."""
    content = b"".join(b"none" if v is None else v.detach().numpy().tobytes() for v in values)
    return hashlib.sha1(content).hexdigest()


def opinfo(operators, check):
    """gradcheck, forward mode and batched gradients included, gradgradcheck, and the gradients themselves."""
    checked, failures, digests, none, stock, subclasses = 0, [], {}, [], set(), {}
    for operator in operators:
        short, in_place = operator.rstrip("_"), "_" * operator.endswith("_")
        found = [(op, form) for op in infos(short) for form in forms(op) if form[0] == in_place]
        if not found:
            none.append(operator)
        for op, (suffix, call) in found:
            torch.manual_seed(0)
            name = f"{op.name}{suffix} {op.variant_test_name}".strip()
            samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))
            if suffix:
                samples = [s for s in samples if not s.broadcasts_input]
            else:
                subclasses[name] = of_subclasses(op, call, samples[:4])
            for sample in samples:
                try:
                    function, args = differentiable(call, sample)
                    y = function(*args)
                    if not args or not isinstance(y, torch.Tensor):
                        continue
                    if not y.grad_fn.name().startswith("Proved"):
                        stock.add(name)
                    torch.manual_seed(0)  # gradgradcheck draws too, and does not run on stock
                    g = torch.randn_like(y)
                    values = torch.autograd.grad(y, args, g, allow_unused=True)
                    digests.setdefault(name, []).append(digest(values))
                    if not check:
                        continue
                    forward = op.supports_forward_ad
                    gradcheck(function, args, check_forward_ad=forward, check_batched_grad=True)
                    if op.supports_gradgrad:
                        gradgradcheck(function, args)
                    checked += 1
                except Exception as error:
                    failures.append(f"OpInfo {name}: {str(error).splitlines()[0]}")
    return {"checked": checked, "failures": failures, "digests": digests, "no OpInfo": none} | {
        "stock nodes": sorted(stock),
        "subclasses": subclasses,
    }
