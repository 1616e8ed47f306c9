"""The tables of README.md and docs/ that show the contract, the examples and what is measured elsewhere."""

import json

import records
from oracle import TABLE as CONTRACT
from records import code, markdown

FRAMEWORKS = records.read("frameworks")
EXAMPLES = {
    p.stem: json.loads(p.read_text()) for p in sorted(records.FOLDER.glob("examples/*.json"))
}
DEMO = EXAMPLES.pop("demo")
PSEUDO = [key for key in CONTRACT["pseudo_gradients"]["rows"][0] if key != "position"]
EXACT = [name for name in CONTRACT["conventions"] if name not in PSEUDO]


def several(values):
    """Gradients of several arguments, in their order; of one alone, without brackets."""
    values = values if isinstance(values, list) else [values]
    return str(values[0]) if len(values) == 1 else f"({', '.join(map(str, values))})"


def names():
    """Every convention, its alias, whether it is a derivative, and its rule."""
    rows = [["name", "alias", "kind", "rule"]]
    aliases = {name: alias for alias, name in CONTRACT["aliases"].items()}
    for name, rule in CONTRACT["conventions"].items():
        alias = code(aliases[name]) if name in aliases else ""
        kind = "exact" if name in EXACT else "pseudo-gradient"
        rows.append([code(name), alias, kind, rule])
    return markdown(*rows)


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
    rows = [
        [f"{f['name']} {', '.join(f['versions'])}", *(cell(f[key]) for key in columns)]
        for f in FRAMEWORKS["rows"]
    ]
    return markdown(["", *columns.values()], *rows) + f"\n\nAs measured: {FRAMEWORKS['measured']}."


def pgd():
    accuracy = EXAMPLES["pgd_at_the_box"]["robust_accuracy"]
    rows = [[code(how), f"{value:.1%}"] for how, value in accuracy.items()]
    return markdown(["`gradient=`", "accuracy under attack"], *rows, right=[1])


def dead_pixels():
    """What becomes of the image where the loss is a mean over its values, and where it is a sum."""
    fit = DEMO["image_fit"]
    rows = [["`gradient=`", "wrong pixels, mean of squares", "sum of squares"]]
    for how in ("min_norm", "with_grad", "restoring", "straight_through"):
        rows.append([code(how), *(f"{fit['wrong'][how][loss]:.0%}" for loss in ("mean", "sum"))])
    note = (
        f"An image of {fit['size']} x {fit['size']} pixels fitted through `clamp(0, 1)` in "
        f"{fit['steps']} steps of Adam, learning rate {fit['learning_rate']:g}; "
        f"{fit['wrong']['start']:.0%} of the pixels are wrong (off by more than "
        f"{fit['tolerance']:g}) at the start. Measured with torch {DEMO['torch']}."
    )
    return markdown(*rows, right=(1, 2)) + "\n\n" + note


def nan_guard():
    slopes, weights = EXAMPLES["nan_guard"].values()
    rows = [[code(how), slope, weights[how]] for how, slope in slopes.items()]
    return markdown(["`gradient=`", "slope at 0", "weight after a step"], *rows)


def parameter_at_its_bound():
    rows = [[code(how), f"{x:.3g}"] for how, x in EXAMPLES["parameter_at_its_bound"]["end"].items()]
    return markdown(["`gradient=`", "x at the end"], *rows, right=[1])


def relu6_memory():
    rows = [[code(name), f"{size:.2f}"] for name, size in EXAMPLES["relu6_memory"]["MiB"].items()]
    return markdown(["", "MiB saved for backward"], *rows, right=[1])


def numbers():
    """The gradient of x where the bounds are numbers."""
    rows = [["operator", "position", *map(code, EXACT)]]
    for name, operator in CONTRACT["operators"].items():
        for row in operator["rows"]:
            if "numbers" in row:
                rows.append([code(name), row["position"], *(row["numbers"][c] for c in EXACT)])
    return markdown(*rows)


def tensors():
    """The gradients of all arguments where all are Tensors."""
    parts = []
    for name, operator in CONTRACT["operators"].items():
        arguments = ", ".join(operator["arguments"])
        rows = [[code(f"{name}({arguments})"), "A", *map(code, EXACT)]]
        for row in operator["rows"]:
            active = ", ".join(row["active"]) or "none"
            rows.append([row["position"], active, *(several(row["tensors"][c]) for c in EXACT)])
        parts.append(markdown(*rows))
    return "\n\n".join(parts)


def migration():
    """Where the gradients of the two ends of PyTorch's change differ."""
    rows = [["call", "at", "arguments", "`inclusive`: up to 2.13", "`joint`: 2.15"]]
    for kind in ("numbers", "tensors"):
        for name, operator in CONTRACT["operators"].items():
            for row in operator["rows"]:
                old, new = (row.get(kind, {}).get(c) for c in ("inclusive", "joint"))
                if old != new:
                    cells = (several(gradient) for gradient in (old, new))
                    rows.append([code(name), row["position"], kind, *cells])
    return markdown(*rows)


def pseudo_gradients():
    columns = CONTRACT["pseudo_gradients"]["columns"]
    rows = [["`gradient=`", "position", *columns]]
    for key in PSEUDO:
        for row in CONTRACT["pseudo_gradients"]["rows"]:
            rows.append([code(key), row["position"], *row[key]])
    return markdown(*rows)


def examples(keys):
    """One row an example; the gradients of each argument in brackets of their own."""
    rows = [["call", "at", *map(code, keys)]]
    for example in CONTRACT["examples"]:
        if keys[0] not in example:
            continue
        arguments = {k: v for k, v in example.items() if k not in ("call", *EXACT, *PSEUDO)}
        at = "; ".join(f"{k} = {', '.join(map(str, v))}" for k, v in arguments.items())
        gradients = [", ".join(several(values) for values in example[key]) for key in keys]
        rows.append([code(example["call"]), at, *gradients])
    return markdown(*rows)


TABLES = {
    "names": names,
    "frameworks": frameworks,
    "pgd": pgd,
    "dead_pixels": dead_pixels,
    "nan_guard": nan_guard,
    "parameter_at_its_bound": parameter_at_its_bound,
    "relu6_memory": relu6_memory,
    "numbers": numbers,
    "tensors": tensors,
    "migration": migration,
    "pseudo_gradients": pseudo_gradients,
    "exact_examples": lambda: examples(EXACT),
    "pseudo_examples": lambda: examples(PSEUDO),
}
