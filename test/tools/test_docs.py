"""The documents hold together: links lead somewhere, numbers come from data, the API is complete."""

import ast
import dataclasses
import json
import re
from pathlib import Path

import pytest
import yaml

import clampgrad

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("patches/**/*.md")),
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("docs/*.ipynb")),
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
REFERENCE = sorted(ROOT.glob("docs/api/*.md"))


def markdown(path):
    """The prose of a page; of a notebook, that of its cells."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def without_code(text):
    return re.sub(r"^( *)```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


# ---- Links ---------------------------------------------------------------------------------------


def anchors(path):
    """Of the headings, as GitHub and the site both make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(markdown(path)), flags=re.MULTILINE)
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(markdown(page))):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# ---- Code ----------------------------------------------------------------------------------------


ON_THE_SITE = [p for p in PAGES if p == ROOT / "README.md" or p.is_relative_to(ROOT / "docs")]


@pytest.mark.parametrize("page", ON_THE_SITE, ids=str)
def test_code_fits_the_site(page):
    """docs/assets/site.css makes room for 98 characters, and less than four spaces would end a list."""
    code = re.findall(r"^( *)```\w*\n(.*?)^ *```", markdown(page), flags=re.DOTALL | re.MULTILINE)
    assert [line for _, block in code for line in block.splitlines() if len(line) > 98] == []
    assert {len(indent) % 4 for indent, _ in code} <= {0}


# ---- Numbers -------------------------------------------------------------------------------------

# A quantity: a number with a unit, a percentage, a factor, or a decimal fraction.
UNIT = r"(?:%|x\b|times|percent|[kKMG]i?B|bytes?|bits?|[mun\u00b5]?s\b|seconds?|minutes?|hours?|steps?)"
QUANTITY = re.compile(rf"(?<![\w.^])(\d+(?:,\d{3})*(?:\.\d+)?(?:[ -]?{UNIT})|0\.\d+)(?!\w)")
VERSION = re.compile(
    r"\b(?:PyTorch|torch|torchao|JAX|TensorFlow|Paddle|MLX|tinygrad|autograd|Python|CMake|version)\b,? v?[\d.]+(?:(?:,| and| or| to) [\d.]+)*",
    re.I,
)


def quantities(path):
    """The quantities in the prose: not in code, not generated, not in a link's address."""
    text = re.sub(r"<!-- generated.*?<!-- end -->", "", markdown(path), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$", " ", without_code(text))
    return [" ".join(m[0].split()) for m in QUANTITY.finditer(VERSION.sub("", text))]


def test_numbers_are_generated_or_accounted_for():
    """Measured numbers come from JSON through docs/fill_tables.py. docs/numbers.yaml lists all others,
    each with a reason why it is not a measurement of ours."""
    allowed = yaml.safe_load((ROOT / "docs/numbers.yaml").read_text())
    found = {name: set(quantities(page)) for name, page in zip(IDS, PAGES)}
    found = {name: numbers for name, numbers in found.items() if numbers}
    assert {name: sorted(numbers) for name, numbers in found.items()} == {
        name: sorted(reasons) for name, reasons in allowed.items()
    }
    assert all(isinstance(r, str) and r for reasons in allowed.values() for r in reasons.values())


# ---- The API -------------------------------------------------------------------------------------


def test_everything_public_is_in_the_reference():
    text = "".join(p.read_text() for p in REFERENCE)
    missing = [n for n in clampgrad.__all__ if not re.search(rf"clampgrad\.{n}\b", text)]
    assert missing == []


@pytest.mark.parametrize("name", ["Finding", "Diagnostic", "Thresholds", "Row"])
def test_every_field_is_in_the_reference(name):
    documented = getattr(clampgrad, name)
    attributes = documented.__doc__.partition("Attributes:\n")[2]
    listed = re.findall(r"^ {8}(\w+): ", attributes, flags=re.MULTILINE)
    assert listed == [field.name for field in dataclasses.fields(documented)]


@pytest.mark.parametrize(
    "name", [n for n in clampgrad.__all__ if n.islower() and callable(getattr(clampgrad, n))]
)
def test_every_function_says_what_it_raises(name):
    """Or whose errors and arguments it has."""
    text = getattr(clampgrad, name).__doc__
    assert re.search(r"^ *Raises:$|\berrors\b", text, flags=re.M)


def test_docstrings_refer_to_what_is_in_the_reference():
    entries = set(
        re.findall(r"^::: ([\w.]+)$", "".join(p.read_text() for p in REFERENCE), flags=re.M)
    )
    entries |= {f"clampgrad.nn.{name}" for name in clampgrad.nn.__all__}
    for path in ROOT.glob("python/**/*.py"):
        for name in re.findall(r":\w+:`~?(clampgrad[\w.]*)`", path.read_text()):
            assert name in entries or name.rpartition(".")[0] in entries, (path.name, name)


def test_tests_that_pages_name_exist():
    """`test_func.py`, and `test_the_blog`."""
    tests = {path.name: path.read_text() for path in ROOT.glob("test/**/*.py")}
    functions = {
        node.name
        for text in tests.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    }
    for patch in ROOT.glob("patches/**/*.patch"):  # what a proposal's text names
        functions |= {*re.findall(r"^\+ *def (test_\w+)", patch.read_text(), flags=re.M)}
    for name, page in zip(IDS, PAGES):
        for word in re.findall(r"`(test_\w+(?:\.py)?)`", markdown(page)):
            if name.startswith("docs/upstream/"):  # PyTorch's own
                continue
            assert word in (tests if word.endswith(".py") else functions), (name, word)


def test_messages_in_the_faq_are_those_of_the_code():
    text = (ROOT / "docs/faq.md").read_text().partition("## Error messages")[2]
    messages = [
        m for h in re.findall(r"^### (.*)$", text, flags=re.M) for m in re.findall("`(.*?)`", h)
    ]
    sources = [*ROOT.glob("python/**/*.py"), *ROOT.glob("csrc/**/*.cpp"), *ROOT.glob("csrc/**/*.h")]
    # String literals that follow one another are one.
    code = re.sub(r'"\s*\n\s*f?"', "", "".join(p.read_text() for p in sources))
    torchs_own = {"Unknown type annotation: 'Gradient'"}
    assert messages and [m for m in messages if m not in code and m not in torchs_own] == []


def test_the_citation_names_the_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert f'version = "{cited}"' in (ROOT / "pyproject.toml").read_text()
