"""The names of the conventions stand in conventions.yaml. Elsewhere they are read from there
or generated, so that a new one is an edit of one place; the pages that say something about
each of them are listed here."""

import re
from pathlib import Path

import pytest

from oracle import CONVENTIONS, PSEUDO

ROOT = Path(__file__).resolve().parents[2]
GENERATED = re.compile("<!-- generated: .*?<!-- end -->", re.DOTALL)

# A convention that is added needs a sentence here.
SAY_SOMETHING_ABOUT = {
    "README.md": CONVENTIONS,  # what each is recommended for
    "docs/conventions.md": CONVENTIONS,  # where each comes from
    "docs/faq.md": PSEUDO,  # which of them maximise, and which have a tangent
    "docs/howto/choose.md": CONVENTIONS,
    "docs/howto/images.md": PSEUDO,
}


def by_hand(path):
    return GENERATED.sub("", (ROOT / path).read_text())


def names(text, group):
    """Those that a text quotes: `half` and "half", but not half of a gradient."""
    return {name for name in group if re.search(rf"[`\"]{name}[`\"]", text)}


@pytest.mark.parametrize("page, group", SAY_SOMETHING_ABOUT.items(), ids=SAY_SOMETHING_ABOUT)
def test_pages_that_must_name_each(page, group):
    assert names(by_hand(page), group) == set(group)
