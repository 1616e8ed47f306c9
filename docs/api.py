"""Write docs/api.md from the docstrings of the package: `make pictures` does it too."""

import importlib
import inspect
import re
from pathlib import Path

import clampgrad

PAGE = Path(__file__).parent / "api.md"
HEAD = """# API

Made from the docstrings by [api.py](api.py). What every convention means, case by case, is in
[conventions.md](conventions.md).
"""
CONSTANTS = {
    "CONVENTIONS": "The names of all conventions",
    "EXACT": "Those that differ at ties and at NaN alone",
    "PSEUDO": "Those that are no derivatives of the forward, on purpose",
}


def markdown(text):
    """A docstring, which is reStructuredText of a simple kind, as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)  # roles
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"::$", ":", text, flags=re.M)
    text = re.sub(r"^(Args|Returns|Raises|Errors|Example):(:?)$", r"**\1:**", text, flags=re.M)
    text = re.sub(r"^={3,}.*?^={3,}\s+={3,}$", table, text, flags=re.M | re.S)
    return re.sub(r"(?:^ {4}.*\n?|^\n(?= {4}))+", indented, text + "\n", flags=re.M)


def table(match):
    lines = match[0].splitlines()
    width = lines[0].index(" ")
    rows = [(line[:width].strip(), line[width:].strip()) for line in lines[1:-1]]
    return "\n".join(["| | |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)])


def indented(match):
    """What is indented is code if it is a session, and a list of arguments otherwise."""
    block = inspect.cleandoc("\n" + match[0])
    if ">>>" in block:
        return f"\n```pycon\n{block}\n```\n"
    block = re.sub(r"\n +", " ", block)
    items = [re.sub(r"^([a-z_, ]+): ", r"`\1`: ", line) for line in block.splitlines()]
    return "\n" + "\n".join(f"- {item}" for item in items) + "\n\n"


def signature(name, thing):
    """As it is written: annotations without quotes, one argument a line if it is long."""
    arguments, keywords_only = [], False
    found = inspect.signature(thing)
    for argument in found.parameters.values():
        if argument.kind == argument.KEYWORD_ONLY and not keywords_only:
            arguments.append("*")
        keywords_only |= argument.kind in (argument.KEYWORD_ONLY, argument.VAR_POSITIONAL)
        text = re.sub(r": '([^']*)'", r": \1", str(argument))
        text = re.sub(r"<function (\w+) at \w+>", r"\1", text)
        arguments += [text] if argument.name != "self" else []
    returns = found.return_annotation
    arrow = f" -> {returns}" if isinstance(returns, str) and not inspect.isclass(thing) else ""
    short = f"{name}({', '.join(arguments)}){arrow}"
    long = f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){arrow}"
    return short if len(short) <= 90 else long


def entry(name, thing, level="###"):
    parts = [f"{level} `{name}`"]
    if inspect.isfunction(thing) or inspect.isclass(thing):
        parts.append(f"```py\n{signature(name, thing)}\n```")
    parts.append(markdown(inspect.getdoc(thing) or ""))
    if inspect.isclass(thing):
        for key, value in vars(thing).items():
            value = getattr(value, "__func__", value)
            if inspect.isfunction(value) and key[0] != "_" and key != "forward" and value.__doc__:
                parts.append(entry(f"{thing.__name__}.{key}", value, level + "#"))
    return "\n\n".join(part.strip() for part in parts)


def page():
    parts = [HEAD, "## clampgrad", markdown(inspect.getdoc(clampgrad.functional))]
    for name in sorted(clampgrad.__all__, key=str.lower):
        thing = getattr(clampgrad, name)
        if callable(thing):
            own = thing.__name__
            parts.append(entry(name, thing) if own == name else f"### `{name}`\n\n`{own}`.")
    for name, what in CONSTANTS.items():
        names = ", ".join(f"`{name}`" for name in getattr(clampgrad, name))
        parts.append(f"### `{name}`\n\n{what}: {names}.")
    parts.append(
        '### `implementation`\n\n`"compiled"`, or `"portable"` where no compiled library serves the '
        "installed torch: the same functions, in plain PyTorch."
    )
    for name in ("nn",):
        module = importlib.import_module(f"clampgrad.{name}")
        parts += [f"## clampgrad.{name}", markdown(inspect.getdoc(module))]
        parts += [entry(f"{name}.{n}", getattr(module, n)) for n in module.__all__]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(part.strip() for part in parts)) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
