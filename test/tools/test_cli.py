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
from clampgrad.cli import COMMANDS, main
from clampgrad.cli.program import parse
from common import forks

HOME = str(Path(clampgrad.__file__).parents[1])
CLAMPGRAD = [sys.executable, "-m", "clampgrad"]
# How a pin of a process is asked for where it does not reach all of it.
PARTIAL = "" if clampgrad.implementation == "compiled" else ", partial"


def run(command, **keywords):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, **keywords
    )


# ---- The commands --------------------------------------------------------------------------------


def test_one_help(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert all(f"    {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: clampgrad {name}" in capsys.readouterr().out


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == clampgrad.__version__


@pytest.mark.parametrize("arguments", [[], ["fly"], ["--fly"]])
def test_no_such_command(arguments, capsys):
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and "usage: clampgrad" in err


ENVIRONMENTS = {
    "a wrong name": ({"CLAMPGRAD_GRADIENT": "nope"}, [*clampgrad.CONVENTIONS, "'nope'"]),
    "no word": ({"CLAMPGRAD_GRADIENT": "half, whole"}, ["'whole'", "maximize or partial"]),
    "a name with a space": ({"CLAMPGRAD_GRADIENT": "half "}, [*clampgrad.CONVENTIONS, "'half '"]),
    "no text": ({"CLAMPGRAD_GRADIENT": "\udcff"}, clampgrad.CONVENTIONS),
    "neither yes nor no": ({"CLAMPGRAD_PORTABLE": "no"}, ["CLAMPGRAD_PORTABLE='no'"]),
    "both": (
        {"CLAMPGRAD_PORTABLE": "1", "CLAMPGRAD_REQUIRE_COMPILED": "1"},
        ["CLAMPGRAD_PORTABLE", "CLAMPGRAD_REQUIRE_COMPILED", "unset"],
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_is_wrong_in_the_environment_is_one_sentence(name, tmp_path):
    variables, parts = ENVIRONMENTS[name]
    script = tmp_path / "clampgrad"  # as pip writes it
    script.write_text("import sys\nfrom clampgrad.cli import main\nsys.exit(main())\n")
    # That every command imports the package first is seen by two, one here and there.
    command = [sys.executable, script, "survey"] if name == "both" else [*CLAMPGRAD, "info"]
    ended = run(command, env={**os.environ, "PYTHONPATH": HOME, **variables})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("clampgrad: error: ")
    assert all(part in ended.stderr for part in parts)
    # A program is told by the exception.
    program = run([sys.executable, "-c", "import clampgrad"], env={**os.environ, **variables})
    assert program.returncode == 1 and "Traceback" in program.stderr


@pytest.mark.parametrize("options", ["-Bm clampgrad", "-W ignore -Bsmclampgrad"])
def test_the_command_is_known_however_m_is_spelt(options):
    command = [sys.executable, *options.split(), "info"]
    ended = run(command, env={**os.environ, "PYTHONPATH": HOME, "CLAMPGRAD_PORTABLE": "2"})
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr


@pytest.mark.parametrize(
    "command, module",
    [
        ("python -m a.b -m c", "a.b"),
        ("python -Esma", "a"),
        ("python -Wm -m a", "a"),
        ("python -W m -X m -Bm a", "a"),
        ("python -I", ""),
    ],
)
def test_what_python_takes_for_the_module(command, module):
    assert module_of(command.split()) == module


@pytest.mark.parametrize("name, shown", [
    ("", None),
    ("half", "half"),
    ("jax", "half"),
    ("with_grad, maximize", "with_grad, maximize"),
])  # fmt: skip
def test_info_says_what_the_environment_pins(name, shown):
    variable = name and name + PARTIAL
    ended = run([*CLAMPGRAD, "info", "--json"], env={**os.environ, "CLAMPGRAD_GRADIENT": variable})
    assert json.loads(ended.stdout)["pinned"] == (shown and shown + PARTIAL)


@pytest.mark.parametrize("command", [["info"], ["patches", "list"], ["survey"]])
def test_json(command, capsys):
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_info_for_programs_and_for_people(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cuda_kernels"] in (True, False)
    assert all(name.isidentifier() for name in found)
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^cuda kernels +(yes|no)$", shown, re.MULTILINE)


def test_gallery_as_json(tmp_path, capsys):
    assert main(["gallery", str(tmp_path), "--json"]) == 0
    paths = json.loads(capsys.readouterr().out)["pictures"]
    assert paths and all(os.path.exists(path) for path in paths)


@pytest.mark.parametrize("words, message", [
    (["survey", "--device", "nowhere"], "device"),
    (["survey", "--device", "meta"], "meta"),
    (["gallery", "a file"], "a file"),
])  # fmt: skip
def test_what_a_user_can_correct_is_a_message(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    with pytest.raises(SystemExit) as end:
        main(words)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert f"clampgrad {words[0]}: error: " in err and message in err.splitlines()[-1]


@pytest.mark.parametrize("words, package", [
    (["gallery", "pictures"], "matplotlib"),
    (["audit", "--picture", "a.png", "script.py"], "matplotlib"),
])  # fmt: skip
def test_a_missing_package_is_a_message(words, package, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    for name in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])  # nothing else is found either
    monkeypatch.setattr("clampgrad.cli.audit.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert f"{package} is missing: pip install {package}" in capsys.readouterr().err


def test_patches_refuses_with_a_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    assert main(["patches", "export", "a file"]) == 2
    assert capsys.readouterr().out.startswith("refused: cannot write a file")


def test_a_closed_pipe_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*CLAMPGRAD, "patches", "list"], stdout=writer, stderr=subprocess.PIPE)
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
    script.write_text("import sys\nfrom clampgrad.cli import main\nsys.exit(main(sys.argv[1:]))\n")
    with forks("clampgrad.cli") as run:
        pinned = ["run", "--gradient", "half", *["--partial"] * bool(PARTIAL)]
        yield lambda program, cwd: run(script, *pinned, *program, cwd=cwd)


def under_python(program, cwd):
    done = run([sys.executable, *program], cwd=cwd)
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


@pytest.mark.parametrize("command", ["run", "audit"])
@pytest.mark.parametrize("program, message", [
    (["nowhere.py"], "no such file: nowhere.py"),
    (["-m", "no.such.module"], "no module named no.such.module"),
    (["-m"], "-m needs the name of a module"),
    (["."], "no __main__.py in ."),
    (["nb.ipynb"], "nb.ipynb is a notebook"),
    ([], "nothing to run"),
])  # fmt: skip
def test_nothing_to_run(command, program, message, folder_of_programs, capsys):
    (folder_of_programs / "nb.ipynb").write_text('{"execution_count": null}')
    with pytest.raises(SystemExit) as error:
        main([command, *(["--gradient", "half"] if command == "run" else []), *program])
    assert error.value.code == 2
    assert message in capsys.readouterr().err


TAKES_NOTHING = "import argparse\nargparse.ArgumentParser().parse_args()"


@pytest.mark.parametrize("option", ["-v", "--partial"])
def test_an_option_of_ours_that_the_program_gets(option, folder_of_programs, caplog):
    """Only the program knows whether it takes it; where it does not, what helps is said."""
    (folder_of_programs / "script.py").write_text(TAKES_NOTHING)
    caplog.set_level("INFO", "clampgrad")
    parser = argparse.ArgumentParser("clampgrad run")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--partial", action="store_true")
    _, program = parse(parser, ["script.py", option])
    with pytest.raises(SystemExit) as end:
        program.run()
    assert end.value.code == 2
    (message,) = caplog.messages
    assert message.startswith(f"{option} stands after the program")
    caplog.clear()
    _, program = parse(parser, [option, "script.py", "--other"])
    with pytest.raises(SystemExit):
        program.run()
    assert caplog.messages == []


@pytest.mark.parametrize("command", ["run", "audit"])
def test_an_option_that_is_not_ours_comes_after_the_program(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, *(["--gradient", "half"] if command == "run" else []), "--lr", "1", "a.py"])
    assert end.value.code == 2
    assert "there is no option --lr; arguments of the program come after" in capsys.readouterr().err
