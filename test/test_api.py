"""docs/api.md is what the docstrings say, and names everything that is public."""

from pathlib import Path

import api
import clampgrad

PAGE = Path(__file__).parent.parent / "docs/api.md"


def test_it_is_current():
    assert PAGE.read_text() == api.page(), "run python docs/api.py"


def test_everything_is_in_it():
    text = PAGE.read_text()
    for name in clampgrad.__all__:
        assert f"`{name}`" in text or f"## clampgrad.{name}" in text
    for name in clampgrad.nn.__all__:
        assert f"### `nn.{name}`" in text


def test_examples_and_arguments():
    text = api.markdown(
        "Does.\n\nArgs:\n    x: the input,\n        a Tensor.\n    y, z: two.\n\nExample::\n\n    >>> f(1)\n    2\n"
    )
    assert "**Args:**\n\n- `x`: the input, a Tensor.\n- `y, z`: two." in text
    assert "**Example:**\n\n```pycon\n>>> f(1)\n2\n```" in text
