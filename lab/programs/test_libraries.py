"""The tests that other people's libraries have of themselves, without a pin and under `inclusive`: `make check-programs`.

A library is here if its source distribution has tests; of these, the files that concern clamps are run
(libraries.yaml). PyTorch is of a release whose own gradient is `inclusive`, so that every test must end as it does
without the pin. out/library-tests.jsonl, written at the end, is the record of docs/programs.md.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest
import yaml

import records

OUT = Path(__file__).resolve().parents[2] / "out"
LIBRARIES = yaml.safe_load(Path(__file__).with_name("libraries.yaml").read_text())
LIMIT = 1800  # seconds of the tests of a library
FIXED = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


def unpacked(name, version, folder):
    """The source distribution of the installed version."""
    stem = f"{name.replace('-', '[-_]')}-{version}"
    if not [*folder.glob(stem)]:
        words = f"download --quiet --no-deps --no-binary {name} {name}=={version} --dest".split()
        # pip asks the distribution's build backend for its metadata, which in isolation pip installs itself.
        rest = {k: v for k, v in os.environ.items() if k != "PIP_NO_BUILD_ISOLATION"}
        subprocess.run([sys.executable, "-m", "pip", *words, folder], env=rest, check=True)
        (archive,) = folder.glob(f"{stem}.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    (root,) = folder.glob(stem)
    return root


def outcomes(root, files, pin, report):
    """How every test ended, by name, and how many calls the pin reached."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith(("CLAMPGRAD_", "PYTEST_"))}
    ours = {"CLAMPGRAD_GRADIENT": pin, "CLAMPGRAD_VERBOSE": "1"} if pin else {}
    report.unlink(missing_ok=True)
    words = f"-q -p no:cacheprovider -p no:randomly --junitxml {report}".split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files],
        cwd=root,
        env={**rest, **ours, **FIXED},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert report.exists(), done.stdout[-2000:] + done.stderr[-2000:]
    # pytest keeps what is printed at `import torch`, but not what is printed at the end.
    reached = re.findall(r"^clampgrad: .* the pin reached (no|[\d,]+) call", done.stderr, re.M)
    assert bool(pin) == bool(reached), done.stderr[-2000:]
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        ended = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}::{case.get('name')}"] = min(ended, default="passed")
    return found, sum(int(n.replace(",", "")) for n in reached if n != "no")


@pytest.fixture(scope="module")
def rows():
    found = {}
    yield found
    records.write(OUT / "library-tests.jsonl", [found[k] for k in LIBRARIES if k in found])


@pytest.mark.parametrize("name", LIBRARIES)
def test_its_own_tests_end_as_without_a_pin(name, rows):
    folder, version = OUT / "library-tests", importlib.metadata.version(name)
    folder.mkdir(parents=True, exist_ok=True)
    # A library without a configuration of pytest would take that of a folder above, this project's.
    (folder / "pytest.ini").touch()
    root, report = unpacked(name, version, folder), folder / f"{name}.xml"
    stock, _ = outcomes(root, LIBRARIES[name], None, report)
    pinned, calls = outcomes(root, LIBRARIES[name], "inclusive", report)
    ended = {
        k: [stock.get(k, "absent"), pinned.get(k, "absent")] for k in sorted({**stock, **pinned})
    }
    differ = {k: both for k, both in ended.items() if both[0] != both[1]}
    rows[name] = {
        "library": name,
        "version": version,
        "torch": importlib.metadata.version("torch"),
        "files": LIBRARIES[name],
        "tests": len(stock),
        "calls": calls,
        "stock": dict(sorted(Counter(stock.values()).items())),
        "differ": differ,
    }
    # A test that ends in an error without a pin has tested nothing.
    assert stock and not differ and "error" not in stock.values()
