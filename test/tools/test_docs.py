"""The pages hold together, and what they say is so: links, snippets, messages, the reference."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch

import clampgrad
from testing.processes import run

ROOT = Path(__file__).parents[2]
PATTERNS = ["*.md", "docs/**/*.md", "patches/**/*.md", "lab/README.md", "docs/*.ipynb"]
PAGES = [page for pattern in PATTERNS for page in sorted(ROOT.glob(pattern))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def snippets(page, language="python"):
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def markdown(path):
    """The prose of a page; of a notebook, that of its cells."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def without_code(text):
    return re.sub(r"^( *)```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(path):
    """The anchors of the headings, as GitHub and the site both make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(markdown(path)), flags=re.MULTILINE)
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(markdown(page))):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists() and (not anchor or anchor in anchors(target)), link


REFERENCE = "".join(path.read_text() for path in ROOT.glob("docs/api/*.md"))


def test_every_function_says_what_it_raises():
    """Or names one with the same errors. That the reference has every
    public name: test_public.py."""
    for name in clampgrad.__all__:
        public = getattr(clampgrad, name)
        if name.islower() and callable(public):
            assert re.search(r"^ *Raises:$|\berrors\b", public.__doc__, flags=re.M), name


@pytest.mark.parametrize("name", ["Finding", "Diagnostic", "Row"])
def test_every_field_is_in_the_reference(name):
    documented = getattr(clampgrad, name)
    # Since Python 3.13 the compiler takes the indentation away.
    attributes = inspect.getdoc(documented).partition("Attributes:\n")[2]
    listed = re.findall(r"^ {4}(\w+): ", attributes, flags=re.MULTILINE)
    assert listed == [field.name for field in dataclasses.fields(documented)]


def test_docstrings_refer_to_what_is_in_the_reference():
    entries = re.findall(r"^::: ([\w.]+)$", REFERENCE, flags=re.M)
    entries += [f"clampgrad.nn.{name}" for name in clampgrad.nn.__all__]
    for path in ROOT.glob("python/**/*.py"):
        for name in re.findall(r":\w+:`~?(clampgrad[\w.]*)`", path.read_text()):
            assert name in entries or name.rpartition(".")[0] in entries, (path.name, name)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_that_pages_name_exist(page):
    """By their paths from the root, or from csrc/."""
    if "upstream" in page.parts or "patches" in page.parts:
        return  # those name PyTorch's own
    folders = "benchmarks|buildtools|codegen|csrc|examples|lab|patches|python|records|test"
    for path in re.findall(rf"`((?:{folders})/[\w./-]+\.\w+)`", markdown(page)):
        assert (ROOT / path).exists() or (ROOT / "csrc" / path).exists(), path


def test_tests_that_pages_name_exist():
    """`test_func.py`, and `test_the_blog`; also what a proposal's patch adds."""
    patterns = ("test/**/*.py", "lab/test/*.py", "patches/**/*.patch")
    files = [path for pattern in patterns for path in ROOT.glob(pattern)]
    text = "\n".join(path.read_text() for path in files)
    names = {*re.findall(r"^\+? *def (test_\w+)", text, flags=re.M), *(p.name for p in files)}
    for name, page in zip(IDS, PAGES):
        if not name.startswith("docs/upstream/"):  # those name PyTorch's own
            assert {*re.findall(r"`(test_\w+(?:\.py)?)`", markdown(page))} <= names, name


def test_messages_in_the_faq_are_those_of_the_code():
    text = (ROOT / "docs/faq.md").read_text().partition("## Error messages")[2]
    messages = re.findall("`(.*?)`", "\n".join(re.findall(r"^### .*$", text, flags=re.M)))
    sources = [*ROOT.glob("python/**/*.py"), *ROOT.glob("csrc/**/*.cpp"), *ROOT.glob("csrc/**/*.h")]
    # String literals that follow one another are one.
    code = re.sub(r'"\s*\n\s*f?"', "", "".join(p.read_text() for p in sources))
    with pytest.raises(ValueError) as torchs_own:
        torch.jit.script(clampgrad.nn.ReLU6())
    messages_of_code = code + str(torchs_own.value)
    assert messages and [m for m in messages if m not in messages_of_code] == []


SNIPPETS = [
    pytest.param(page, code, id=f"{page}, {i}")
    for page in IDS
    if not page.startswith("patches")  # theirs are parts of programs
    for i, code in enumerate(snippets(page), 1)
]


@pytest.mark.parametrize("page, code", SNIPPETS)
def test_snippets_run(page, code):
    exec(compile(code, page, "exec"), {})


def test_there_are_snippets():
    assert len(SNIPPETS) > 20


@pytest.mark.build
def test_commands_of_the_readme(tmp_path):
    """Copied from README.md and run in order, in a copy of the tree; pip is that of the
    environment which make made."""
    tree = tmp_path / "clampgrad"
    subprocess.run(["git", "checkout-index", "-a", f"--prefix={tree}/"], cwd=ROOT, check=True)
    commands = ["PATH=$PWD/$(make -s print-VENV)/bin:$PATH", *snippets("README.md", "sh")]
    env = {"PATH": os.defpath + ":/usr/local/bin", "HOME": str(tmp_path), "MAX_JOBS": "2"}
    ended = run("bash", "-euc", "\n".join(commands), cwd=tree, env=env)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert "| `torch.clamp" in ended.stdout  # the last of them prints a table
