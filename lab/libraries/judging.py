"""How a case ends with a converted model, compared with the stock model: to the bit."""

import contextlib
import re
import sys
import warnings

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

import clampgrad
from lab.libraries.cases import CASES

# Its gradient differs from torch's at every value beyond a bound.
NAMED = "straight_through"
ABOUT = re.compile("clampgrad|gradient")  # a warning
AS_STOCK = "as stock"
ARRIVES = "arrives"
LOST = "silent: lost"


def stock(model, x):
    return model


def converted(model, x):
    return clampgrad.nn.convert(model)


def by_example(model, x):
    """In training mode, in which more is kept."""
    mode = model.training
    clampgrad.nn.convert(model.train(), example_inputs=(x,))
    return model.train(mode)


def named(kind):
    """Only modules of one kind: where it does not arrive, no other kind hides that."""

    def is_one(module, _):
        return isinstance(module, kind) and isinstance(module, nn.ReLU6) == (kind is nn.ReLU6)

    return lambda model, x: clampgrad.nn.set_gradient(model, NAMED, filter_fn=is_one)


CONVERSIONS = {"convert": converted, "example": by_example}
OTHERS = {kind.__name__: named(kind) for kind in (nn.ReLU, nn.ReLU6, nn.Hardtanh)}
WAYS = CONVERSIONS | OTHERS


def verdicts(name, ways=WAYS):
    """How a case ends in each of the ways; or the error that the stock model has."""
    case = CASES[name]
    expected, usual, error = ran(case, stock)
    if error:
        return {"stock": error}
    return {way: verdict(case, way, expected, usual) for way in ways}


def send_verdicts(connection, name, ways):
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print
        connection.send(verdicts(name, ways))


def verdict(case, way, expected, usual):
    result, said, error = ran(case, WAYS[way])
    if error:
        return f"error: {error}"
    if any(" found no " in text and "clampgrad.nn" in text for text in said):
        return ""  # no module of that kind, or none left
    difference = first_difference(expected, result)
    if way in CONVERSIONS:
        return f"silent: differs, {difference}" if difference else AS_STOCK
    if ours := [text for text in said if text not in usual and ABOUT.search(text)]:
        return f"warning: {ours[0]}"
    if case.gradients:
        return ARRIVES if difference else LOST
    return f"differs, {difference}" if difference else AS_STOCK


def wrong(name, found):
    """Whether a converted model is not as stock, or loses a convention in silence."""
    error = CASES[name].error

    def holds(way, text):
        if error and way != "stock":
            return text.startswith("error: ") and error in text
        return text == AS_STOCK if way in CONVERSIONS else way != "stock" and text != LOST

    return not all(holds(*pair) for pair in found.items())


def ran(case, change):
    """What a case returns, its warnings, and its error."""
    torch.manual_seed(0)
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return case.function(change), [str(w.message) for w in said], None
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            return None, [], f"{type(error).__name__}: {first}"


def first_difference(a, b):
    """Between two results, or None."""
    (a, structure), (b, other) = tree_flatten(a), tree_flatten(b)
    if structure != other:
        return "in structure"
    return next(filter(None, map(difference, a, b)), None)


def difference(a, b):
    if not isinstance(a, torch.Tensor):
        return None if a == b else "in what is not a tensor"
    if a.shape != b.shape or a.dtype != b.dtype:
        return "in sizes or dtypes"
    return (
        None
        if torch.equal(a, b)
        else f"by {(a.detach().double() - b.detach().double()).abs().max():.2g}"
    )
