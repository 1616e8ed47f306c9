"""Tables for the terminal and pictures for the disk, from what the other files measure."""

import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

import behind_a_clamp
import clampgrad
import image_fit
from at_the_bounds import EXACT

# ---- Tables --------------------------------------------------------------------------------------


def numbers(values):
    return ", ".join(f"{v:g}" for v in values)


def new_table(title, *columns, caption=None):
    """A table whose first column names the rows; the others hold numbers."""
    table = Table(title="\n" + title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    return table


def your_torch(rows, release):
    table = new_table(
        "The gradient at a bound: your torch, and the same function by clampgrad",
        *("function", "x", f"torch\n{release}", *EXACT),
        caption="Yellow: not the gradient of least norm, which is what min_norm gives.",
    )
    for row in rows:
        colour = "green" if row["torch"] == row["min_norm"] else "yellow"
        table.add_row(
            row["function"],
            numbers(row["x"]),
            f"[{colour}]{numbers(row['torch'])}[/]",
            *(numbers(row[how]) for how in EXACT),
        )
    return table


def every_convention(data):
    table = new_table(
        f"The gradient of {data['function']} under every convention",
        *("gradient=", *(f"x = {x}" for x in data["x"])),
        caption="The incoming gradient is 1: descent wants x smaller.",
    )
    for how, values in data["gradient"].items():
        table.add_row(how, *(f"{v:g}" for v in values))
    return table


def worked_example(data):
    table = new_table(
        f"a = {data['a']}, b = {data['b']}",
        *("gradient=", "clamp(a*b, 1, 5).sum()", "a.grad", "b.grad"),
    )
    for how in clampgrad.CONVENTIONS:
        row = data[how]
        table.add_row(how, f"{row['value']:g}", numbers(row["a.grad"]), numbers(row["b.grad"]))
    return table


def wrong_pixels(data):
    table = new_table(
        f"Wrong pixels after {data['steps']} steps of Adam",
        *("gradient=", "mean of squares", "sum of squares"),
        caption="restoring ignores the scale of the loss.",
    )
    table.add_row("(start)", *[f"{data['wrong']['start']:.1%}"] * 2, style="dim")
    for how in clampgrad.CONVENTIONS:
        shares = data["wrong"][how]
        table.add_row(how, f"{shares['mean']:.1%}", f"{shares['sum']:.1%}")
    return table


# ---- Pictures ------------------------------------------------------------------------------------


def conventions(path):
    """One panel a convention: the clamp, the loss behind it, and the gradient that x gets."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    x = behind_a_clamp.X
    at_bound = x.abs() == 1
    red = {"color": "tab:red"}
    dotted = {"color": "tab:purple", "linestyle": ":", "linewidth": 2}
    for panel, how in zip(axes.flat, clampgrad.CONVENTIONS, strict=False):
        y, loss, gradient = behind_a_clamp.curves(gradient=how)
        panel.axvspan(-2, -1, color="0.94")
        panel.axvspan(1, 2, color="0.94")
        panel.plot(x, y, color="0.5", linewidth=1, label="clamp(x, -1, 1)")
        panel.plot(x, loss, color="tab:blue", label="loss = sin(π clamp(x, -1, 1)) + 1")
        # The gradient may jump at a bound: the line is cut there, and a dot says what it is.
        panel.plot(x, gradient.masked_fill(at_bound, torch.nan), label="d loss / dx", **red)
        panel.plot(x[at_bound], gradient[at_bound], "o", markersize=4, **red)
        if how in ("with_grad", "restoring"):
            _, _, ascent = behind_a_clamp.curves(gradient=how, maximize=True)
            outside = ascent.masked_fill(x.abs() <= 1, torch.nan)
            panel.plot(x, outside, label="… with maximize=True", **dotted)
            legend = panel.get_legend_handles_labels()
        panel.set_title(how, family="monospace", fontsize=11)
        panel.set_xlim(-2, 2)
        panel.set_xticks([-1, 0, 1])
        panel.grid(alpha=0.25)
    axes.flat[3].tick_params(labelbottom=True)
    for panel in axes[1]:
        panel.set_xlabel("x")
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(*legend, loc="center", frameon=False, fontsize=9.5)
    figure.savefig(path, dpi=110)


def fitted_images(images, path):
    """Before and after: the target, the start, and the fit under each convention."""
    shown = {"target": "target", "start": "start"}
    shown.update({how: (how, "mean") for how in clampgrad.CONVENTIONS})
    shown["restoring, sum"] = ("restoring", "sum")
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    axes = figure.subplots(2, 5)
    for panel, (title, key) in zip(axes.flat, shown.items(), strict=True):
        panel.imshow(images[key].permute(1, 2, 0).numpy(), interpolation="nearest")
        share = image_fit.wrong(images[key], images["target"])
        panel.set_title(f"{title}\n{share:.1%} wrong", fontsize=10)
        panel.axis("off")
    figure.savefig(path, dpi=110)
