"""An extension of griffe (mkdocs.yml): docstrings have the roles of reStructuredText, as torch's
do; the site is Markdown."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import yaml
from griffe import Extension

ROOT = Path(__file__).parents[2]
CONTRACT = yaml.safe_load((ROOT / "conventions.yaml").read_text())


def filler():
    """The function that fills docstrings from the contract. The package around it
    needs torch, which is not here."""
    path = ROOT / "python/clampgrad/_contract/docstrings.py"
    spec = spec_from_file_location("docstrings_of_the_contract", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.filled


filled = filler()


class Markdown(Extension):
    def on_instance(self, *, node, obj, agent, **_):
        if obj.docstring:
            obj.docstring.value = markdown(filled(obj.docstring.value, obj.name, CONTRACT))


def markdown(text):
    text = re.sub(r":\w+:`~?(clampgrad[\w.]*)`", r"[`\1`][]", text)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^Example::$", "Examples:", text, flags=re.M)
    text = re.sub(r"^Errors:", "**Errors:**", text, flags=re.M)
    text = re.sub(r"^( +)(\w+), (\w+): (.*)$", r"\1\2: \4\n\1\3: likewise.", text, flags=re.M)
    return re.sub(r"::$", ":", text, flags=re.M)
