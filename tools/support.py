"""docs/support.md from what ran: which torch, implementation and device passed which tests.

pytest --record out/support.json ...    adds a run to the file
python tools/support.py out/support.json  puts it beside the committed ones and writes the page
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "support.json"
PAGE = ROOT / "docs" / "support.md"
RELEASES = ["2.11", "2.12", "2.13", "2.14", "2.15"]
# What a user would ask for, and the test files that say whether it works.
FEATURES = {
    "gradients": ["test_table", "test_tensors", "test_seeds"],
    "torch.func": ["test_func", "test_func_tensors"],
    "double backward": ["test_gradcheck"],
    "torch.compile": ["test_compile"],
    "torch.export": ["test_export"],
    "pin": ["test_pin", "test_pin_by_environment"],
}
HEAD = """# Support

What the tests have run on. A cell says `tested` where every test file of the feature ran and passed,
`partly` where some of them ran, `failed` where a test failed, and `-` where none ran. The page is
generated: `pytest --record` adds a run to a file, and `tools/support.py` puts it into this table.

| torch | implementation | device | {features} |
| --- | --- | --- | {rules} |
"""
TAIL = """
Written, and neither built nor run: the wheels for macOS and Windows, and for Python other than 3.11
(`.github/workflows/wheels.yml`). Compiled, linked and read, and not run where there is no GPU: the CUDA
kernels (`make check-cuda`). Untried: MPS, XPU and ROCm.
"""


def cell(run: dict[str, dict[str, int]], files: list[str]) -> str:
    found = [run[f] for f in files if f in run]
    if any(f["failed"] for f in found):
        return "failed"
    passed = [f for f in found if f["passed"]]
    return "tested" if len(passed) == len(files) else "partly" if passed else "-"


def page(runs: dict[str, dict[str, dict[str, int]]]) -> str:
    text = HEAD.format(features=" | ".join(FEATURES), rules=" | ".join("---" for _ in FEATURES))
    missing = set(RELEASES)
    for name, run in sorted(runs.items()):
        torch, implementation, device = name.split(", ")
        missing.discard(".".join(torch.split(".")[:2]))
        cells = " | ".join(cell(run, files) for files in FEATURES.values())
        text += f"| {torch} | {implementation} | {device} | {cells} |\n"
    for release in sorted(missing):
        text += f"| {release} | | | {' | '.join('-' for _ in FEATURES)} |\n"
    return text + TAIL


def merge(runs: dict[str, dict], more: dict[str, dict]) -> dict[str, dict]:
    for name, files in more.items():
        runs.setdefault(name, {}).update(files)
    return dict(sorted(runs.items()))


if __name__ == "__main__":
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    for path in sys.argv[1:]:
        runs = merge(runs, json.loads(Path(path).read_text()))
    RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    PAGE.write_text(page(runs))
