"""What PyTorch's own build and tests said of the proposals, out of a record of tools/build_pytorch.sh:

    tools/build_pytorch.sh CHECKOUT trial/save-result trial/fused-backward --minimal --out record.json
    python tools/proposals_built.py record.json --note "..."
    python -m tools.fill_tables

The series of the record are the proposals, carried to the text of the tree, under their names in any folder. What
another series said before stays, so that each may be built in a run of its own.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "docs" / "proposals_built.json"
OF_THE_RUN = ("tree", "flags", "machine")


def of_state(state: dict[str, Any]) -> dict[str, Any]:
    """One proposal: how it was built, its gradients, and its tests where they are not as stock's."""
    tests = {}
    for file, run in state["tests"]["files"].items():
        tests[file] = {"counts": run["counts"], "crashes": run["crashes"], "differences": []}
    for name, before, after in state["tests"]["differences"]:
        file, _, test = name.partition(": ")
        tests.setdefault(file, {"counts": {}, "crashes": {}, "differences": []})
        tests[file]["differences"].append([test, before, after])
    build = {key: state["build"][key] for key in ("seconds", "steps", "files")}
    judged = dict(state["gradients"])
    judged.pop("seconds", None)
    return {"build": build, "gradients": judged, "tests": tests}


def proposals(record: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name.rpartition("/")[2]: of_state(record["states"][name]) for name in names}


def merged(old: dict[str, Any], record: dict[str, Any], note: str) -> dict[str, Any]:
    """With what an earlier run on the same tree said of other proposals."""
    found = proposals(record, record["series"])
    if old.get("tree") == record["tree"]:
        found = old["proposals"] | found
    return {key: record[key] for key in OF_THE_RUN} | {"note": note, "proposals": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("record", type=Path)
    parser.add_argument("--note", required=True, help="what a reader of it must know")
    options = parser.parse_args()
    old = json.loads(OUT.read_text()) if OUT.exists() else {}
    new = merged(old, json.loads(options.record.read_text()), options.note)
    OUT.write_text(json.dumps(new, indent=1) + "\n")


if __name__ == "__main__":
    main()
