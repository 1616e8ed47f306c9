"""Operators that a patch changes, on the samples of torch's own tests: gradcheck, forward mode and
batched gradients included, gradgradcheck, and inputs that are subclasses. Samples are random, so an
operator is also called where formulas of this kind decide: at 0, at its own numbers and next to
them, at infinities and at NaN."""

import math
from functools import partial
from itertools import product

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.testing._internal import composite_compliance
from torch.testing._internal.common_utils import TestGradients
from torch.utils._pytree import tree_leaves, tree_map

from .gradients import INCOMING, noted, saved

SPECIAL = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan)
FAILED = torch.tensor(
    [-7e77], dtype=torch.double
)  # in place of gradients: on both sides, or a change


def infos(operator):
    """The entries of OpInfo that call an operator of ATen."""
    from torch.testing._internal.common_methods_invocations import op_db

    also = {"maximum": ("max", "binary"), "minimum": ("min", "binary")}.get(operator)
    for op in op_db:
        names = op.name, op.aten_name, op.name.rpartition(".")[2]
        plain = operator in names and not op.variant_test_name
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


def numbers_of(operator, sample):
    """The numbers that a sample passes, and those that the operator has by default."""
    schemas = [getattr(getattr(torch.ops.aten, operator), o)._schema for o in overloads(operator)]
    defaults = [a.default_value for schema in schemas for a in schema.arguments]
    given = tree_leaves([sample.args, sample.kwargs, defaults])
    return sorted({float(v) for v in given if type(v) in (int, float)})


def tensors(sample):
    given = tree_leaves([sample.input, sample.args, sample.kwargs])
    return [t for t in given if isinstance(t, torch.Tensor)]


def overloads(operator):
    return (
        getattr(torch.ops.aten, operator).overloads() if hasattr(torch.ops.aten, operator) else ()
    )


def specially(operator, samples):
    """Samples with these values in place of theirs, in turn: of several Tensors once the same in
    all, once another in each. The largest sample of each choice of numbers."""
    largest = {}
    for sample in sorted(samples, key=lambda s: -sum(t.numel() for t in tensors(s))):
        largest.setdefault(tuple(numbers_of(operator, sample)), sample)
    for numbers, sample in [*largest.items()][:8]:
        near = [
            (s * n, math.nextafter(n, math.inf), math.nextafter(n, -math.inf))
            for n in numbers
            for s in (1, -1)
        ]
        values = torch.tensor([*SPECIAL, *sum(near, ())], dtype=torch.double)
        least = max(1, min(t.numel() for t in tensors(sample)))
        for step, start in product((0, 1), range(0, len(values), least)):
            place = -step

            def filled(t):
                nonlocal place
                if not isinstance(t, torch.Tensor) or not t.is_floating_point():
                    return t
                place += step
                chosen = values.roll(-start - place).repeat(t.numel() // len(values) + 1)[
                    : t.numel()
                ]
                return chosen.view(t.shape).to(t.dtype).requires_grad_(t.requires_grad)

            yield tree_map(filled, (sample.input, sample.args, sample.kwargs))


def differentiated(call, given, g, named=()):
    """The gradients of a call, or None where nothing is differentiated; the name of
    its node, and what is saved."""
    args = [a for a in tree_leaves(given) if isinstance(a, torch.Tensor)]
    kept = saved(
        lambda *_: call(given[0], *given[1], **given[2]),
        args,
        [f"argument {i}" for i in range(len(args))],
    )
    y = call(given[0], *given[1], **given[2])
    args = [a for a in args if a.requires_grad]
    if not args or not isinstance(y, torch.Tensor):
        return None
    found = torch.autograd.grad(y, args, g(y), materialize_grads=True)
    return torch.cat([v.flatten().double() for v in found]), y.grad_fn.name(), kept


def at_special_values(operator, op, call, dtype):
    """A row with the gradients of each sample."""
    torch.manual_seed(0)
    samples = [
        s
        for s in op.sample_inputs("cpu", dtype, requires_grad=True)
        if call is op or not s.broadcasts_input
    ]
    found = []
    for given in specially(operator, samples):
        for shift in range(len(INCOMING)):
            incoming = torch.tensor(INCOMING).roll(shift)
            try:
                g = lambda y: incoming.repeat(y.numel())[: y.numel()].view(y.shape).to(y.dtype)  # noqa: B023, E731
                one = differentiated(call, given, g)
            except (RuntimeError, ValueError):  # an operator may refuse a NaN
                found.append(FAILED)
                continue
            found += [one[0]] if one else []
    return found


def gradients(operators):
    """{OpInfo operator, form: a row with the gradients of each sample}, what fails, which
    nodes ran, and what they save."""
    found, errors, nodes, kept = {}, {}, {}, {}
    for operator in operators:
        for op, form, call in (one for info in infos(operator) for one in forms(info)):
            key, gradients = f"OpInfo {operator}, {form}", []
            torch.manual_seed(0)
            samples = op.sample_inputs("cpu", torch.float64, requires_grad=True)
            samples = [s for s in samples if call is op or not s.broadcasts_input]
            for sample in samples:
                with noted(errors, key):
                    given = sample.input, sample.args, sample.kwargs
                    if one := differentiated(call, given, torch.randn_like):
                        gradients.append(one[0])
                        nodes.setdefault(key, set()).add(one[1])
                        kept.setdefault(key, []).extend(one[2])
            check(key, op, call, samples[:4], errors)
            if key not in errors and gradients:
                found[key] = pad_sequence(gradients, batch_first=True)
            for dtype in (torch.float64, torch.bfloat16):
                if dtype in op.dtypes and (special := at_special_values(operator, op, call, dtype)):
                    at = f"{key} at special values in {str(dtype)[6:]}"
                    found[at] = pad_sequence(special, batch_first=True)
    return found, errors, nodes, kept
