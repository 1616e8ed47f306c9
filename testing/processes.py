"""Processes: commands that end, Python beside the same package, and scripts that are forked from a
process which has imported what is slow."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

import clampgrad
from clampgrad._implementation import build

# An environment with neither home, nor programs, nor UTF-8, nor bytecode.
BARE = {
    **{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "PATH"), os.devnull),
    "PYTHONDONTWRITEBYTECODE": "1",
}


def run(*command, **keywords):
    """A process that has ended: its exit code, what it printed, what it complained of."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **keywords)


def run_checked(*command, **keywords):
    """The output of a process that has succeeded."""
    ended = run(*command, **keywords)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


def library():
    """The file of libclampgrad that this process has loaded, without the module of Python."""
    return Path(clampgrad.clamp.__self__.__file__).with_name(build.LIBRARY)


@cache
def package_path():
    """The PYTHONPATH by which a process finds the package where this one did: nothing, if
    any process does. Otherwise all that is installed beside the package would come first."""
    home = str(Path(clampgrad.__file__).parents[1])
    program = "import sys; print(*sys.path, sep=chr(10))"
    paths = run_checked(sys.executable, "-Ec", program, cwd=os.sep).splitlines()
    return [] if home in paths else [home]


def python(*command, cwd=None, **variables):
    """The output of another Python process, which finds the package where this one did."""
    path = os.pathsep.join([*package_path(), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, **variables}
    return run_checked(sys.executable, *command, cwd=cwd, env=env)


def renew_thread_pool():
    """Call this in a forked process before it starts threads.

    PyTorch replaces the pool of the parent process when it is next asked for one, and takes no
    lock: if threads ask at the same time, one of them may raise "Invalid thread pool!". Setting the
    number of threads asks for it.
    """
    torch.set_num_threads(torch.get_num_threads())


FORKS = """
import importlib, json, os, sys, types
for name in sys.argv[1:]:
    importlib.import_module(name)
for line in sys.stdin:
    words, cwd, variables, out, err = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.chdir(cwd)
        os.environ.update(variables)
        for path, fd in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        sys.argv = words
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__file__ = words[0]
        if "__annotations__" in globals():  # up to Python 3.13
            main.__annotations__ = {}
        with open(words[0]) as file:
            exec(compile(file.read(), words[0], "exec"), main.__dict__)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@contextmanager
def fork_server(*modules):
    """Runs scripts, each in a process of its own; one process imports slow modules for all.

    Yields run(script, *arguments, cwd=..., **variables) -> exit code, what it
    printed, what it complained of.
    """
    command, pipe = [sys.executable, "-c", FORKS, *modules], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]

        def run(*words, cwd, **variables):
            line = json.dumps([[*map(str, words)], str(cwd), variables, *map(str, files)])
            print(line, file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            return code, *(file.read_text() for file in files)

        try:
            yield run
        finally:
            process.stdin.close()
            process.wait()


@contextmanager
def script_runner(folder, *modules):
    """Runs texts as scripts, each in a process of its own where `modules` are imported already.

    Yields run(text, *arguments, cwd=..., **variables) -> what it printed, what it complained of.
    One that fails is an error, unless `check` is False.
    """
    file = folder / "script.py"

    def run(text, *arguments, cwd=folder, check=True, **variables):
        file.write_text(text)
        code, out, err = fork(file, *arguments, cwd=cwd, **variables)
        assert code == 0 or not check, out[-1000:] + err[-3000:]
        return out, err

    with fork_server(*modules) as fork:
        yield run
