"""The command line: one help, quiet ends, and programs that run as python itself runs them."""

import argparse
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import clampgrad
from clampgrad._implementation.environment import module_of
from clampgrad._tools.survey import measured
from clampgrad.cli import COMMANDS
from clampgrad.cli.program import parse
from common import forks, run

HOME = str(Path(clampgrad.__file__).parents[1])
CLAMPGRAD = [sys.executable, "-m", "clampgrad"]
SCRIPT = "import sys\nfrom clampgrad.cli import main\nsys.exit(main())\n"  # as pip writes it
# Ways to ask for a pin of a process that cannot reach all of it.


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


ENVIRONMENTS = {
    "a wrong name": ({"CLAMPGRAD_GRADIENT": "nope"}, [*clampgrad.CONVENTIONS, "'nope'"]),
    "no word": ({"CLAMPGRAD_GRADIENT": "half, whole"}, ["'whole'", "may come maximize"]),
    "neither yes nor no": ({"CLAMPGRAD_PORTABLE": "no"}, ["CLAMPGRAD_PORTABLE='no'"]),
    "both": (
        {"CLAMPGRAD_PORTABLE": "1", "CLAMPGRAD_REQUIRE_COMPILED": "1"},
        ["CLAMPGRAD_PORTABLE", "CLAMPGRAD_REQUIRE_COMPILED", "unset"],
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_wrong_in_the_environment_is_one_sentence(name, tmp_path):
    variables, parts = ENVIRONMENTS[name]
    script = tmp_path / "clampgrad"
    script.write_text(SCRIPT)
    # That every command imports the package first is seen by two, one here and there.
    words = [sys.executable, script, "survey"] if name == "both" else [*CLAMPGRAD, "info"]
    ended = run(*words, env={**os.environ, "PYTHONPATH": HOME, **variables})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("clampgrad: error: ")
    assert all(part in ended.stderr for part in parts)


@pytest.mark.parametrize("words, module", [
    ("python -m a.b -m c", "a.b"),
    ("python -Esma", "a"),
    ("python -Wm -m a", "a"),
    ("python -W m -X m -Bm a", "a"),
    ("python -I", ""),
])  # fmt: skip
def test_what_python_takes_for_the_module(words, module):
    assert module_of(words.split()) == module


@pytest.mark.parametrize("name, shown", [
    ("", None),
    ("half", "half"),
    ("jax", "half"),
    ("with_grad, maximize", "with_grad, maximize"),
])  # fmt: skip
def test_info_says_what_the_environment_pins(name, shown):
    ended = run(*CLAMPGRAD, "info", "--json", env={**os.environ, "CLAMPGRAD_GRADIENT": name})
    assert json.loads(ended.stdout)["pinned"] == shown


def test_info_for_programs_and_for_people(command):
    found = json.loads(command("info", "--json")[1])
    assert found["cuda_kernels"] in (True, False)
    assert all(name.isidentifier() for name in found)
    assert re.search(r"^cuda kernels +(yes|no)$", command("info")[1], re.MULTILINE)


@pytest.mark.parametrize("words", ["audit script.py", "audit --wide script.py", "survey",
                                   "survey --wide"])  # fmt: skip
def test_how_wide_a_table_is(words, folder_of_programs, monkeypatch, command):
    """COLUMNS decides; in a file, or with --wide where a command has it, it is as wide as it needs."""
    (folder_of_programs / "script.py").write_text("import torch\ntorch.zeros(1).clamp(0, 1)\n")
    monkeypatch.setattr(measured, "CASES", measured.CASES[:2])
    for columns in ("", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        code, *printed = command(*words.split())
        fits = max(map(len, "".join(printed).splitlines())) <= 60
        assert (code, fits) == (0, columns == "60" and "--wide" not in words)


@pytest.mark.parametrize("words, message", [
    (["survey", "--device", "nowhere"], "device"),
    (["survey", "--device", "meta"], "meta"),
    (["survey", "--json", "--markdown"], "not allowed with"),
])  # fmt: skip
def test_what_a_user_can_correct_is_a_message(words, message, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
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
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("__main__.py", SEES)
    return tmp_path


WAYS = [
    ["script.py"],
    ["pkg/mod.py", "--lr", "1"],
    ["script.py", "--", "-m", "x"],
    ["--", "script.py", "-mx"],
    ["-m", "pkg.mod", "--lr", "1"],
    ["-mpkg.mod", "--lr", "1"],
    ["-m", "pkg"],
    ["pkg", "-m"],
    ["program.zip", "a"],
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
    (["."], "no __main__.py in ."),
    (["nb.ipynb"], "nb.ipynb is a notebook"),
    ([], "nothing to run"),
    (["--lr", "1", "a.py"], "there is no option --lr; arguments of the program come after"),
])  # fmt: skip
def test_nothing_to_run(program, message, folder_of_programs, command):
    (folder_of_programs / "nb.ipynb").write_text('{"execution_count": null}')
    for words in (["run", "--gradient", "half"], ["audit"]):
        code, _, err = command(*words, *program)
        assert code == 2 and message in err


@pytest.mark.parametrize("option", ["-v", "--maximize"])
def test_an_option_of_ours_that_the_program_gets(option, folder_of_programs, caplog):
    """Only the program knows whether it takes the option; if not, a message says what helps."""
    script = folder_of_programs / "script.py"
    script.write_text("import argparse\nargparse.ArgumentParser().parse_args()")
    caplog.set_level("INFO", "clampgrad")
    parser = argparse.ArgumentParser("clampgrad run")
    for name in ("-v", "--maximize"):
        parser.add_argument(name, action="store_true")
    for words in (["script.py", option], [option, "script.py", "--other"]):
        _, program = parse(parser, words)
        with pytest.raises(SystemExit) as end:
            program.run()
        assert end.value.code == 2
    (message,) = caplog.messages  # of the first
    assert message.startswith(f"{option} stands after the program")
