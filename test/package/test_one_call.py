"""docs/architecture.md follows one call, and one pin, through the files: they are there, and call each other."""

import re
from pathlib import Path

import pytest
import torch

import clampgrad
from codegen.generate import render

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| \d \| `([^`]+)` \| (.+?) \|", re.MULTILINE)


@pytest.fixture(scope="module")
def texts():
    """The texts of the files, generated ones too."""
    generated = render(ROOT / "csrc/native_functions.yaml", ROOT / "derivatives.yaml")
    texts = {f"generated/{name}": text for name, text in generated.items()}
    return {
        file: texts.get(file) or (ROOT / file).read_text() for file, _ in walk() + walk("One pin")
    }


def walk(of="One call"):
    """The steps: a file and its functions."""
    section = (ROOT / "docs/architecture.md").read_text().partition(f"## {of}")[2]
    rows = ROW.findall(section.partition("\n## ")[0])
    return [(file, re.findall(r"`([\w:]+)`", names)) for file, names in rows]


def is_defined(name, text):
    if text.startswith('"""'):
        return re.search(rf"^ *def {name}\(", text, re.MULTILINE)
    return re.search(rf"(?<!\w){name}\b[^;{{}}]*\{{", text)


def is_called(name, text):
    """Also if it is only named, as a type or a template. With arguments in an unindented line, it is defined."""
    return re.search(
        rf"^(?:[ \t].*(?<!\w){name}\b\s*\(|.*(?<!\w){name}\b\s*[<,;])", text, re.MULTILINE
    )


def test_it_takes_eight_files():
    files = {file for file, _ in walk()}
    assert len(files) <= 8 and sum(file.startswith("generated/") for file in files) <= 2
    assert len(walk()) > len(files)  # and back


def test_each_file_has_what_the_walk_says(texts):
    for file, names in walk():
        for name in names:
            assert is_defined(name, texts[file]), f"{file} does not define {name}"


def test_the_pin_takes_six_files(texts):
    """Each file defines its functions, and one of them calls each. Python calls the first and the last, torch a kernel."""
    steps = walk("One pin")
    assert len({file for file, _ in steps}) <= 6
    for file, names in steps:
        for name in names:
            assert is_defined(name.rpartition("::")[2], texts[file]), (
                f"{file} does not define {name}"
            )
            callers = [text for text in texts.values() if is_called(name.rpartition("::")[2], text)]
            assert callers or name in ("__enter__", "__exit__"), f"nobody calls {name}"


def calls():
    """Maps each name of the walk to the file that calls it.

    The first name of a step is called by the step before; by its own file where that is the function in
    Python, which it replaces (below), and by the file that makes the node where it is autograd's. The
    other names of a step are called in its file.
    """
    steps = walk()
    for (before, _), (file, names) in zip(steps, steps[1:]):
        if before.endswith(".py"):
            before = file
        elif file.endswith("Functions.cpp"):
            before = "csrc/ops/numbers.cpp"
        yield from zip(names, (before, *[file] * (len(names) - 1)))


def test_every_name_of_the_walk_is_called(texts):
    assert len([*calls()]) == sum(len(names) for _, names in walk()[1:])
    for name, caller in calls():
        assert is_called(name, texts[caller]), f"{caller} does not call {name}"


@pytest.mark.compiled("the portable implementation is another walk")
def test_the_call_takes_this_way(texts):
    assert type(clampgrad.clamp).__name__ == "builtin_function_or_method"
    x = torch.tensor([-1.0, 0.0, 3.0, 6.0], requires_grad=True)
    y = clampgrad.clamp(x, 0, 6, gradient="half")
    assert y.grad_fn.name() in dict((names[0], file) for file, names in walk())
    y.sum().backward()
    assert x.grad.tolist() == [0, 0.5, 1, 0.5]
