"""tools/proposals_built.py: what is published of a record of tools/build_pytorch.sh."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location(
    "proposals_built", ROOT / "tools" / "proposals_built.py"
)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

TREE = {"release": "2.7.0", "commit": "0" * 40}


def record(name, after="ok"):
    """As the script's --out writes it."""
    files = {"test_new.py": {"counts": {after: 1}, "crashes": {}}}
    differences = [["test_new.py: TestNew.test_one", "not there", after]]
    state = {
        "build": {"seconds": 1.0, "steps": 2, "files": 3, "compiled": ["a.cpp"]},
        "gradients": {"seconds": 1.0, "points": 5, "points that changed": 4, "failures": []},
        "tests": {"seconds": 1.0, "files": files, "differences": differences},
    }
    of_the_run = {"tree": TREE, "flags": {}, "machine": {}, "series": [name]}
    return of_the_run | {"states": {"stock": {}, name: state}}


def test_a_proposal_under_its_name():
    found = tool.merged({}, record("trial/first"), "by hand")
    assert found["note"] == "by hand" and found["tree"] == TREE
    assert found["proposals"]["first"] == {
        "build": {"seconds": 1.0, "steps": 2, "files": 3},
        "gradients": {"points": 5, "points that changed": 4, "failures": []},
        "tests": {
            "test_new.py": {
                "counts": {"ok": 1},
                "crashes": {},
                "differences": [["TestNew.test_one", "not there", "ok"]],
            }
        },
    }


def test_another_run_keeps_the_other_proposals_of_the_same_tree():
    first = tool.merged({}, record("trial/first"), "")
    both = tool.merged(first, record("trial/second"), "")
    assert list(both["proposals"]) == ["first", "second"]
    again = tool.merged(both, record("trial/first", after="failed"), "")
    assert again["proposals"]["first"]["tests"]["test_new.py"]["counts"] == {"failed": 1}
    other = record("trial/second") | {"tree": TREE | {"release": "2.8.0"}}
    assert list(tool.merged(first, other, "")["proposals"]) == ["second"]


def test_what_is_committed_has_this_form():
    committed = json.loads(tool.OUT.read_text())
    made = tool.merged({}, record("trial/first"), "")
    assert committed.keys() == made.keys()
    for proposal in committed["proposals"].values():
        assert proposal.keys() == made["proposals"]["first"].keys()
