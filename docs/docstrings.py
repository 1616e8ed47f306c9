"""An extension of griffe (mkdocs.yml): docstrings have the roles of reStructuredText, as torch's
do; the site is Markdown."""

import re

from griffe import Extension


class Markdown(Extension):
    def on_instance(self, *, node, obj, agent, **_):
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text):
    text = re.sub(r":\w+:`~?(clampgrad[\w.]*)`", r"[`\1`][]", text)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^Example::$", "Examples:", text, flags=re.M)
    text = re.sub(r"^Errors:", "**Errors:**", text, flags=re.M)
    text = re.sub(r"^( +)(\w+), (\w+): (.*)$", r"\1\2: \4\n\1\3: likewise.", text, flags=re.M)
    return re.sub(r"::$", ":", text, flags=re.M)
