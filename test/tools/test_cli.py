"""The command line: one help, quiet ends, and programs that run as python itself runs them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import clampgrad
from clampgrad._tools.survey import measured
from clampgrad.cli import COMMANDS
from common import forks, run

HOME = str(Path(clampgrad.__file__).parents[1])
CLAMPGRAD = [sys.executable, "-m", "clampgrad"]
SCRIPT = "import sys\nfrom clampgrad.cli import main\nsys.exit(main())\n"  # as pip writes it


# ---- The commands --------------------------------------------------------------------------------


def test_help_and_version(command):
    code, out, _ = command("--help")
    assert code == 0 and all(f"    {name} " in out for name in COMMANDS)
    for name in COMMANDS:
        code, out, _ = command(name, "--help")
        assert code == 0 and f"usage: clampgrad {name}" in out
    assert command("--version") == (0, f"{clampgrad.__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["--fly"]])
def test_no_such_command(arguments, command):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "") and "usage: clampgrad" in err


@pytest.mark.parametrize("name, shown", [
    ("", None),
    ("half", "half"),
    ("jax", "half"),
    ("with_grad, maximize", "with_grad, maximize"),
])  # fmt: skip
def test_info_says_what_the_environment_pins(name, shown):
    ended = run(*CLAMPGRAD, "info", "--json", env={**os.environ, "CLAMPGRAD_GRADIENT": name})
    assert json.loads(ended.stdout)["pinned"] == shown


def test_info_for_programs_and_for_people(command, monkeypatch):
    found = json.loads(command("info", "--json")[1])
    assert found["cuda_kernels"] in (True, False)
    assert all(name.isidentifier() for name in found)
    assert re.search(r"^cuda kernels +(yes|no)$", command("info")[1], re.MULTILINE)
    monkeypatch.setattr(clampgrad._implementation.functions, "__file__", "torch_2_11_cu13/_C.so")
    assert ("cuda kernels    yes" in command("info")[1]) == (clampgrad.implementation == "compiled")


@pytest.mark.parametrize("words", ["audit script.py", "survey"])
def test_how_wide_a_table_is(words, folder_of_programs, monkeypatch, command):
    """COLUMNS decides; in a file it is as wide as it needs."""
    (folder_of_programs / "script.py").write_text("import torch\ntorch.zeros(1).clamp(0, 1)\n")
    monkeypatch.setattr(measured, "CASES", measured.CASES[:2])
    for columns in ("", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        code, *printed = command(*words.split())
        fits = max(map(len, "".join(printed).splitlines())) <= 60
        assert (code, fits) == (0, columns == "60")


@pytest.mark.parametrize("words, message", [
    (["survey", "--device", "nowhere"], "device"),
    (["survey", "--device", "meta"], "meta"),
    (["survey", "--json", "--markdown"], "not allowed with"),
    (["run", "--gradient", "half, whole", "script.py"], "after the name may come maximize"),
])  # fmt: skip
def test_what_a_user_can_correct_is_a_message(words, message, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert f"clampgrad {words[0]}: error: " in err and message in err.splitlines()[-1]


def test_a_closed_pipe_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*CLAMPGRAD, "info"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.stderr == b"" and done.returncode == 141


# ---- Programs ------------------------------------------------------------------------------------

# What a program can see of how it was started.
SEES = """
import sys
print(sorted(globals()), "" in sys.path, sys.flags)
spec = __spec__ and __spec__.name
print(__name__, __file__, __package__, spec, type(__loader__).__name__, sys.argv, sys.path[0])
print(sys._getframe().f_code.co_filename, sys.modules["__main__"].__dict__ is globals())
"""


@pytest.fixture
def folder(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in ("script.py", "pkg/mod.py", "pkg/__main__.py"):
        (tmp_path / file).write_text(SEES)
    (tmp_path / "link.py").symlink_to("pkg/mod.py")
    return tmp_path


WAYS = [
    ["script.py"],
    ["pkg/mod.py", "--lr", "1"],
    ["script.py", "--", "-m", "x"],
    ["--", "script.py", "-mx"],
    ["-m", "pkg.mod", "--lr", "1"],
    ["-mpkg.mod", "--lr", "1"],
    ["-m", "pkg"],
    ["link.py"],
]


@pytest.fixture(scope="module")
def under_a_pin(tmp_path_factory):
    """`clampgrad run` of several programs."""
    script = tmp_path_factory.mktemp("runs") / "clampgrad"
    script.write_text(SCRIPT)
    with forks("clampgrad.cli") as fork:
        pinned = ["run", "--gradient", "half"]
        yield lambda program, cwd: fork(script, *pinned, *program, cwd=cwd)


def under_python(program, cwd):
    done = run(sys.executable, *program, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("program", WAYS, ids=" ".join)
def test_a_program_sees_what_it_sees_under_python(folder, program, under_a_pin):
    code, out, err = under_python(program, folder)
    assert (code, err) == (0, "")
    assert under_a_pin(program, folder) == (code, out, err)


ENDS = {
    "an error": "def f(): raise ValueError('of mine')\nf()",
    "no syntax": "x = = 1",
    "exit code": "import sys; sys.exit(3)",
    "exit with a word": "import sys; sys.exit('no')",
    "at exit": """
import atexit, pickle
class Thing: pass
atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))).__name__))""",
    "spawn": """
import multiprocessing
def work(): print("worked", flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()""",
}


@pytest.mark.parametrize("name", ENDS)
def test_a_program_ends_as_under_python(tmp_path, name, under_a_pin):
    (tmp_path / "script.py").write_text(ENDS[name])
    expected = under_python(["script.py"], tmp_path)
    assert under_a_pin(["script.py"], tmp_path) == expected
    assert any(expected)


@pytest.mark.parametrize("program, message", [
    (["nowhere.py"], "no such file: nowhere.py"),
    (["-m", "no.such.module"], "no module named no.such.module"),
    (["-m"], "-m needs the name of a module"),
    (["."], "no such file: ."),
    (["nb.ipynb"], "nb.ipynb is a notebook"),
    ([], "nothing to run"),
    (["--lr", "1", "a.py"], "there is no option --lr; arguments of the program come after"),
])  # fmt: skip
def test_nothing_to_run(program, message, folder_of_programs, command):
    (folder_of_programs / "nb.ipynb").write_text('{"execution_count": null}')
    for words in (["run", "--gradient", "half"], ["audit"]):
        code, _, err = command(*words, *program)
        assert code == 2 and message in err
