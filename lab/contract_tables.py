"""The tables of README.md and docs/ that show the contract, the examples and
what is measured elsewhere."""

import json
import math

import torch

import clampgrad
import records
from oracle import EXACT, PSEUDO
from oracle import TABLE as CONTRACT
from records import code, table

FRAMEWORKS = records.read("frameworks")
# The pseudo-gradients, each with `maximize` too where that matters.
WITH_MAXIMIZE = [key for key in CONTRACT["pseudo_gradients"]["rows"][0] if key != "position"]
EXAMPLES = {p.stem: json.loads(p.read_text()) for p in records.FOLDER.glob("examples/*.json")}


def several(values):
    """Gradients of several arguments, in their order; of one alone, without brackets."""
    values = values if isinstance(values, list) else [values]
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


@table()
def names():
    """Every convention, its alias, whether it is a derivative, and its rule."""
    yield "name", "alias", "kind", "rule"
    aliases: dict[str, list[str]] = {}
    for alias, name in CONTRACT["aliases"].items():
        aliases.setdefault(name, []).append(code(alias))
    for name, rule in CONTRACT["conventions"].items():
        kind = "exact" if name in EXACT else "pseudo-gradient"
        yield code(name), ", ".join(aliases.get(name, [])), kind, rule


@table()
def frameworks():
    def cell(value):
        if isinstance(value, dict):
            return ", ".join(f"{v} ({code(k)})" for k, v in value.items())
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

    columns = {
        "clip": "clip at a bound",
        "constant": "max(x, constant) at a tie",
        "pair": "max(x, y) at a tie: x, y",
        "collapsed": "x = lo = hi",
    }
    yield "", *columns.values()
    for f in FRAMEWORKS["rows"]:
        yield f"{f['name']} {', '.join(f['versions'])}", *(cell(f[key]) for key in columns)
    yield f"As measured: {FRAMEWORKS['measured']}."


# ---- The examples --------------------------------------------------------------------------------


@table(right=[1])
def pgd():
    yield "`gradient=`", "accuracy under attack"
    for how, accuracy in EXAMPLES["pgd_at_the_box"]["robust_accuracy"].items():
        yield code(how), f"{accuracy:.1%}"


@table(right=(1, 2))
def dead_pixels():
    """The wrong pixels of the image, for a loss that is a mean and for one that is a sum."""
    fit = EXAMPLES["demo"]["image_fit"]
    yield "`gradient=`", "wrong pixels, mean of squares", "sum of squares"
    for how in ("min_norm", *PSEUDO):
        yield code(how), *(f"{fit['wrong'][how][loss]:.0%}" for loss in ("mean", "sum"))
    yield (
        f"An image of {fit['size']} x {fit['size']} pixels fitted through `clamp(0, 1)` in "
        f"{fit['steps']} steps of Adam, learning rate {fit['learning_rate']:g}; "
        f"{fit['wrong']['start']:.0%} of the pixels are wrong (off by more than "
        f"{fit['tolerance']:g}) at the start. Measured with torch {EXAMPLES['demo']['torch']}."
    )


@table()
def nan_guard():
    yield "`gradient=`", "slope at 0", "weight after a step"
    slopes, weights = EXAMPLES["nan_guard"].values()
    for how, slope in slopes.items():
        yield code(how), slope, weights[how]


@table(right=[1])
def parameter_at_its_bound():
    yield "`gradient=`", "x at the end"
    for how, x in EXAMPLES["parameter_at_its_bound"]["end"].items():
        yield code(how), f"{x:.3g}"


@table(right=[1])
def relu6_memory():
    yield "", "MiB saved for backward"
    for name, size in EXAMPLES["relu6_memory"]["MiB"].items():
        yield code(name), f"{size:.2f}"


# ---- The contract --------------------------------------------------------------------------------


@table()
def numbers():
    """The gradient of x where the bounds are numbers."""
    yield "operator", "position", *map(code, EXACT)
    for name, operator in CONTRACT["operators"].items():
        for row in operator["rows"]:
            if "numbers" in row:
                yield code(name), row["position"], *(row["numbers"][c] for c in EXACT)


@table()
def tensors():
    """The gradients of all arguments where all are Tensors."""
    for name, operator in CONTRACT["operators"].items():
        yield ""
        yield code(f"{name}({', '.join(operator['arguments'])})"), "A", *map(code, EXACT)
        for row in operator["rows"]:
            active = ", ".join(row["active"]) or "none"
            yield row["position"], active, *(several(row["tensors"][c]) for c in EXACT)


@table()
def migration():
    """The positions where the gradients before and after PyTorch's change differ."""
    yield "call", "at", "arguments", "`inclusive`: up to 2.13", "`joint`: 2.15"
    for kind in ("numbers", "tensors"):
        for name, operator in CONTRACT["operators"].items():
            for row in operator["rows"]:
                old, new = (row.get(kind, {}).get(c) for c in ("inclusive", "joint"))
                if old != new:
                    yield code(name), row["position"], kind, several(old), several(new)


@table()
def pseudo_gradients():
    section = CONTRACT["pseudo_gradients"]
    yield "`gradient=`", "position", *section["columns"]
    for key in WITH_MAXIMIZE:
        for row in section["rows"]:
            yield code(key), row["position"], *row[key]


def examples(keys):
    """One row an example; the gradients of each argument in brackets of their own."""
    yield "call", "at", *map(code, keys)
    for example in CONTRACT["examples"]:
        if keys[0] in example:
            given = {k: v for k, v in example.items() if k not in ("call", *EXACT, *WITH_MAXIMIZE)}
            at = "; ".join(f"{k} = {', '.join(map(str, v))}" for k, v in given.items())
            gradients = (", ".join(map(several, example[key])) for key in keys)
            yield code(example["call"]), at, *gradients


@table()
def exact_examples():
    yield from examples(EXACT)


@table()
def pseudo_examples():
    yield from examples(WITH_MAXIMIZE)


# ---- Guards against NaN -------------------------------------------------------------------------

# Guard, the bound in it, what stands behind it, and the argument at which it is needed.
GUARDS = (
    ("log(1 - clamp(p, max=1 - 1e-6))", 1 - 1e-6, lambda c: torch.log(1 - c), "max", 1.0),
    ("acos(clamp(c, max=1 - 1e-6))", 1 - 1e-6, torch.acos, "max", 1.0),
    ("sqrt(clamp(v, min=1e-8))", 1e-8, torch.sqrt, "min", 0.0),
    ("1 / clamp(n, min=1e-8)", 1e-8, torch.reciprocal, "min", 0.0),
)


@table(left=3)
def guards():
    """Where their bound vanishes in a dtype of few bits. Evaluated here: there is no record."""
    heading = ["guard", "at", "dtype", "the bound is", "value"]
    yield *heading, "gradient, `inclusive`", "gradient, `min_norm`"
    for guard, written, function, side, at in GUARDS:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            bound = f"{torch.tensor(written, dtype=dtype).item():.7g}"
            x = torch.tensor(at, dtype=dtype, requires_grad=True)
            slopes = []
            for gradient in ("inclusive", "min_norm"):
                y = function(clampgrad.clamp(x, **{side: written}, gradient=gradient))
                slopes += torch.autograd.grad(y, x)
            cells = (bold_unless_finite(number.item()) for number in (y, *slopes))
            name = str(dtype).removeprefix("torch.")
            yield code(guard), f"{at:g}", name, bound, *cells


def bold_unless_finite(number):
    return f"{number:.4g}" if math.isfinite(number) else f"**{number}**"
