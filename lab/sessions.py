"""Which sessions of nox have passed, and on which commit: records/sessions.jsonl, and the table
of docs/support.md.

    nox -t release --report out/nox.json     runs what a release must pass
    python -m lab.sessions out/nox.json      records what ran, with the commit that is checked out
    python -m lab.sessions                   fails if a release lacks something; needs nox
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
# What a release may do without: docs/support.md says that no GPU has run it.
OPTIONAL = ("gpu(cuda)",)
BY_RELEASE = {
    "compiled": "tests({})",
    "portable": "portable({})",
    "compiled, no compiler on `PATH`": "no_compiler({})",
}


def read_rows():
    return {row["session"]: row for row in records.read("sessions")["rows"]}


def record_report(report):
    """Each session in place of its last run. One that was skipped has not run."""
    words = ("git", "status", "--porcelain", "--", ".", ":!records")
    if subprocess.check_output(words, cwd=ROOT):
        sys.exit("A result is of a commit, and `git status` shows changes that are in none.")
    head = subprocess.check_output(("git", "rev-parse", "HEAD"), cwd=ROOT, text=True)[:8]
    rows = read_rows()
    for session in json.loads(Path(report).read_text())["sessions"]:
        (name, *_) = session["signatures"] or [session["name"]]
        row = {"session": name, "passed": session["result"] == "success", "on": str(date.today())}
        row |= {"commit": head, "seconds": round(session["duration"])}
        rows |= {name: row} if session["result"] != "skipped" else {}
    records.write("sessions", rows.values(), digits=None)


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT).returncode


def is_current(row):
    """Whether what passed has passed here: its commit has the same package."""
    return row["passed"] and not git("diff", "--quiet", row["commit"], "--", *PACKAGE)


def find_missing():
    """What a release must pass, and has not on this package."""
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
    yield f"The other sessions of nox, by the commit on which each has passed: {'; '.join(lists)}."


def main(*reports):
    for report in reports:
        record_report(report)
    if not reports and (missing := find_missing()):
        sys.exit(f"These sessions have not passed on this package: {', '.join(missing)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
