"""Tables for the terminal and pictures for the disk, from what the other files measure."""

from matplotlib.figure import Figure

import clampgrad
import image_fit
from clampgrad._tools.style import style
from clampgrad._tools.tables import Table

# ---- Tables --------------------------------------------------------------------------------------


def numbers(values):
    return ", ".join(f"{v:g}" for v in values)


def new_table(title, *columns, caption=""):
    """A table whose first column names the rows; the others hold numbers."""
    return Table(columns, columns[:1], f"\n{title}", caption)


def your_torch(rows, release):
    shown = new_table(
        "The gradient at a bound: your torch, and the same function by clampgrad",
        *("function", "x", f"torch {release}  ", *clampgrad.EXACT),
        caption="*: not the gradient of least norm, which is what min_norm gives.",
    )
    for row in rows:
        least = row["torch"] == row["min_norm"]
        mark = "  " if least else " *"
        shown.add_row(
            row["function"],
            numbers(row["x"]),
            numbers(row["torch"]) + mark,
            *(numbers(row[how]) for how in clampgrad.EXACT),
        )
    return shown


def every_convention(data):
    shown = new_table(
        f"The gradient of {data['function']} under every convention",
        *("gradient=", *(f"x = {x}" for x in data["x"])),
        caption="The incoming gradient is 1: descent wants x smaller.",
    )
    for how, values in data["gradient"].items():
        shown.add_row(how, *(f"{v:g}" for v in values))
    return shown


def worked_example(data):
    shown = new_table(
        f"a = {data['a']}, b = {data['b']}",
        *("gradient=", "clamp(a*b, 1, 5).sum()", "a.grad", "b.grad"),
    )
    for how in clampgrad.CONVENTIONS:
        row = data[how]
        shown.add_row(how, f"{row['value']:g}", numbers(row["a.grad"]), numbers(row["b.grad"]))
    return shown


def wrong_pixels(data):
    shown = new_table(
        f"Wrong pixels after {data['steps']} steps of Adam",
        *("gradient=", "mean of squares", "sum of squares"),
        caption="restoring ignores the scale of the loss.",
    )
    shown.add_row("(start)", *[f"{data['wrong']['start']:.1%}"] * 2)
    for how in clampgrad.CONVENTIONS:
        shares = data["wrong"][how]
        shown.add_row(how, f"{shares['mean']:.1%}", f"{shares['sum']:.1%}")
    return shown


# ---- Pictures ------------------------------------------------------------------------------------


@style()
def fitted_images(images, path):
    """Before and after: the target, the start, and the fit under each convention."""
    shown = {"target": "target", "start": "start"}
    shown.update({how: (how, "mean") for how in clampgrad.CONVENTIONS})
    shown["restoring, sum"] = ("restoring", "sum")
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, (len(shown) + 1) // 2).flat
    for panel in axes[len(shown) :]:
        panel.remove()
    for panel, (title, key) in zip(axes, shown.items()):
        panel.imshow(images[key].permute(1, 2, 0).numpy(), interpolation="nearest")
        share = image_fit.wrong(images[key], images["target"])
        panel.set_title(f"{title}\n{share:.1%} wrong")
        panel.axis("off")
    figure.savefig(path)
