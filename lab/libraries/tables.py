"""The tables of docs/programs.md, from records/convert-libraries.jsonl."""

import records
from records import table

NAMED = "ReLU", "ReLU6", "Hardtanh"


@table()
def convert_libraries():
    """One row a case."""
    yield "library", "case", "class changed", "`convert(model)`", "`example_inputs`", "named"
    for row in records.read("convert-libraries")["rows"]:
        before, now, example = (short(row[way]) for way in ("before", "convert", "example"))
        yield row["library"], row["case"], before, now, example, of_named(row)
    record = records.read("convert-libraries")
    versions = ", ".join(f"{name} {number}" for name, number in record["libraries"].items())
    yield f"{records.made_on(record)}; {versions}."


def short(text):
    """Without what an error or a warning says."""
    if not text:
        return "converts nothing"
    kind = text.split(":")[0].split(",")[0]
    return {"silent": f"**{text.removeprefix('silent: ').split(',')[0]}**"}.get(kind, kind)


def of_named(row):
    """One word, or one for each kind of module."""
    words = {name: short(row[name]) for name in NAMED if row[name]}
    if not words:
        return ""
    usual = max(words.values(), key=[*words.values()].count)
    others = [f"{name}: {word}" for name, word in words.items() if word != usual]
    return ", ".join([usual, *others])
