"""Which sessions of nox have passed, and on which commit: records/sessions.jsonl, and the table
of docs/support.md. Both commands need nox, so they are for .venv/nox/bin/python.

    python -m lab.sessions -t release    runs what a release must pass, and records what has run
    python -m lab.sessions               fails if a release lacks something
"""

import json
import subprocess
import sys
from collections import defaultdict
from datetime import date
from pathlib import Path

import records
from buildtools.torch_here import RANGE, RELEASES
from records import code, table

ROOT = Path(__file__).resolve().parent.parent
# What wheels and the sdist are made from, but the README: it has tables of what was measured.
PACKAGE = (
    *("csrc", "codegen", "buildtools", "cmake", "python", "examples/cpp", "test/cpp"),
    *("setup.py", "pyproject.toml", "MANIFEST.in", "CMakeLists.txt", "LICENSE", "oracle.py"),
    *("conventions.yaml", "derivatives.yaml", "torch_releases.txt"),
)
OF_CPP = ("cpp", "races", "cuda")  # sessions for which Python files do not matter
# Pages, but the one that has the table below.
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", ":!docs/support.md")
# What a session is about, beside the package: its result counts until that changes.
SUBJECTS = {
    "lint": ("*.py", "*.pyi", "*.ipynb", "*.cpp", "*.h", "*.cu", "*.cuh", ".github"),
    "docs": (*PAGES, "mkdocs.yml", "lab/README.md", "lab/site"),
    "package": (*PAGES, "Makefile"),
    "notebooks": ("docs/*.ipynb",),
    "first_minute": ("README.md",),
    "from_nothing": ("Makefile", "lab/from_nothing.sh"),
    "programs": ("lab/programs",),
    "libraries": ("lab/libraries",),
    "tests": ("patches",),
    "no_compiler": ("examples/demo.py",),
    "cuda": ("lab/cuda_check.py",),
    "mutants": ("lab/mutants.py", "lab/waived_mutants.yaml"),
    "debian": ("patches", "lab/series.py", "lab/debian_source.sh"),
    "promises": ("test/package/released_*",),
    "api": ("lab/api.py",),
}
# What a release may do without: docs/support.md says that no GPU has run it.
OPTIONAL = ("gpu(cuda)",)
BY_RELEASE = {
    "compiled": "tests({})",
    "portable": "portable({})",
    "compiled, no compiler on `PATH`": "no_compiler({})",
}


def read_rows():
    return {row["session"]: row for row in records.read("sessions")["rows"]}


def run_nox(*words):
    return subprocess.run((sys.executable, "-m", "nox", *words), cwd=ROOT).returncode


def run_sessions(*words):
    """Runs sessions, and records them as of the commit from which they have started."""
    if subprocess.check_output(("git", "status", "--porcelain", "--", ".", ":!records"), cwd=ROOT):
        sys.exit("A result is of a commit, and `git status` shows changes that are in none.")
    head = subprocess.check_output(("git", "rev-parse", "HEAD"), cwd=ROOT, text=True)[:8]
    report = ROOT / "out/nox.json"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    failed = run_nox(*words, "--report", str(report))
    if report.exists():
        record_report(report, head)
    sys.exit(failed)


def record_report(report, commit):
    """Records each session in place of its last run. One that was skipped has not run."""
    rows, changed = read_rows(), []
    for session in json.loads(Path(report).read_text())["sessions"]:
        (name, *_) = session["signatures"] or [session["name"]]
        row = {"session": name, "passed": session["result"] == "success", "on": str(date.today())}
        row |= {"commit": commit, "seconds": round(session["duration"])}
        if has_changed(row):
            changed.append(name)
        elif session["result"] != "skipped":
            rows[name] = row
    records.write("sessions", rows.values(), digits=None, commit=None)
    if changed:
        print(f"Not recorded, for the sources have changed meanwhile: {', '.join(changed)}")


def has_changed(row):
    """Whether there are other sources here than in the commit of a row."""
    kind = row["session"].partition("(")[0]
    package = [path for path in PACKAGE if kind not in OF_CPP or path != "python"]
    words = ("git", "diff", "--quiet", row["commit"], "--", *package, *SUBJECTS.get(kind, ()))
    return subprocess.run(words, cwd=ROOT).returncode != 0


def is_current(row):
    """Whether what passed has passed here."""
    return row["passed"] and not has_changed(row)


def find_missing():
    """Returns what a release must pass, and has not on these sources."""
    words = (sys.executable, "-m", "nox", "-t", "release", "--list", "--json")
    wanted = json.loads(subprocess.check_output(words, cwd=ROOT, text=True))
    passed = {*OPTIONAL, *(name for name, row in read_rows().items() if is_current(row))}
    return [session["session"] for session in wanted if session["session"] not in passed]


@table()
def support():
    rows = read_rows()

    def cell(name):
        row = rows.pop(name, None)
        passed = row and ("passed at" if row["passed"] else "**failed** at")
        return f"{passed} {code(row['commit'])}" if row else "not run"

    yield "torch", *BY_RELEASE
    for name in [name for name in rows if name.startswith("floor(")]:
        yield name[6:-1], "", f"in part: {cell(name)}", ""
    for release in RELEASES:
        yield release, *(cell(name.format(release)) for name in BY_RELEASE.values())
    yield (
        f"The portable implementation needs no build. On releases outside {RANGE} it is the one that runs. The package may "
        "have changed since a commit above; `python -m lab.sessions` lists what has not passed on the present one."
    )
    others = defaultdict(lambda: defaultdict(list))
    for name, row in rows.items():
        kind, _, of = name.rstrip(")").partition("(")
        others[("" if row["passed"] else "**failed** ") + code(row["commit"])][kind].append(of)
    lists = (
        f"{at}: {', '.join(' '.join([code(kind), *of]).strip() for kind, of in kinds.items())}"
        for at, kinds in others.items()
    )
    yield f"The other sessions of nox, by the commit on which each has passed or failed: {'; '.join(lists)}."


if __name__ == "__main__":
    if sys.argv[1:]:
        run_sessions(*sys.argv[1:])
    elif missing := find_missing():
        sys.exit(f"These sessions have not passed on these sources: {', '.join(missing)}")
