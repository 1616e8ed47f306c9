"""`make release`: what a release must pass beside `.ci/run`, all of it
for one package. It takes hours.

    make release                     every step that this package has not passed
    make release STEPS="docs fuzz"   these alone
    make release-record              puts what they found into records/ and docs/support.md
    python -m lab.release --list     the steps, and how each stands
    python -m lab.release --check    whether the record is of this package, and of all steps

A step leaves its log, its row and what it measured in out/release/PACKAGE. So what was interrupted,
or has failed, goes on where it was. PACKAGE is a hash of the files that wheels are made from: a
commit that mends a test or a page keeps what has passed, and one that changes the package starts
from nothing. A row says which commit the step ran on. If other files are checked out or written
while it runs, or other wheels come into dist/, the step has not passed. A step that fails does not
end the others, and nothing is recorded before it has passed. One that this machine lacks something
for is left out, and the table says so. Two commands may run side by side if their steps share no
environment and no folder in build/: the tests of two releases of torch, for example.

Another machine goes on from the record of a part, in a clone of the commit that has it: what has
passed for the same wheels counts there, too. `make wheels` makes them again, if the compilers are
the same and the clone has the same path (buildtools/wheels.py).
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from datetime import date
from pathlib import Path

import records
from buildtools.library import PYTHONS as VERSIONS
from buildtools.readme import readme
from buildtools.torch_here import RELEASES
from lab import support
from lab.artefacts import contents
from records import code, table

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = tuple(f"python{version}" for version in VERSIONS)
SYSTEMS = ("bookworm", "trixie", "forky")
FLOOR = "2.5.0"  # the oldest torch that pip accepts beside the package
# Building the package and measuring JAX are steps of their own.
WHOLE = "-m 'not build and not jax'"
# What wheels and the sdist are made from, but the README: it has tables that a release fills.
PACKAGE = (
    "csrc", "codegen", "buildtools", "cmake", "python", "setup.py", "pyproject.toml", "MANIFEST.in",
    "CMakeLists.txt", "conventions.yaml", "derivatives.yaml", "torch_releases.txt", "LICENSE",
    "oracle.py", "examples/cpp", "test/cpp",
)  # fmt: skip
# What depends on Python most: calls from it, the pin and its tasks.
BRIEF = "test/table/test_seeds.py test/table/test_table.py test/kernels/test_gate.py test/pin/test_pin_tasks.py"
# These build what they test; the others take the wheel.
BUILD = ("cpp", "races", "check-arm64", "docs")
INSTALL = (
    "sanitize", "check-package", "check-sources", "check-programs", "check-libraries", "check-jax",
    "mutants",
)  # fmt: skip
# What fails where a machine lacks something that the step is for.
NEEDS = {
    **{python: f"{python} -m ensurepip --version" for python in PYTHONS},
    **{f"from-nothing-{system}": "mmdebstrap --version" for system in SYSTEMS},
    # FLOOR has no wheel for Python 3.14, and JAX none for 3.10.
    "portable-floor": '"$PYTHON" -c "import sys; assert sys.version_info < (3, 14)"',
    "check-jax": '"$PYTHON" -c "import sys; assert sys.version_info >= (3, 11)"',
    "check-sources": "apt-get --version",
    "check-arm64": "qemu-aarch64-static --version",
    "gpu": "nvidia-smi",
}
# What a release may do without: the table then says that no GPU has run it.
OPTIONAL = ("gpu",)
# Variables that would make a step test less, or something else.
NARROWS = re.compile(
    "(ARGS|PYTEST_ADDOPTS|RELEASES|TORCH|EXTRA|WHEEL|MODULES|BUILD_TYPE|DEVICE)$|CLAMPGRAD_"
)
IN_NO_COMMIT = "A release is of a commit, and `git status` shows changes that are in none."


# ---- The steps, each a line for a shell ----------------------------------------------------------


def steps(out: str = "OUT") -> dict[str, str]:
    """In the order in which they run: all that follows `artefacts` installs its wheel,
    or builds the same sources."""

    def of(pattern: str) -> str:
        return next((f"dist/{path.name}" for path in ROOT.glob(f"dist/{pattern}")), "dist/none")

    cpu, cuda = of("clampgrad-*linux*.whl"), of("clampgrad_cuda-*.whl")
    wheel = f"WHEEL={cpu}"

    def tests(name: str, target: str, which: str, variables: str) -> dict[str, str]:
        record = f"--record={out}/{name}.support.json"
        return {name: f'make {target} {variables} ARGS="{which} {record}"'}

    here = ".venv/torch-$(make -s print-TORCH)/bin/python"
    found = {"artefacts": 'make artefacts && "$PYTHON" -m lab.artefacts dist/'}
    schemas = f"PYTHONPATH=. {here} test/package/test_public.py --check"
    found["schemas"] = f"make tested {wheel} && {schemas}"
    for release in RELEASES:
        on = f"TORCH={release} {wheel}"
        found[f"first-minute-{release}"] = f'"$PYTHON" -m lab.first_minute {release} dist/'
        found[f"wheel-{release}"] = f"make check-wheel {on}"
        found |= tests(
            f"tests-{release}", "test", f"test lab/test {WHOLE}", f"EXTRA=test-slow {on}"
        )
        found |= tests(f"portable-{release}", "test-portable", WHOLE, on)
    on = f"TORCH={FLOOR} EXTRA=test-core WHEEL={of('clampgrad-*-any.whl')}"
    found |= tests("portable-floor", "test", BRIEF, on)
    for name in PYTHONS:
        on = f"PYTHON={name} VENV=.venv/{name} EXTRA=test-core {wheel}"
        found |= tests(name, "test", f"{BRIEF} --unlike={name}", on)
        found[name] += f" && rm -rf .venv/{name}"  # 5 GB, with the libraries of CUDA
    found["check-cuda"] = f"make check-cuda WHEEL='{cpu} {cuda}'"
    found |= {target: f"make {target} {wheel}" for target in INSTALL}
    found["fuzz"] = f"make fuzz {wheel} SECONDS=1800"
    rooms = ("table", "kernels", "transforms", "matrix", "pin", "compile")
    found["mock"] = f'make test {wheel} ARGS="--device mock {" ".join(f"test/{r}" for r in rooms)}"'
    found |= {target: f"make {target}" for target in BUILD}
    found |= tests("check-arm64", "check-arm64", "", "")
    found["cpp-debug"] = "make cpp BUILD_TYPE=Debug"
    found["from-nothing"] = '"$PYTHON" -m lab.from_nothing'
    found |= {f"from-nothing-{system}": f"lab/distro.sh {system}" for system in SYSTEMS}
    needs, gpu = "make portable-wheel requirements", f"PYTHON={here} lab/gpu_check.sh"
    found["gpu"] = f"{needs} && WHEEL='{cpu} {cuda}' OUT={out}/gpu {gpu}"
    # That the script of `gpu` works. It builds the portable package, and says nothing about CUDA.
    found["gpu-rehearsal"] = f"{needs} && DEVICE=cpu OUT={out}/gpu-rehearsal {gpu}"
    return found


# ---- Running them --------------------------------------------------------------------------------


class RunsAlready(Exception):
    """Another command has started this step, or left something that it has started."""


def shell(line: str, output: Path) -> bool:
    """The line in a shell of its own, which ends with this process. The log is locked
    until all that the line has started has ended."""
    with output.open("a") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunsAlready from None
        log.truncate(0)
        words = ["bash", "-euc", line]
        started = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            return started.wait() == 0
        except BaseException:
            end(started)
            raise


def end(started: subprocess.Popen) -> None:
    """And all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(10)
        os.killpg(started.pid, signal.SIGKILL)  # what of it is left
    started.wait()


def run(step: str, out: Path) -> dict:
    """The row of the step, which it leaves in a file."""
    needs, line = NEEDS.get(step, "true"), steps(str(out))[step]
    row = {"step": step, "on": str(date.today()), "commit": head()}
    row["machine"] = f"{os.cpu_count()} cores of {records.processor()}"
    file, log, began = out / f"{step}.json", out / f"{step}.log", time.monotonic()
    if not shell(needs, out / f"{step}.needs.log"):
        row["lacks"], earlier = needs, ran(out).get(step, {})
        return earlier if earlier.get("passed") is False else left(row, file)
    (out / f"{step}.support.json").unlink(missing_ok=True)  # tests would be added to those in it
    files, moves = tree(), len(checked_out())
    row["passed"] = shell(line, log)
    meanwhile = {files[0], *checked_out()[: -moves or None]}
    wrong = []
    if tree() != files:
        wrong.append(f"the files are not those that it began with: {tree()} for {files}")
    elif len(meanwhile) > 1:
        wrong.append(f"other files were checked out meanwhile: trees {sorted(meanwhile)}")
    if "dist/" in line:
        row["wheels"] = identity(tested(out))
        if not are_there(step, out):
            wrong.append("dist/ has other wheels now")
    if wrong:
        row["passed"] = False
        with log.open("a") as written:
            print(*(f"==> {what}" for what in wrong), sep="\n", file=written)
    row["seconds"] = round(time.monotonic() - began)
    return left(row, file)


def left(row: dict, file: Path) -> dict:
    records.write_at_once(file, json.dumps(row) + "\n")
    return row


def row_of(file: Path) -> dict:
    """Nothing, where it has not run or was cut off."""
    try:
        row = json.loads(file.read_text())
        return row if row.get("step") == file.stem else {}
    except (OSError, ValueError, AttributeError):
        return {}


def tree() -> tuple[str, str]:
    """What is checked out, and which of its files differ."""
    return git("rev-parse", "HEAD^{tree}"), git("status", "--porcelain", "--untracked-files=no")


def checked_out() -> list[str]:
    """All that has been checked out in this clone, the last one first."""
    return git("log", "--walk-reflogs", "--format=%T", "HEAD", "--").splitlines()


def ran(out: Path) -> dict[str, dict]:
    """The rows of the steps that count here: those that this machine has run, and those that
    another has recorded, of the same wheels where a step tests them. What the other one has
    passed counts also where this one lacks something for it."""
    lines, of = steps(), identity(tested(out))
    here = [row for step in lines if (row := row_of(out / f"{step}.json"))]
    there = [row for row in recorded(out.name, "release") if row.get("passed")]
    lacking = [row for row in here if "lacks" in row]
    rows = {
        row["step"]: row
        for row in (*lacking, *there, *(row for row in here if "lacks" not in row))
        if "dist/" not in lines.get(row["step"], "dist/")
        or "lacks" in row
        or row.get("wheels") == of
    }
    return {step: rows[step] for step in lines if step in rows}


def recorded(package: str, name: str) -> list[dict]:
    """The rows of a record of a release, if it is of this package."""
    known = all(records.path(file).exists() for file in ("release", name))
    return (
        records.read(name)["rows"]
        if known and records.read("release").get("package") == package
        else []
    )


def tested(out: Path) -> dict[str, str]:
    """The wheels that the steps test: their names, and hashes of their contents."""
    file = out / "records/artefacts.jsonl"
    rows = records.read(file)["rows"] if file.exists() else recorded(out.name, "artefacts")
    return {row["file"]: row["contents"] for row in rows if "contents" in row}


def identity(wheels: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(wheels.items())).encode()).hexdigest()[:16]


def how(row: dict) -> str:
    if "lacks" in row:
        return f"not run: {code(row['lacks'])} fails there"
    return {True: "yes", False: "no", None: "not run"}[row.get("passed")]


def git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or str(error)
        sys.exit(f"A release is of a commit, and git knows none here: {why.strip()}")


def head() -> str:
    """The commit of this clone, in full: an abbreviation may be longer in another clone."""
    return git("rev-parse", "--verify", "HEAD")


URLS = re.compile(r"^\[project\.urls\]\n(?:[^\[\n].*\n)*\n?", re.MULTILINE)


def package() -> str:
    """A hash of the package of this commit, the same in every clone. The addresses of the
    project are not part of it: whoever has them may add them after the steps have run."""
    files = git("ls-tree", head(), *PACKAGE)
    if "\tpyproject.toml" in files:
        project = git("show", f"{head()}:pyproject.toml") + "\n"
        without = (URLS.sub("", project).rstrip("\n") + "\n").encode()
        blob = hashlib.sha1(b"blob %d\0" % len(without) + without).hexdigest()
        files = re.sub(r"\w+(?=\tpyproject\.toml)", blob, files)
    return hashlib.sha256(files.encode()).hexdigest()[:16]


def in_no_commit(*but: str) -> str:
    return git("status", "--porcelain", "--untracked-files=normal", "--", ".", *but)


def present() -> dict[str, str]:
    """The wheels that are in dist/, as `tested` names them."""
    return {path.name: of_wheel(path) for path in Path("dist").glob("*.whl")}


def of_wheel(path: Path) -> str:
    try:
        return contents(path)
    except (OSError, zipfile.BadZipFile):
        return "unreadable"


def are_there(step: str, out: Path) -> bool:
    """Whether dist/ has the wheels that the step tests, as they were made: those that its line
    names, or else all."""
    named = {
        Path(name).name for name in re.findall(r"dist/(?:\S+\.whl|none)", steps(str(out))[step])
    }
    made, there = tested(out), present()
    return all(name in made and there.get(name) == made[name] for name in named or made)


# ---- The record ----------------------------------------------------------------------------------


def record(commit: str, out: Path) -> None:
    """In place of what was recorded for an earlier release, once all steps have run."""
    found = ran(out)
    if failed := [step for step, row in found.items() if row.get("passed") is False]:
        sys.exit(f"A release passes its steps, and these have not: {', '.join(failed)}.")
    if not found.get("artefacts", {}).get("passed"):
        sys.exit(f"There is nothing to record: `artefacts` has not passed for {out}.")
    # What a step leaves before it has passed stays where it is.
    here = [s for s, row in found.items() if row.get("passed") and row == row_of(out / f"{s}.json")]
    files = {out / f"{step}.support.json": "--record=" in steps(str(out))[step] for step in here}
    files |= {out / "gpu/support.json": False} if "gpu" in here else {}
    ran_here = [read_run(file) for file, must in files.items() if must or file.exists()]
    there = [row["step"] for row in recorded(out.name, "release") if row.get("passed")]
    if lost := [step for step in there if step not in found]:
        print(
            f"==> these were recorded of other wheels, or are no steps now, and go: {', '.join(lost)}"
        )
    rows = [found.get(step, {"step": step}) for step in steps()]
    # What has not run again stays, with the commit that it was of: at the end, only what a GPU ran,
    # and what another machine has recorded for this package.
    runs = support.of_present_tests(support.recorded())
    if not unfinished(rows):
        of_this = tuple({row["commit"][:7] for row in rows if "commit" in row})
        kept = {
            name: {
                file: counts
                for file, counts in run.items()
                if ", cuda" in name or counts.get("commit", "").startswith(of_this)
            }
            for name, run in runs.items()
        }
        runs = {name: run for name, run in kept.items() if run or ", cuda" in name}
    for run in ran_here:
        for name, files in run.items():
            runs.setdefault(name, {}).update(files)
    records.write("release", rows, commit=commit, package=out.name)
    support.record(runs)
    measured = [*out.glob("gpu/*.jsonl")] if "gpu" in here else []
    for file in out.glob("records/*.jsonl"):
        # A few of the steps that fill a file do not replace what all of them have found.
        of_file = {file.stem} & {*steps()} or {
            step for step in steps() if step.startswith(f"{file.stem}-")
        }
        if of_file and of_file <= {*here}:
            measured.append(file)
        elif of_file & {*here}:
            print(
                f"==> {file.name} is not recorded: it has to be measured on one machine, by {', '.join(sorted(of_file))}"
            )
    for file in measured:
        shutil.copy(file, records.FOLDER)


def read_run(file: Path) -> dict:
    try:
        return {name: dict(files) for name, files in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sys.exit(f"A step has passed, and which tests it ran cannot be read: {file}: {error}")


def unfinished(rows: list[dict]) -> list[str]:
    """What no machine has run yet, so that a release is not whole."""
    return [
        row["step"]
        for row in rows
        if not row.get("passed") and not ("lacks" in row and row["step"] in OPTIONAL)
    ]


def check(package: str) -> None:
    """What a tag needs: every step, but that of a GPU."""
    recorded = records.read("release")
    if recorded.get("package") != package:
        sys.exit(
            "records/release.jsonl is of another package: docs/releasing.md says how to record."
        )
    rows = {row["step"]: row for row in recorded["rows"]}
    if missing := unfinished([rows.get(step, {"step": step}) for step in steps()]):
        sys.exit(f"These steps have not run for this package: {', '.join(missing)}.")
    if "not on PyPI" in (ROOT / "README.md").read_text():
        sys.exit(
            "README.md says that the package is not on PyPI, and this would be its page there."
        )
    if readme() == (ROOT / "README.md").read_text():
        sys.exit(
            "pyproject.toml names no repository under [project.urls], so the links of README.md would"
            " lead nowhere on PyPI."
        )


@table(right=(1,))
def release():
    found = records.read("release")
    ran = [row for row in found["rows"] if "on" in row]
    yield "step", "minutes", "passed", "on", "at commit"
    for row in ran:
        minutes = f"{row['seconds'] / 60:.1f}" if "seconds" in row else ""
        yield code(row["step"]), minutes, how(row), row["on"], code(row["commit"][:8])
    hours = sum(row.get("seconds", 0) for row in ran) / 3600
    machines = " and ".join(dict.fromkeys(row["machine"] for row in ran)) or "no machine yet"
    yield (
        f"All rows are of the package of commit {code(found['commit'][:8])}, which has not changed since the"
        f" first of these commits. They took {hours:.1f} hours, on {machines}."
    )
    if missing := unfinished(found["rows"]):
        yield f"Not run for this package: {', '.join(map(code, missing))}."


# ---- The command ---------------------------------------------------------------------------------


def main(*words: str) -> None:
    os.chdir(ROOT)
    out = Path("out/release") / package()
    lines, found = steps(str(out)), ran(out)
    if words == ("--list",):
        for step, line in lines.items():
            print(f"{step:22} {how(found.get(step, {})):8} {line}")
        return
    if words == ("--check",):
        return check(out.name)
    # What a record itself has changed may be recorded again.
    but = [":!records/*.jsonl", ":!*.md"] if words == ("--record",) else []
    if in_no_commit(*but):
        sys.exit(IN_NO_COMMIT)
    if words == ("--record",):
        return record(head(), out)
    if unknown := {*words} - {*lines}:
        sys.exit(f"no such step: {', '.join(unknown)}")
    if narrows := [name for name, value in os.environ.items() if value and NARROWS.match(name)]:
        sys.exit(f"A step runs whole, and these would change what it tests: {', '.join(narrows)}.")
    # Packages are those that users get, whatever this machine holds them to. Records
    # come into the tree at the end.
    os.environ |= {"PIP_CONSTRAINT": os.devnull, "RECORDS": str((out / "records").absolute())}
    os.environ["PYTHON"] = sys.executable  # also for make
    (out / "records").mkdir(parents=True, exist_ok=True)
    if "artefacts" in found and (wrong := [*present().items() - tested(out).items()]):
        # dist/ was made again since then. If the step makes what was tested, that still counts.
        found.pop("artefacts")
        print(f"==> dist/ is not what was tested: {', '.join(sorted(dict(wrong)))}", flush=True)
    early: list[str] = []
    elsewhere: list[str] = []
    for step in words or lines:
        made = found.get("artefacts", {}).get("passed")
        if package() != out.name:
            sys.exit("==> HEAD is another package now")
        if in_no_commit():
            sys.exit(IN_NO_COMMIT)
        if step == "docs" and found.get(step, {}).get("commit") != head():
            found.pop(step, None)  # it is about pages, which a commit may have mended
        if found.get(step, {}).get("passed"):
            print(f"==> {step}: passed before", flush=True)
        elif step == "artefacts" or "dist/" not in lines[step] or (made and are_there(step, out)):
            try:
                row = run(step, out)
            except RunsAlready:
                print(f"==> {step}: runs already, beside this command", flush=True)
                elsewhere.append(step)
                continue
            print(f"==> {step}: {how(row)}", flush=True)
            # Once there are other wheels, what has passed with those before counts no more.
            found = ran(out) if step == "artefacts" else found | {step: row}
        else:
            early.append(step)
    asked = {step: found[step] for step in words or lines if step in found}
    if lacking := [step for step, row in asked.items() if "lacks" in row]:
        print(
            f"==> not run, because this machine lacks something: {', '.join(lacking)}", flush=True
        )
    if failed := [step for step, row in asked.items() if row.get("passed") is False]:
        sys.exit(f"==> not passed: {', '.join(failed)}; the logs are in {out}")
    if elsewhere:
        sys.exit(f"==> not run, because they run already: {', '.join(elsewhere)}")
    if early:
        makes = (
            "`make wheels` makes again"
            if found.get("artefacts", {}).get("passed")
            else "the step `artefacts` makes"
        )
        sys.exit(f"==> not run without the wheels in dist/, which {makes}: {', '.join(early)}")
    if not words and (lost := tested(out).keys() - present().keys()):
        sys.exit(
            f"==> all has passed; dist/ lacks {', '.join(sorted(lost))}, which `make wheels` makes again"
        )


if __name__ == "__main__":
    for ended in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ended) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(ended, signal.default_int_handler)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("==> interrupted; the same command goes on with this step")
