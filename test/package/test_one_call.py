"""docs/architecture.md follows one call, and one pin, through few files: they are there, and call each other."""

import re
from pathlib import Path

import pytest
import torch

import clampgrad
from codegen.generate import YAMLS, render

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| \d \| `([^`]+)` \| (.+?) \|", re.MULTILINE)
MOST = {"One call": 8, "One pin": 6}  # files
BY_PYTHON = {"_implemented", "__enter__", "__exit__"}  # the decorator, and what `with` calls


def walk(of):
    """The steps: a file and its functions."""
    section = (ROOT / "docs/architecture.md").read_text().partition(f"## {of}")[2]
    rows = ROW.findall(section.partition("\n## ")[0])
    return [(file, re.findall(r"`(?:\w+::)?(\w+)`", names)) for file, names in rows]


def is_defined(name, text):
    if text.startswith('"""'):
        return re.search(rf"^ *def {name}\(", text, re.MULTILINE)
    return re.search(rf"(?<!\w){name}\b[^;{{}}]*\{{", text)


def is_called(name, text):
    """Also if it is only named, as a type or a template. With arguments in an unindented line, it is defined."""
    return re.search(
        rf"^(?:[ \t].*(?<!\w){name}\b\s*\(|.*(?<!\w){name}\b\s*[<,;])", text, re.MULTILINE
    )


@pytest.mark.parametrize("of", MOST)
def test_each_file_has_what_the_walk_says(of):
    """It defines its functions, and a file of the walk calls each of them."""
    steps = walk(of)
    generated = render(*(ROOT / name for name in YAMLS))
    texts = {f"generated/{name}": text for name, text in generated.items()}
    texts = {file: texts.get(file) or (ROOT / file).read_text() for file, _ in steps}
    assert 1 < len(texts) <= MOST[of]
    for file, names in steps:
        assert names
        for name in names:
            assert is_defined(name, texts[file]), f"{file} does not define {name}"
            called = name in BY_PYTHON or any(is_called(name, text) for text in texts.values())
            assert called, f"nobody calls {name}"


@pytest.mark.compiled("the portable implementation is another walk")
def test_the_call_takes_this_way():
    assert type(clampgrad.clamp).__name__ == "builtin_function_or_method"
    x = torch.tensor([-1.0, 0.0, 3.0, 6.0], requires_grad=True)
    y = clampgrad.clamp(x, 0, 6, gradient="half")
    assert [y.grad_fn.name()] in [names for _, names in walk("One call")]
    y.sum().backward()
    assert x.grad.tolist() == [0, 0.5, 1, 0.5]
