"""The tables of the pages are what the records say."""

from pathlib import Path

import pytest
import torch

from lab import contract_tables, fill_tables, private_names_page

ROOT = Path(__file__).resolve().parents[2]


def read(page):
    return (ROOT / page).read_text()


def test_every_table_is_on_a_page():
    tables = {name for page in fill_tables.pages() for name in fill_tables.names_in(read(page))}
    assert tables == set(fill_tables.TABLES)


@pytest.mark.parametrize("page", fill_tables.pages())
def test_tables_are_what_the_data_says(page):
    assert fill_tables.fill(read(page)) == read(page)


def test_the_rows_elsewhere_agree_with_the_contract():
    """jax.numpy.clip is half, and the releases of torch are inclusive and joint: tests of the contract
    measure the installed one."""
    rows = {row["versions"][0]: row for row in contract_tables.FRAMEWORKS["rows"]}
    sources = {
        "inclusive": ("2.13.0", None),
        "joint": ("2.14", None),
        "half": ("0.10.2", "jnp.clip"),
    }
    contract = {
        (operator, row["position"]): row
        for operator, table in contract_tables.CONTRACT["operators"].items()
        for row in table["rows"]
    }
    for convention, (version, function) in sources.items():
        row = rows[version]
        for position, key in {"x = lo < hi": "clip", "x = lo = hi": "collapsed"}.items():
            found = row[key][function] if function else row[key]
            assert found == contract["clamp", position]["numbers"][convention]
        tie = contract["maximum", "x = y"]["tensors"][convention]
        bound = contract["clamp_min", "x = lo"]["numbers"][convention]
        assert row["pair"] == tie
        assert row["constant"] in (tie[0], {"maximum": tie[0], "clamp_min": bound})


def test_internal_headers_are_there():
    include = Path(torch.__file__).parent / "include"
    headers = private_names_page.internal_headers()
    assert len(headers) > 5
    assert [h for h in headers if not (include / h).exists()] == []
