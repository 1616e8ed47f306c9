"""What looks at the site (tools/look_at_site.py) finds what does not fit. `make look` runs it on the site, also in
.ci/run, where there is chromium."""

import pytest

from tools.look_at_site import DESK, PHONE, browser, complaints, look, search

PAGE = "<!doctype html><meta name=viewport content='width=device-width'><body style='margin: 0'>{}"
BOXES = {
    "fits.html": "<p>text",
    "wide.html": "<div style='width: 600px'>text</div>",
    "table.html": "<div class=md-typeset__scrollwrap style='overflow: auto'>"
    "<div style='width: 2000px'>text</div></div>",
    "code.html": "<div class=highlight><pre style='margin: 0'><code style='display: block; overflow: auto'>"
    f"{'x' * 1000}</code></pre></div>",
}


RESULTS = "<script>document.body.append(location.search + ': {} matching documents')</script>"
needs_chromium = pytest.mark.skipif(not browser(), reason="needs chromium")


@needs_chromium
def test_what_does_not_fit_is_found(tmp_path):
    for name, body in BOXES.items():
        (tmp_path / name).write_text(PAGE.format(body))
    found = look(tmp_path)
    assert len(found) == 2 * len(BOXES)
    assert complaints(found) == [
        f"/code.html at {DESK} pixels: a line of code is cut off",
        f"/table.html at {DESK} pixels: a table hides a column",
        f"/wide.html at {PHONE} pixels: {600 - PHONE} pixels too wide",
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(BOXES)


@needs_chromium
@pytest.mark.parametrize("count", [0, 10])
def test_a_search_from_the_disk_that_finds_nothing_is_found(tmp_path, count):
    (tmp_path / "index.html").write_text(PAGE.format(RESULTS.format(count)))
    assert search(tmp_path, "word") == bool(count)
