"""An extension of griffe (mkdocs.yml): docstrings have the roles of reStructuredText, as torch's
do; the site is Markdown."""

import re
from pathlib import Path

import yaml
from griffe import Extension

CONTRACT = yaml.safe_load((Path(__file__).parents[2] / "conventions.yaml").read_text())


class Markdown(Extension):
    def on_instance(self, *, node, obj, agent, **_):
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text):
    text = text.replace("{conventions}", conventions())
    text = re.sub(r":\w+:`~?(clampgrad[\w.]*)`", r"[`\1`][]", text)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^Example::$", "Examples:", text, flags=re.M)
    text = re.sub(r"^Errors:", "**Errors:**", text, flags=re.M)
    text = re.sub(r"^( +)(\w+), (\w+): (.*)$", r"\1\2: \4\n\1\3: likewise.", text, flags=re.M)
    return re.sub(r"::$", ":", text, flags=re.M)


def conventions():
    """What `help` says in this place too, there by python/clampgrad/functional.py."""
    lines = []
    for name, rule in CONTRACT["conventions"].items():
        aliases = [f" or `{a}`" for a, of in CONTRACT["aliases"].items() if of == name]
        lines.append(f"- `{name}`{''.join(aliases)}: {rule}")
    return "\n".join(lines)
