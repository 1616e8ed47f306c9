"""The command line: one help, quiet ends, and programs that run as python itself runs them."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad.cli import COMMANDS
from testing.cases import slow_after
from testing.processes import fork_server, run


def test_help_and_version(command):
    code, out, _ = command("--help")
    assert code == 0 and all(f"    {name} " in out for name in COMMANDS)
    for name in COMMANDS:
        assert f"usage: clampgrad {name}" in command(name, "--help")[1]
    assert "any: of whatever kind" in " ".join(command("audit", "--help")[1].split())
    assert command("--version") == (0, f"{clampgrad.__version__}\n", "")


def test_info_for_programs_and_for_people(command, monkeypatch):
    for pin, expected in (None, None), ("half", "half"), ("jax", "half"):
        with clampgrad.pin(pin):
            info = json.loads(command("info", "--json")[1])
        assert info["pinned"] == expected and all(name.isidentifier() for name in info)
    monkeypatch.setattr(clampgrad._implementation.functions, "__file__", "torch_2_11_cu13/_C.so")
    assert ("cuda kernels    yes" in command("info")[1]) == (clampgrad.implementation == "compiled")


@pytest.mark.parametrize("cuda, asked", [("13.2", "13.2"), ("12.8", None), (None, None)])
def test_info_says_how_to_get_the_cuda_kernels(command, monkeypatch, cuda, asked):
    """Where torch is a build for CUDA, and pip has its compiler."""
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(clampgrad._implementation.functions, "__file__", "torch_2_11/_C.so")
    line = asked and f'pip install "cuda-toolkit[nvcc,crt,nvvm,cccl]=={asked}.*"'
    assert json.loads(command("info", "--json")[1])["cuda_compiler"] == line
    assert f"cuda kernels    no{f'; to build them, {line},' if line else ''}" in command("info")[1]


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "usage: clampgrad"),
        (["fly"], "invalid choice: 'fly'"),
        (["survey", "--device", "nowhere"], "clampgrad survey: error: "),
        (["survey", "--device", "meta"], "meta"),
        (["survey", "--json", "--markdown"], "not allowed with"),
        (
            ["run", "script.py", "--gradient", "half"],
            "--gradient comes before the program: clampgrad run --gradient NAME script.py;",
        ),
        (["run", "-m", "json.tool", "--gradient=half"], "run --gradient NAME -m json.tool;"),
        (["run", "script.py", "--lr", "1"], "arguments are required: --gradient"),
        (["run", "--gradient", "half, whole", "script.py"], "after the name may come maximize"),
        (["audit", "nowhere.py"], "no such file: nowhere.py"),
        (["audit", "-m", "no.such.module"], "no module named no.such.module"),
        (["audit", "-m"], "-m needs the name of a module"),
        (["audit", "nb.ipynb"], "nb.ipynb is a notebook"),
        (["audit"], "nothing to run"),
        (["audit", "--lr", "1", "a.py"], "no option --lr; arguments of the program come after"),
        (
            ["audit", "--json", "no/such/a.json", "script.py"],
            "cannot write no/such/a.json: No such file",
        ),
        (["audit", "--every", "0", "script.py"], "--every must be at least 1"),
        (["audit", "--fail-on", "everything", "script.py"], "invalid choice: 'everything'"),
    ],
)
def test_what_a_user_can_correct_is_a_message(words, message, folder_of_programs, command):
    """And the program does not run."""
    for name in ("script.py", "nb.ipynb"):
        (folder_of_programs / name).write_text("print('running')")
    code, out, err = command(*words)
    assert (code, out) == (2, "") and "usage: clampgrad" in err and message in err


SCRIPT = (
    "import sys, _clampgrad_by_environment as e; sys.argv = sys.argv[1:]; sys.exit(e.command())"
)


@pytest.mark.parametrize("variable", ["CLAMPGRAD_PORTABLE", "CLAMPGRAD_REQUIRE_COMPILED"])
@pytest.mark.parametrize(
    "start", slow_after(1, [("-c", SCRIPT, "clampgrad"), ("-m", "clampgrad")]), ids=" ".join
)
def test_a_wrong_switch_is_one_sentence(program, start, variable):
    """The import of the package raises it, before any command; of
    `import clampgrad` it is an error as usual."""
    ended = program(*start, "info", **{variable: "2"})
    sentence = f"{variable}='2': it is 1 or, as when it is not set, 0\n"
    assert (ended.returncode, ended.stderr) == (2, f"clampgrad: error: {sentence}")
    for other in ("import clampgrad", "import sys; sys.argv[0] = '-m'; import clampgrad"):
        ended = program("-c", other, "clampgrad", **{variable: "2"})
        assert ended.returncode == 1 and "Traceback" in ended.stderr


def test_an_import_that_fails_for_another_reason_is_no_sentence(program, tmp_path):
    (tmp_path / "torch.py").write_text("import no_such_module")
    ended = program("-m", "clampgrad", "info")
    assert ended.returncode == 1 and "no_such_module" in ended.stderr.split("Traceback")[1]


def test_a_closed_pipe_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    info = [sys.executable, "-m", "clampgrad", "info"]
    done = subprocess.run(info, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.stderr == b"" and done.returncode == 141


# What a program can see of how it was started.
SEES = """
import sys
print(sorted(globals()), "" in sys.path, sys.flags)
spec = __spec__ and __spec__.name
print(__name__, __file__, __package__, spec, type(__loader__).__name__, sys.argv, sys.path[0])
print(sys._getframe().f_code.co_filename, sys.modules["__main__"].__dict__ is globals())
"""

FILES = {
    **dict.fromkeys(("script.py", "pkg/mod.py", "pkg/__main__.py"), SEES),
    "pkg/__init__.py": "",
    "error.py": "def f(): raise ValueError('of mine')\nf()",
    "no_syntax.py": "x = = 1",
    "exit_word.py": "import sys; sys.exit('no')",
    "at_exit.py": """
import atexit, pickle
class Thing: pass
atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Thing()))).__name__))""",
    # A worker that is spawned knows the program as __mp_main__, and what it returns is of that.
    "pkg/workers.py": """
import multiprocessing
class Thing: pass
def thing(_): return Thing()
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(type(pool.map_async(thing, [1]).get(60)[0]).__name__)""",
}
WAYS = ["script.py", "pkg/mod.py --lr 1", "script.py -- -m x", "-- script.py -mx", "link.py"]
WAYS += ["-m pkg.mod --lr 1", "-mpkg.mod --lr 1", "-m pkg"]
WAYS += ["error.py", "no_syntax.py", "exit_word.py", "at_exit.py"]
WAYS += ["pkg/workers.py", "-m pkg.workers"]


@pytest.fixture(scope="module")
def under_a_pin():
    """`clampgrad run` of several programs."""
    script = Path(clampgrad.__file__).with_name("__main__.py")
    with fork_server("clampgrad.cli") as fork:
        yield partial(fork, script, "run", "--gradient", "half")


@pytest.mark.parametrize("command", ["run --gradient half", "audit"])
def test_an_interrupt_ends_a_program_as_under_python(command, tmp_path):
    """By the signal, and with the traceback of the program alone."""
    (tmp_path / "script.py").write_text("def f(): raise KeyboardInterrupt\nf()")
    expected = run(sys.executable, "script.py", cwd=tmp_path)
    words = [sys.executable, "-m", "clampgrad", *command.split(), "script.py"]
    ended = run(*words, cwd=tmp_path)
    assert ended.returncode == expected.returncode != 0
    assert ended.stderr.endswith(expected.stderr) and ended.stderr.count("Traceback") == 1


@pytest.mark.parametrize("words", WAYS)
def test_a_program_runs_as_under_python(words, tmp_path, under_a_pin):
    """It sees the same of how it was started, and ends in the same way."""
    for file, text in FILES.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "link.py").symlink_to("pkg/mod.py")
    expected = run(sys.executable, *words.split(), cwd=tmp_path)
    assert expected.stdout or expected.returncode
    actual = under_a_pin(*words.split(), cwd=tmp_path)
    assert actual == (expected.returncode, expected.stdout, expected.stderr)
