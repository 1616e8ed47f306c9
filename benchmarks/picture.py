"""The picture of README.md, docs/img/cost.png: what a pin and `convert` change in a training step.

python -m benchmarks.picture     from records/real-models-*.jsonl; `nox -s pictures` does it too
"""

from pathlib import Path
from textwrap import fill

from benchmarks.tables import models
from clampgrad._tools.style import BLUE, GREY, TEAL, ink, need, on_both

DOCS = Path(__file__).resolve().parent.parent / "docs/img/cost.png"
COLOURS = {"stock": GREY, "pin": BLUE, "convert": TEAL}


def kind(setting):
    return setting.partition("(")[0]


def cases():
    """{model: {kind of setting: [(MiB that are kept, time over stock's), ...]}}, on CPUs."""
    points = {}
    for record in models("real-models-"):
        if "gpu" not in record["machine"]:
            stock = {r["model"]: r for r in record["rows"] if r["setting"] == "stock"}
            for r in record["rows"]:
                ratio = r["milliseconds"] / stock[r["model"]]["milliseconds"]
                of_model = points.setdefault(r["model"], {})
                of_model.setdefault(kind(r["setting"]), []).append(
                    (r["saved_bytes"] / 2**20, ratio)
                )
    return points


def label_of(model):
    """Its name without the dtype, in lines short enough for a phone."""
    words = model.rpartition(",")[0].replace("_", "_ ")
    return fill(words, 14, break_long_words=False).replace("_ ", "_")


def draw(path):
    models = cases()
    plt = need("matplotlib.pyplot")
    figure, (kept, time) = plt.subplots(1, 2, figsize=(6, 4.2), sharey=True, layout="constrained")
    time.axvline(1, color=GREY, linewidth=0.8)
    for lane, (what, colour) in enumerate(COLOURS.items()):
        for row, of_model in enumerate(models.values()):
            at = row + 0.26 * (lane - 1)
            mib = min(mib for mib, _ in of_model[what])
            label = {"stock": "PyTorch", "pin": "a pin"}.get(what, what) if row == 0 else None
            kept.barh(at, mib, height=0.24, color=colour, label=label)
            place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            kept.annotate(f"{mib:.0f}", (mib, at), color=ink(), fontsize=9, **place)
            if what != "stock":
                ratios = [ratio for _, ratio in of_model[what]]
                time.scatter(ratios, [at] * len(ratios), color=colour, s=18)
    kept.set_yticks(range(len(models)), map(label_of, models))
    kept.set_ylim(len(models) - 0.5, -0.5)
    kept.set_xlim(0, 1.15 * max(mib for of in models.values() for mib, _ in of["stock"]))
    kept.set_title("kept for backward,\nMiB", loc="left")
    kept.legend(loc="upper right")
    time.set_title("time of a step\nover PyTorch's", loc="left")
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    on_both(draw, DOCS)
