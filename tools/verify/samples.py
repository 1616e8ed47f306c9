"""OpInfo: the samples of torch's own tests for the operators that a patch changes."""

import hashlib
from importlib.util import module_from_spec, spec_from_file_location

import torch
from torch.autograd import gradcheck, gradgradcheck


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


def differentiable(op, sample):
    """The sample as a function of its Tensors that require grad, and those Tensors."""
    places = [sample.input, *sample.args]
    which = [i for i, a in enumerate(places) if isinstance(a, torch.Tensor) and a.requires_grad]

    def function(*variables):
        filled = list(places)
        for i, v in zip(which, variables):
            filled[i] = v
        return op(*filled, **sample.kwargs)

    return function, [places[i] for i in which]


def of_oracle(path):
    """`gradients(operator, args, kwargs, g)` of a Python file: what the gradients should be."""
    spec = spec_from_file_location("oracle_of_the_patch", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.gradients


def digest(values):
    """Gradients in a form that is cheap to compare."""
    content = b"".join(b"none" if v is None else v.detach().numpy().tobytes() for v in values)
    return hashlib.sha1(content).hexdigest()


def opinfo(operators, oracle=None, check=True):
    """gradcheck, forward mode and batched gradients included, gradgradcheck, and the gradients themselves."""
    wanted = of_oracle(oracle) if oracle else None
    checked, failures, digests, none, stock = 0, [], {}, [], set()
    for operator in operators:
        found = list(infos(operator))
        if not found:
            none.append(operator)
        for op in found:
            torch.manual_seed(0)
            name = f"{op.name} {op.variant_test_name}".strip()
            for sample in op.sample_inputs("cpu", torch.float64, requires_grad=True):
                function, args = differentiable(op, sample)
                y = function(*args)
                if not args or not isinstance(y, torch.Tensor):
                    continue
                if not y.grad_fn.name().startswith("Proved"):
                    stock.add(name)
                g = torch.randn_like(y)
                values = torch.autograd.grad(y, args, g, allow_unused=True)
                digests.setdefault(name, []).append(digest(values))
                if not check:
                    continue
                if wanted:
                    should = wanted(operator, (sample.input, *sample.args), sample.kwargs, g)
                    try:
                        torch.testing.assert_close(list(values), list(should), equal_nan=True)
                    except AssertionError as error:
                        failures.append(f"oracle, {name}: {str(error).splitlines()[0]}")
                try:
                    forward = op.supports_forward_ad
                    gradcheck(function, args, check_forward_ad=forward, check_batched_grad=True)
                    if op.supports_gradgrad:
                        gradgradcheck(function, args)
                    checked += 1
                except Exception as error:
                    failures.append(f"OpInfo {name}: {str(error).splitlines()[0]}")
    return {"checked": checked, "failures": failures, "digests": digests, "no OpInfo": none} | {
        "stock nodes": sorted(stock)
    }
