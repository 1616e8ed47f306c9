"""lab/api.py notices a call of the last release that would break, and nothing else."""

import pytest

griffe = pytest.importorskip("griffe", reason="needs griffe")

from lab.api import find_breaks  # noqa: E402

F = "def f(input, min=None, *, gradient='a'): ...\n"
NN = "class Clamp:\n    def forward(self, input): ...\n__all__ = ['Clamp']\n"
FILES = {
    "__init__": "from m._inner import f\nfrom m import nn\n__all__ = ['f']\n",
    "_inner": F,
    "nn": NN,
    "cli": "def internal(): ...\n",  # a module whose name has no underscore
}


@pytest.mark.parametrize("change, break_count", [
    (("def f(input,", "def f(x,"), 2),  # one that is gone, and one that is needed
    (("gradient='a'", "gradient='b'"), 1),
    (("gradient='a'", "gradient='a', out=None"), 0),
    (("def internal", "def gone"), 0),
    (("def forward", "def _forward"), 1),
])  # fmt: skip
def test_what_breaks_is_noticed(tmp_path, change, break_count):
    def package(*change):
        folder = tmp_path / str(len(change)) / "m"
        folder.mkdir(parents=True)
        for name, text in FILES.items():
            (folder / f"{name}.py").write_text(text.replace(*change) if change else text)
        return griffe.load("m", search_paths=[folder.parent], resolve_aliases=True)

    assert len([*find_breaks(package(), package(*change))]) == break_count
