"""tools/proposals_built.py: what is published of a record of tools/build_pytorch.sh."""

import json

from tools.proposals_built import OUT, merged

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
    """In the form of what is committed, and without what nobody reads."""
    found = merged({}, record("trial/first"), "by hand")
    assert found["note"] == "by hand" and found["tree"] == TREE
    committed = json.loads(OUT.read_text())
    assert committed.keys() == found.keys()
    first = found["proposals"]["first"]
    assert all(proposal.keys() == first.keys() for proposal in committed["proposals"].values())
    assert first["build"] == {"seconds": 1.0, "steps": 2, "files": 3}
    (differences,) = (of_file["differences"] for of_file in first["tests"].values())
    assert differences == [["TestNew.test_one", "not there", "ok"]]


def test_another_run_keeps_the_other_proposals_of_the_same_tree():
    first = merged({}, record("trial/first"), "")
    both = merged(first, record("trial/second"), "")
    assert list(both["proposals"]) == ["first", "second"]
    again = merged(both, record("trial/first", after="failed"), "")
    assert again["proposals"]["first"]["tests"]["test_new.py"]["counts"] == {"failed": 1}
    other = record("trial/second") | {"tree": TREE | {"release": "2.8.0"}}
    assert list(merged(first, other, "")["proposals"]) == ["second"]
