"""What docs/releasing.md calls public is what there is: the names on the pages, and no others.
Names, schemas and gradients are those of the last release."""

import ast
import contextlib
import copy
import io
import json
import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import pytest
import torch

import clampgrad
import oracle
from clampgrad.cli import COMMANDS
from codegen.generate import generate

ROOT = Path(__file__).resolve().parents[2]
RELEASED = {
    "names": Path(__file__).with_name("released_names.txt"),
    "schemas": Path(__file__).with_name("released_schemas.txt"),
    "gradients": Path(__file__).with_name("released_gradients.jsonl"),
}
API = {page.stem: page.read_text() for page in (ROOT / "docs/api").glob("*.md")}


def code(text):
    """What is in `code` in a text."""
    return re.findall("`([^`]+)`", text)


def rows(text, heading):
    """The rows of the table with this heading, each a list of cells."""
    table = text.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def members(page, of):
    """The members that mkdocstrings shows of an object."""
    return re.search(rf"^::: {of}\n(?: .*\n)*? +members: \[(.*)\]", API[page], re.M)[1].split(", ")


def schemas():
    """Those of the public operators."""
    found = torch._C._jit_get_all_schemas()
    return [s for s in found if re.match(r"clampgrad::(?!_)", s.name)]


# ---- What a release writes down, for later ones to be compared with -----------------------------


def names():
    """What can be written in a program that is not Python; of that, `nox -s api` knows more."""
    for command in COMMANDS:
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
            import_module(f"clampgrad.cli.{command}").main(["--help"])
        options = {*re.findall(r"--\w[\w-]*", said.getvalue())}
        yield from (f"clampgrad {command} {option}" for option in options)
    yield from listed_variables()
    yield from (f"C++ {name}" for name in declared_functions())


FACTORS = "active", "numbers", "tensors"


def gradients(table):
    """The facts of conventions.yaml, each by a name: the factors at each point, the
    pseudo-gradients, and what else a convention is."""
    for operator, of in table["operators"].items():
        for row in of["rows"]:
            for point in row["points"]:
                name = f"{operator}({', '.join(map(str, point))})"
                yield name, {key: row[key] for key in FACTORS if key in row}
    columns = table["pseudo_gradients"]["columns"]
    for row in table["pseudo_gradients"]["rows"]:
        of = {name: dict(zip(columns, row[name])) for name in row if name != "position"}
        yield row["position"], of
    for key in ("depends_on_differentiated", "one_step"):
        yield key, {name: name in table[key] for name in oracle.EXACT}
    yield "aliases", table["aliases"]


def contradicts(released, now):
    """Whether a fact differs. There may be more conventions now, and more columns."""
    if isinstance(released, dict):
        return any(key not in now or contradicts(of, now[key]) for key, of in released.items())
    return released != now


def release(*words):
    """What a release does with the files: it writes them. With --check, it fails if it has not."""
    if clampgrad.implementation != "compiled":
        sys.exit("Only the compiled library has every operator, and the portable one is installed.")
    lines = {
        "names": sorted(names()),
        "schemas": sorted(map(str, schemas())),
        "gradients": [json.dumps(fact) for fact in gradients(oracle.TABLE)],
    }
    for what, file in RELEASED.items():
        text = "".join(f"{line}\n" for line in lines[what])
        if words != ("--check",):
            file.write_text(text)
        elif text != file.read_text():
            sys.exit(f"{file.name} is of another release: docs/releasing.md says how to write it.")


# ---- What the pages list -------------------------------------------------------------------------


def test_names_of_the_package():
    text = "".join(API.values())
    listed = re.findall(r"^(?:::: |- `)(clampgrad\.[\w.]+)", text, re.M)
    listed += re.findall(r"clampgrad\.\w+", "".join(re.findall("^## clampgrad.*", text, re.M)))
    assert len(listed) == len(set(listed))
    assert {name.partition(".")[2] for name in listed} == {*clampgrad.__all__, "__version__"}


def of_the_pin():
    return [name for name in vars(clampgrad.pin) if not name.startswith("_")]


def test_names_of_nn_and_of_the_pin():
    assert sorted(members("nn", "clampgrad.nn")) == sorted(clampgrad.nn.__all__)
    assert sorted(members("pin", "clampgrad.pin")) == sorted(of_the_pin())


@pytest.mark.compiled("the portable implementation has only those that it needs")
def test_operators():
    listed = set()
    for names, in_place in rows(API["functions"], "operators | with `_`, in place"):
        listed |= {*code(names)}
        listed |= {f"{name}_" for name in code(names) if in_place == "yes"}
    found = (re.match(r"clampgrad::(\w+)", n) for n in torch._C._dispatch_get_all_op_names())
    assert listed == {name[1] for name in found if name and not name[1].startswith("_")}


def listed_variables():
    text = (ROOT / "docs/cli.md").read_text()
    return {code(name)[0].partition("=")[0] for name, _ in rows(text, "variable | effect")}


def test_commands():
    text = (ROOT / "docs/cli.md").read_text()
    commands = [code(command)[0].split()[1] for command, _ in rows(text, "command | what it does")]
    assert commands == [*COMMANDS]


def test_variables():
    def read_by(*patterns):
        files = [file for pattern in patterns for file in ROOT.glob(pattern)]
        nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
        values = {n.value for n in nodes if isinstance(n, ast.Constant)}
        return {v for v in values if isinstance(v, str) and re.fullmatch("CLAMPGRAD_[A-Z_]+", v)}

    package, build = read_by("python/**/*.py"), read_by("setup.py", "buildtools/*.py")
    assert package and package <= listed_variables() <= package | build


def declared_functions():
    with tempfile.TemporaryDirectory() as folder:
        generate(ROOT, Path(folder))
        headers = Path(folder, "include/clampgrad/functions.h"), ROOT / "csrc/clampgrad/clampgrad.h"
        text = "".join(header.read_text() for header in headers)
    return {*re.findall(r"^(?:CLAMPGRAD_API|inline) .*?(\w+)\(", text, re.M)}


def test_functions_of_the_header():
    listed = set()
    for names, suffixes in rows((ROOT / "docs/cpp.md").read_text(), "functions | also with"):
        endings = ["", *(s for s in code(suffixes))]
        listed |= {name + ending for name in code(names) for ending in endings}
    assert listed == declared_functions()


# ---- What stays ----------------------------------------------------------------------------------


def test_names_of_the_last_release_still_hold():
    assert {*RELEASED["names"].read_text().splitlines()} <= {*names()}


@pytest.mark.compiled("the portable implementation has only those that it needs")
def test_schemas_of_the_last_release_still_hold():
    """Programs that were exported or scripted with it contain them."""
    now = {(schema.name, schema.overload_name): schema for schema in schemas()}
    for line in RELEASED["schemas"].read_text().splitlines():
        released = torch._C.parse_schema(line)
        name = released.name, released.overload_name
        assert name in now and now[name].is_backward_compatible_with(released), line


def changed(table):
    """The facts of the last release that no longer hold."""
    now = dict(gradients(table))
    released = map(json.loads, RELEASED["gradients"].read_text().splitlines())
    return [name for name, fact in released if name not in now or contradicts(fact, now[name])]


def test_a_released_convention_never_changes():
    assert changed(oracle.TABLE) == []


@pytest.mark.parametrize("change, noticed", [
    (lambda table: table["aliases"].update(of_2_16="inclusive"), []),
    (lambda table: table["operators"]["clamp"]["rows"][1]["numbers"].update(new="1/5"), []),
    (lambda table: table["aliases"].update(jax="joint"), ["aliases"]),
    (lambda table: table["one_step"].remove("half"), ["one_step"]),
    (lambda table: table["operators"]["clamp"]["rows"][2]["numbers"].update(half=0),
     ["clamp(3, 0, 6)", "clamp(3, -inf, inf)"]),
    (lambda table: table["operators"]["fmin"]["rows"][3].update(active=["x"]), ["fmin(nan, nan)"]),
    (lambda table: table["operators"]["fmin"]["rows"][3]["tensors"].update(half=[1, 0]),
     ["fmin(nan, nan)"]),
    (lambda table: table["operators"]["fmin"]["rows"].pop(), ["fmin(nan, nan)"]),
    (lambda table: table["pseudo_gradients"]["rows"][1].update(restoring=[1, -1, -1, -1]), ["x < y"]),
])  # fmt: skip
def test_a_change_of_a_convention_is_noticed(change, noticed):
    """New aliases and conventions are none."""
    table = copy.deepcopy(oracle.TABLE)
    change(table)
    assert changed(table) == noticed


def test_only_a_release_makes_the_package_stable():
    """The changelog has the day of each release; before 1.0 none is stable."""
    is_stable = "5 - Production/Stable" in (ROOT / "pyproject.toml").read_text()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert not is_stable or re.search(r"^## [1-9]\S* \(\d{4}-", changelog, re.M)


if __name__ == "__main__":
    release(*sys.argv[1:])
