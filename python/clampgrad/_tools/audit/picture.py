"""A report as a picture."""

import math
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from clampgrad._contract.table import EXACT
from clampgrad._tools.audit.finding import Finding
from clampgrad._tools.style import GREY, RED, ink, need, style


@style()
def picture(findings: list[Finding], path: str | Path, place: Callable[[str, int], str]) -> None:
    """Where elements stand and how far gradients would move, one bar per call site."""
    findings = findings[::-1]
    figure = need("matplotlib.figure").Figure(
        figsize=(10, 1.6 + 0.32 * len(findings)), layout="constrained"
    )
    left, right = figure.subplots(1, 2, sharey=True)
    names = [f"{f.function}  {f.module or place(f.file, f.line)}" for f in findings]
    start = [0.0] * len(findings)
    for kind, colour in {"at_bound": RED, "beyond": GREY, "nan": ink()}.items():
        shares = [getattr(f, kind) / max(f.elements, 1) for f in findings]
        left.barh(range(len(names)), shares, left=start, color=colour, label=kind.replace("_", " "))
        start = [a + b for a, b in zip(start, shares)]
    left.set(xlabel="share of the elements", xlim=(0, 1), yticks=range(len(names)))
    left.set_yticklabels(names, fontsize=8)
    for convention, marker in zip(EXACT, cycle("os^D")):
        far = [f.moved.get(convention) for f in findings]
        right.plot(
            *([math.nan if v is None else v for v in far], range(len(names))),
            *(marker,),
            label=convention,
            alpha=0.7,
        )
    right.set(xlabel="how far the gradient would move")
    right.grid()
    for panel in (left, right):
        panel.legend(fontsize=8, frameon=False, loc="lower right")
    figure.savefig(path)
