"""How our figures look, on light and on dark paper: one palette, one set of lines and letters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

# Paul Tol's "vibrant" colours, which the colour-blind can tell apart, and which both papers carry.
RED, BLUE, TEAL, ORANGE, MAGENTA = "#cc3311", "#0077bb", "#009988", "#ee7733", "#ee3377"
GREY = "#8a8a8a"
# Each with the colour of what is written on it.
PAPERS = {"light": ("white", "#222222"), "dark": ("#1e2129", "#d8d8d8")}


def need(module: str) -> Any:
    """Imports matplotlib, or a module of it, which only pictures need. Raises an ImportError that
    says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError("matplotlib is missing: pip install matplotlib") from error


@contextmanager
def style(paper: str = "light") -> Iterator[None]:
    """Gives figures that are made and written in this block, or decorated function, one style."""
    background, ink = PAPERS[paper]
    matplotlib = need("matplotlib")
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    backgrounds = ("figure.facecolor", "axes.facecolor")
    settings: dict[str, Any] = {
        **dict.fromkeys(inks, ink),
        **dict.fromkeys(backgrounds, background),
        "axes.prop_cycle": matplotlib.cycler(color=[BLUE, RED, TEAL, ORANGE, MAGENTA]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "axes.titlesize": 11,
        "font.size": 10,  # of a picture 6 inches wide, 8 pixels on a phone
        "grid.alpha": 0.25,
        "grid.color": GREY,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "savefig.dpi": 150,
    }
    with matplotlib.rc_context(settings):
        yield


def on_both(draw: Callable[[Path], None], path: Path) -> None:
    """Writes NAME.png, and NAME-dark.png for pages that are dark."""
    for paper in PAPERS:
        with style(paper):
            draw(path if paper == "light" else dark(path))


def dark(path: Path) -> Path:
    return path.with_stem(f"{path.stem}-dark")


def ink() -> str:
    """Returns the colour of text in the current style."""
    colour: str = need("matplotlib").rcParams["text.color"]
    return colour
