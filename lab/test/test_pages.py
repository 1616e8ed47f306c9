"""The tables of the pages are what the records say."""

from pathlib import Path

import pytest
import torch

import records
from lab import contract_tables, fill_tables, private_names_page
from testing.processes import run_checked

ROOT = Path(__file__).resolve().parents[2]


def read(page):
    return (ROOT / page).read_text()


def test_every_table_is_on_a_page():
    tables = {name for page in fill_tables.pages() for name in fill_tables.names_in(read(page))}
    assert tables == set(fill_tables.TABLES)


@pytest.mark.parametrize("page", fill_tables.pages())
def test_tables_are_what_the_data_says(page):
    assert fill_tables.fill(read(page)) == read(page)


# Those of PyTorch alone, and those whose rows name commits or are of none.
NAMELESS = {"changes", "frameworks", "fuzz", "matrix", "sessions", "source-build", "verified"}
# Made before records named a commit, or on changes that are in none. Whoever measures one again
# takes it off.
UNKNOWN = {
    *("audited", "clamps-elsewhere", "compiled-models", "convert-libraries"),
    *("convert-zoo", "in-place-hardtanh", "joint-2.13.0", "operator-counts"),
    *("programs", "tensor-bounds", "tensor-bounds-t5", "vec16-proof", "vec16-times"),
}
CHANGED = {
    *("ends", "evaluated-models", "learned-bounds", "real-models-2.13.0", "real-models-2.15.0"),
}


def test_a_record_names_its_commit():
    unknown, changed = set(), set()
    for path in records.FOLDER.glob("*.jsonl"):
        commit = records.read(path.stem).get("commit", "")
        unknown |= set() if commit else {path.stem}
        changed |= {path.stem} if commit.endswith("-dirty") else set()
    assert (unknown - NAMELESS, changed) == (UNKNOWN, CHANGED)


def test_a_record_says_that_the_tree_had_changes(tmp_path, monkeypatch):
    """In what is measured: pages and other records are not."""
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b")
    run_checked("git", "-C", tmp_path, "init", "-q")
    monkeypatch.setattr(records, "FOLDER", tmp_path / "records")
    (tmp_path / "records").mkdir()
    (tmp_path / "setup.py").write_text("")
    run_checked(*git, "add", ".")
    run_checked(*git, "commit", "-q", "-m", "one")
    head = run_checked(*git, "rev-parse", "HEAD")[:7]
    (tmp_path / "README.md").write_text("")
    records.write("measured", [])
    assert records.read("measured") == {"commit": head, "rows": []}
    assert records.at_commit(records.read("measured")) == f", at commit `{head}`"
    (tmp_path / "setup.py").write_text("changed")
    records.write("measured", [])
    assert records.at_commit(records.read("measured")) == f", at commit `{head}` with changes"
    records.write("measured", [], commit=None)
    assert records.at_commit(records.read("measured")) == ""


def test_a_table_without_an_end_takes_no_prose():
    for behind in ("", "<!-- generated: zoo -->\n<!-- end -->"):
        with pytest.raises(AssertionError, match="generated: release"):
            fill_tables.fill("<!-- generated: release -->\nprose\n" + behind)


def test_the_rows_elsewhere_agree_with_the_contract():
    """jax.numpy.clip is half, and the releases of torch are inclusive and joint: tests of the
    contract measure the installed one."""
    rows = {row["versions"][0]: row for row in contract_tables.FRAMEWORKS["rows"]}
    for convention, version in {"inclusive": "2.13.0", "joint": "2.14", "half": "0.10.2"}.items():
        row = rows[version]

        def shares(operator, position, kind):
            table = contract_tables.CONTRACT["operators"][operator]["rows"]
            return next(r for r in table if r["position"] == position)[kind][convention]

        for position, key in {"x = lo < hi": "clip", "x = lo = hi": "collapsed"}.items():
            actual = row[key]["jnp.clip"] if convention == "half" else row[key]
            assert actual == shares("clamp", position, "numbers")
        assert row["pair"] == (tie := shares("maximum", "x = y", "tensors"))
        both = {"maximum": tie[0], "clamp_min": shares("clamp_min", "x = lo", "numbers")}
        assert row["constant"] in (tie[0], both)


def test_internal_headers_are_there():
    include = Path(torch.__file__).parent / "include"
    headers = private_names_page.internal_headers()
    assert len(headers) > 5
    assert [h for h in headers if not (include / h).exists()] == []
