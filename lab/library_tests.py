"""The tests that other people's libraries have of themselves, without a pin and under `inclusive`.

    python -m lab.library_tests FOLDER [--only NAME ...] [--out FILE]

A library is here if its wheel or source distribution has tests; of these, the files that concern clamps are run.
PyTorch is of a release whose own gradient is `inclusive`, so that every test must end as it does without the pin.
FOLDER is where the source distributions are unpacked.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import yaml

import records
from lab.program_runs import PROGRAMS

LIMIT = 1800  # seconds of the tests of a library
Outcomes = dict[str, str]


def unpacked(name: str, folder: Path) -> Path:
    """The source distribution of the installed version."""
    version = importlib.metadata.version(name)

    def have(ending: str) -> Path | None:
        return next(folder.glob(f"{name.replace('-', '[-_]')}-{version}{ending}"), None)

    if not have(""):
        if not have(".tar.gz"):
            words = ["download", "--quiet", "--no-deps", "--no-binary", name, "--dest", str(folder)]
            # pip asks the distribution's build backend for its metadata, which in isolation pip installs itself.
            rest = {k: v for k, v in os.environ.items() if k != "PIP_NO_BUILD_ISOLATION"}
            subprocess.run(
                [sys.executable, "-m", "pip", *words, f"{name}=={version}"], env=rest, check=True
            )
        archive = have(".tar.gz")
        assert archive, f"pip got no source distribution of {name} {version}"
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    root = have("")
    assert root, f"{archive} has no folder of its name"
    return root


def outcomes(root: Path, words: list[str], pin: str | None, report: Path) -> tuple[Outcomes, int]:
    """How every test ended, by name, and how many calls the pin reached."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD_")}
    ours = {"CLAMPGRAD_GRADIENT": pin, "CLAMPGRAD_VERBOSE": "1"} if pin else {}
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--junitxml", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *words],
        cwd=root,
        env={
            **rest,
            **ours,
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "agg",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    # pytest keeps what is printed at `import torch`, but not what is printed at the end.
    reached = re.findall(
        r"^clampgrad: .* the pin reached (no|[\d,]+) call", done.stderr, re.MULTILINE
    )
    assert bool(pin) == bool(reached), done.stderr[-2000:]
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        ended = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = min(ended, default="passed")
    return found, sum(int(n.replace(",", "")) for n in reached if n != "no")


def compare(name: str, what: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is recorded of a library."""
    folder.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version(name)
    if what.get("installed"):
        root = Path(str(importlib.metadata.distribution(name).locate_file("")))
    else:
        root = unpacked(name, folder)
    words = [*what["files"], *what.get("options", [])]
    # For a library without a configuration of pytest, which would take that of a folder above: this project's.
    configuration = folder.absolute() / "pytest.ini"
    configuration.touch()
    if what.get("installed"):
        words += ["-c", str(configuration), "--rootdir", str(root)]
    report = folder.absolute() / f"{name}.xml"
    stock, _ = outcomes(root, words, None, report)
    pinned, calls = outcomes(root, words, "inclusive", report)
    differ = sorted(k for k in stock.keys() | pinned.keys() if stock.get(k) != pinned.get(k))
    counts = {e: list(stock.values()).count(e) for e in sorted(set(stock.values()))}
    return {
        "version": version,
        "torch": importlib.metadata.version("torch"),
        "files": what["files"],
        "tests": len(stock),
        "calls": calls,
        "stock": counts,
        "differ": {k: [stock.get(k, "absent"), pinned.get(k, "absent")] for k in differ},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--out", type=Path, default=PROGRAMS.parents[1] / "out/library-tests.jsonl")
    options = parser.parse_args()
    libraries = yaml.safe_load((PROGRAMS / "library_tests.yaml").read_text())
    rows = (
        {r["library"]: r for r in records.read(options.out)["rows"]} if options.out.exists() else {}
    )
    bad = 0
    for name in options.only or libraries:
        print(f"==> the tests of {name}", flush=True)
        found = compare(name, libraries[name], options.folder)
        # What ends in an error without a pin has tested nothing.
        bad += len(found["differ"]) + found["stock"].get("error", 0)
        rows[name] = {"library": name, **found}
        records.write(options.out, [rows[k] for k in libraries if k in rows])
        print(f"    {found}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
