"""Cases: those of the databases that PyTorch tests itself with, and ours.

The databases are those of the installed release, so a case is named by what it is called with,
and not by its number: what two releases both have is compared.
"""

import functools
import hashlib
import inspect
import itertools
import re
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_unflatten

from lab.changes import kinks, streams, training
from lab.changes.fills import FILLS, fill_leaves, make_pairs, make_ramp

# What returns memory that nobody wrote, or is not strided, or calls torch in another process.
SKIPPED = re.compile(
    r"^(new_)?empty|resize_|^_chunk_cat|^uniform$|^torch\.ops|^ops\.aten|__rpow__|sparse|jiterator|^item$"
)
SAMPLES = {"float32": 6, "float64": 3, "bfloat16": 3}
LARGEST_SAMPLE_ELEMENTS = 2000


class Case(NamedTuple):
    name: str
    function: Any  # of the leaves
    leaves: list[Any]
    differentiated: list[bool]
    second: bool = False
    tangents: bool = True


def make_groups(pattern=""):
    """{name: a function that makes its cases}. The cases of a group run in one process."""
    groups = {f"op {name_of(op)}": functools.partial(operator_cases, op) for op in op_db}
    groups |= {
        f"module {m.name}": functools.partial(module_cases, m)
        for m in module_db
        if "Lazy" not in m.name
    }
    for source in (kinks, streams, training):
        groups |= {
            name: functools.partial(own_cases, name, cs) for name, cs in source.TABLE.items()
        }
    return {name: make for name, make in sorted(groups.items()) if re.search(pattern, name)} | (
        {"schemas": schema_cases} if re.search(pattern, "schemas") else {}
    )


# ---- Operators -----------------------------------------------------------------------------------


def name_of(op):
    return op.name + (f" {op.variant_test_name}" if op.variant_test_name else "")


def operator_cases(op):
    if SKIPPED.search(op.name):
        return
    for dtype, fills in FILLS.items():
        if getattr(torch, dtype) in op.dtypes:
            for sample, differentiated in make_samples(op, dtype):
                yield from filled_cases(op, dtype, sample, differentiated, fills)
    elementwise = isinstance(op, UnaryUfuncInfo | BinaryUfuncInfo)
    for dtype in ("float32", "float64", "bfloat16", "complex64") if elementwise else ():
        if getattr(torch, dtype) in op.dtypes:
            yield grid_case(op, dtype)
    for dtype in ("uint8", "int64"):
        if getattr(torch, dtype) in op.dtypes:
            for sample, _ in make_samples(op, dtype, drawn_as=dtype):
                yield from filled_cases(op, dtype, sample, None, ["sample"])


def make_samples(op, dtype, drawn_as="float32"):
    """The operator's samples, drawn in one dtype: random numbers of 16 bits have changed."""
    as_float = drawn_as == "float32" and torch.float32 in op.dtypes
    drawn_as = getattr(torch, drawn_as if as_float or drawn_as != "float32" else dtype)
    records = op.supports_autograd and drawn_as.is_floating_point
    torch.manual_seed(1)
    try:
        drawn = op.sample_inputs("cpu", drawn_as, requires_grad=records)
        drawn = [*itertools.islice(drawn, 60)]
    except Exception:  # it needs a library that is not here
        return
    samples = [(s.input, s.args, s.kwargs) for s in drawn]
    # A generator among the arguments goes on from case to case.
    samples = [
        s for s in samples if not any(isinstance(t, torch.Generator) for t in tree_flatten(s)[0])
    ]
    small = [s for s in samples if count_elements(s) <= LARGEST_SAMPLE_ELEMENTS]
    most = SAMPLES.get(dtype, 6)
    for sample in small[:: max(1, len(small) // most)][:most]:
        leaves, spec = tree_flatten(sample)
        flags = [isinstance(t, torch.Tensor) and t.requires_grad for t in leaves]
        leaves = [cast(leaf, drawn_as, getattr(torch, dtype)) for leaf in leaves]
        yield (leaves, spec), flags


def cast(leaf, drawn_as, dtype):
    if not isinstance(leaf, torch.Tensor):
        return dtype if leaf is drawn_as else leaf
    return leaf.detach().to(dtype) if leaf.dtype is drawn_as else leaf.detach()


def count_elements(sample):
    return sum(t.numel() for t in tree_flatten(sample)[0] if isinstance(t, torch.Tensor))


def filled_cases(op, dtype, sample, differentiated, fills):
    leaves, spec = sample
    flags = differentiated or [False] * len(leaves)

    def call(*leaves):
        self, args, kwargs = tree_unflatten([*leaves], spec)
        return op.op(self, *args, **kwargs)

    for fill in fills:
        filled = fill_leaves(leaves, fill)
        name = f"op {name_of(op)} | {dtype} | {fill} | {digest_leaves(filled, spec)}"
        yield Case(
            name, call, filled, flags, second=dtype == "float64", tangents=dtype != "bfloat16"
        )


def grid_case(op, dtype):
    """Every special value, or every pair of them."""
    a, b = make_pairs(torch.float32 if dtype == "complex64" else getattr(torch, dtype))
    unary = isinstance(op, UnaryUfuncInfo)
    if dtype == "complex64":
        a, b = torch.complex(a, b), torch.complex(b, a)
    kwargs = op.sample_kwargs("cpu", a.dtype, a)[0] if unary else {}
    leaves = [a] if unary else [a, b]
    flags = [op.supports_autograd] * len(leaves)
    second = dtype in ("float32", "float64")
    function = functools.partial(op.op, **kwargs)
    return Case(f"op {name_of(op)} | {dtype} | grid", function, leaves, flags, second)


def digest_leaves(leaves, spec):
    """A name for what a call is given, the same in every release."""
    texts = [
        f"{t.dtype}{tuple(t.shape)}{t.stride()}{t.detach().flatten().tolist()}"
        if isinstance(t, torch.Tensor) and t.layout == torch.strided
        else repr(t)
        for t in leaves
    ]
    texts.append(str(spec.num_leaves))
    return hashlib.sha256(re.sub(r" at 0x\w+", "", " ".join(texts)).encode()).hexdigest()[:8]


# ---- Modules -------------------------------------------------------------------------------------


def module_cases(info):
    """Default weights for a seed; outputs and gradients with weights that do not depend on one."""
    for dtype, training_mode in itertools.product(("float32", "bfloat16"), (True, False)):
        torch.manual_seed(1)
        try:
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=training_mode
            )
        except Exception:
            continue
        for module_input in inputs[:12]:
            construct = module_input.constructor_input
            forward = module_input.forward_input
            leaves, spec = tree_flatten((forward.args, forward.kwargs))
            drawn = torch.float32
            leaves = [cast(leaf, drawn, getattr(torch, dtype)) for leaf in leaves]
            head = f"module {info.name} | {dtype} | {'train' if training_mode else 'eval'}"
            tail = digest_leaves(
                [*leaves, *construct.args, *construct.kwargs.items()],
                tree_flatten(leaves)[1],
            )
            if training_mode:
                weights = functools.partial(default_weights, info, construct, dtype)
                yield Case(f"{head} | weights | {tail}", weights, [], [])
            floats = [isinstance(t, torch.Tensor) and t.is_floating_point() for t in leaves]
            call = functools.partial(call_module, info, construct, dtype, training_mode, spec)
            for fill in ("sample", "ties", "extremes"):
                filled = fill_leaves(leaves, fill)
                yield Case(f"{head} | {fill} | {tail}", call, filled, floats, tangents=False)


def make_module(info, construct, dtype):
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        return info.module_cls(*construct.args, **construct.kwargs)
    finally:
        torch.set_default_dtype(previous)


def default_weights(info, construct, dtype):
    return [*make_module(info, construct, dtype).state_dict().values()]


def call_module(info, construct, dtype, training_mode, spec, *leaves):
    """The module's outputs, and the gradients of its parameters and what its buffers become."""
    module = make_module(info, construct, dtype).train(training_mode)
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(make_ramp(*p.shape, scale=1 / 16).roll(i))
    args, kwargs = tree_unflatten([*leaves], spec)
    output = module(*args, **kwargs)
    ys = [y for y in tree_flatten(output)[0] if isinstance(y, torch.Tensor) and y.requires_grad]
    ps = [p for p in module.parameters() if p.requires_grad]
    gs = (
        torch.autograd.grad([y.sum() for y in ys], ps, retain_graph=True, allow_unused=True)
        if ys and ps
        else []
    )
    return output, [*gs], [b.clone() for b in module.buffers()]


# ---- Ours ----------------------------------------------------------------------------------------


def own_cases(group, entries):
    """Of entries (name, function, tensors, dtypes)."""
    for name, function, tensors, dtypes in entries:
        for dtype in dtypes:
            leaves = [t.to(getattr(torch, dtype)) if t.is_floating_point() else t for t in tensors]
            flags = [t.is_floating_point() for t in leaves]
            yield Case(f"{group} | {name} | {dtype}", function, leaves, flags, dtype == "float64")


def schema_cases():
    """Default arguments: of native operators, and of functions and classes in Python."""
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and not schema.name.startswith("aten::_"):
            defaults = {
                a.name: repr(a.default_value) for a in schema.arguments if a.has_default_value()
            }
            name = f"schemas | {schema.name}.{schema.overload_name}"
            yield Case(name, functools.partial(list_items, defaults), [], [])
    nn, optim = torch.nn, torch.optim
    modules = [torch, nn, nn.functional, nn.init, nn.utils, optim, optim.lr_scheduler]
    for module in [*modules, torch.distributions, torch.utils.data]:
        for name, member in sorted(vars(module).items()):
            if callable(member) and not name.startswith("_"):
                name = f"schemas | {module.__name__}.{name}"
                yield Case(name, functools.partial(list_defaults, member), [], [])


def list_items(defaults):
    return [f"{name}={value}" for name, value in sorted(defaults.items())]


def list_defaults(member):
    parameters = inspect.signature(member).parameters.values()
    defaults = {p.name: repr(p.default) for p in parameters if p.default is not p.empty}
    return list_items({name: text for name, text in defaults.items() if " at 0x" not in text})
