"""What a release must pass beside `.ci/run`: all tests on every release of torch, other machines, other people's programs,
C++, the patches on whole source trees, and chance. All of it takes hours.

    .ci/release [STEP...]     all steps, or these; `.ci/release --list` names them

out/release has a log of each step; support.json there, for lab/support.py, has the tests; and release.jsonl, for records/,
says what passed, at which commit, and how long it took. A step whose tools are missing fails, and the others go on.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import records
from buildtools.torch_here import RELEASES
from records import code, table

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "out/release"
RAN = OUT / "release.jsonl"
PYTHONS = ("python3.10", "python3.12", "python3.13", "python3.14")
TARGETS = (
    *("cpp", "sanitize", "races", "check-package", "check-sources", "check-arm64"),
    *("check-programs", "check-jax", "check-cuda", "docs", "mutants"),
)
RECORD = "--record=out/release/support.json"
BRIEF = "test/table/test_seeds.py test/table/test_table.py test/kernels/test_gate.py test/pin/test_pin_tasks.py"


def wheel() -> str:
    """The one in dist/, if it was built from these sources; otherwise a name at which make stops."""
    sources = subprocess.check_output(["make", "-s", "print-SOURCES"], cwd=ROOT, text=True).split()
    newest = max(f.stat().st_mtime for f in (ROOT / s for s in sources) if f.is_file())
    match [w for w in ROOT.glob("dist/clampgrad-*linux*.whl") if w.stat().st_mtime > newest]:
        case [built]:
            return str(built)
    return "dist/the-only-wheel-of-these-sources"


def steps(wheel: str = "") -> dict[str, list[str]]:
    from_wheel = f"WHEEL={wheel}"
    tests = f"ARGS=test lab/test -m 'not build and not jax' {RECORD}"
    found = {"wheels": ["wheels"]}
    for release in RELEASES:
        found[f"tests-{release}"] = ["test", f"TORCH={release}", from_wheel, tests]
        found[f"wheel-{release}"] = ["check-wheel", f"TORCH={release}", from_wheel]
    found["portable"] = ["test-portable", "ARGS=-m 'not build and not jax'"]
    for name in PYTHONS:
        here = [f"VENV=.venv/{name}", f"PYTHON={name}", f"ARGS={BRIEF} --unlike={name} {RECORD}"]
        found[name] = ["test", *here]
    found |= {target: [target] for target in TARGETS}
    found |= {"cpp-debug": ["cpp", "BUILD_TYPE=Debug"], "fuzz": ["fuzz", "SECONDS=1800"]}
    gpu = "PYTHON=.venv/torch-$(make -s print-TORCH)/bin/python lab/gpu_check.sh"
    return {name: ["make", *words] for name, words in found.items()} | {
        "gpu": ["sh", "-c", gpu],
        "gpu-rehearsal": ["sh", "-c", f"DEVICE=cpu {gpu}"],  # that the script of `gpu` works
    }


def run(name: str, commit: str) -> bool:
    """One step, which is recorded."""
    began = time.monotonic()
    with (OUT / f"{name}.log").open("w") as log:
        ended = subprocess.run(steps(wheel())[name], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    seconds, passed = round(time.monotonic() - began), not ended.returncode
    print(f"==> {name}: {seconds} s{'' if passed else ', failed'}", flush=True)
    row = {"step": name, "passed": passed, "seconds": seconds, "commit": commit}
    row["machine"] = f"{os.cpu_count()} cores of {records.processor()}"
    rows = {r["step"]: r for r in records.read(RAN)["rows"]} | {name: row}
    records.write(RAN, [rows[s] for s in steps() if s in rows])
    return passed


@table(right=(1,))
def release():
    found = records.read("release")
    ran = {r["step"]: r for r in found["rows"]}
    yield "step", "minutes", "passed", "at commit"
    for step, r in ran.items():
        passed = "yes" if r["passed"] else "no"
        yield code(step), f"{r['seconds'] / 60:.1f}", passed, code(r["commit"])
    hours = sum(r["seconds"] for r in ran.values()) / 3600
    machines = " and ".join(dict.fromkeys(r["machine"] for r in ran.values()))
    missing = ", ".join(code(s) for s in steps() if s not in ran) or "none"
    yield f"{hours:.1f} hours in all, on {machines}. Not run by this command so far: {missing}."


def main() -> None:
    # What these steps are for, which not every machine has.
    needed = {**{name: name for name in PYTHONS}, "gpu": "nvidia-smi"}
    names = sys.argv[1:] or [s for s in steps() if shutil.which(needed.get(s, "make"))]
    if names == ["--list"]:
        return print(*steps(), sep="\n")
    if unknown := {*names} - {*steps()}:
        sys.exit(f"no such step: {', '.join(unknown)}")
    OUT.mkdir(parents=True, exist_ok=True)
    if not RAN.exists():
        shutil.copy(records.path("release"), RAN)
    os.environ["PIP_CONSTRAINT"] = os.devnull
    commit = records.commit()
    if failed := [name for name in names if not run(name, commit)]:
        sys.exit(f"==> failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
