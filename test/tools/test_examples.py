"""Every example runs, draws its picture, and measures what records/examples says."""

import json
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import MappingKey, tree_flatten_with_path

import clampgrad
from testing.processes import python

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "records/examples"
END = "\n    main(measure, draw)"  # of every example that is a program of its own
FILES = sorted(path for path in ROOT.glob("examples/*.py") if END in path.read_text())
PROGRAMS = ["demo", *(pytest.param(path.stem, marks=pytest.mark.slow) for path in FILES)]
assert len(PROGRAMS) == 6


def leaves(file):
    """Flattens a JSON file to {path: leaf}."""
    pairs, _ = tree_flatten_with_path(json.loads(file.read_text()))
    return {tuple(k.key if isinstance(k, MappingKey) else k.idx for k in p): v for p, v in pairs}


@pytest.mark.parametrize("name", PROGRAMS)
def test_example(name, tmp_path):
    if name == "relu6_memory" and clampgrad.implementation != "compiled":
        pytest.skip("the portable implementation saves a byte where the compiled one saves a bit")
    printed = python(ROOT / f"examples/{name}.py", "--out", tmp_path)
    assert "Caveats." in printed or name == "demo"
    for picture in ("conventions", "image_fit") if name == "demo" else (name,):
        assert (tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    measured, committed = (leaves(folder / f"{name}.json") for folder in (tmp_path, COMMITTED))
    assert measured.keys() == committed.keys()
    same_release = committed.get(("torch",), "").split("+")[0] == torch.__version__.split("+")[0]
    for path, value in committed.items():
        if path in {("torch",), ("machine",)} or ("torch" in path and not same_release):
            continue  # on what it was measured
        # Rounding decides about a few pixels and images.
        exact = name == "demo" and "wrong" not in path
        expected = (
            value if isinstance(value, str) else pytest.approx(value, abs=1e-5 if exact else 0.02)
        )
        assert measured[path] == expected, path
