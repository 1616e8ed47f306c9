"""The cases of lab/libraries whose libraries the tests have: a converted model is as
stock, and a named convention is not lost in silence. `nox -s libraries` runs all
cases, in processes of their own."""

import pytest

import clampgrad
import records
from lab.libraries import cases, judging

SLOW = {"pt2e_ptq", "pt2e_qat", "onnx_dynamo", "onnx_older", "spawned", "saved_for_others"}
# Those of several processes or compilations: in two ways only.
DEAR = {*SLOW, "saved", "fx_ptq", "eager_ptq"}
DEAR |= {name for name in cases.CASES if name.startswith(("compiled", "export"))}
HERE = [
    pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, case in cases.CASES.items()
    if cases.is_a_part(case.library) or case.library == "torchao"
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HERE)
def test_a_case(name):
    verdicts = judging.verdicts(name, ["example", "ReLU6"] if name in DEAR else judging.WAYS)
    missing = verdicts.get("stock", "").startswith("ModuleNotFoundError")
    if missing:
        pytest.skip(verdicts["stock"])
    assert not judging.wrong(name, verdicts), verdicts


@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_found(monkeypatch):
    def otherwise(model, x):
        return clampgrad.nn.set_gradient(model, judging.NAMED)

    def judge(way, change):
        monkeypatch.setitem(judging.WAYS, way, change)
        return judging.verdicts("deepcopied", [way])

    assert judging.wrong("deepcopied", judge("convert", otherwise))
    assert judging.wrong("deepcopied", judge("ReLU6", judging.stock))
    assert judging.wrong("deepcopied", judge("example", None))  # an error
    assert not judging.wrong("deepcopied", judge("ReLU6", otherwise))


def test_nothing_in_the_record_is_wrong():
    rows = records.read("convert-libraries")["rows"]
    assert {row["name"] for row in rows} <= set(cases.CASES)
    for row in rows:
        verdicts = {way: row[way] for way in judging.WAYS}
        assert not judging.wrong(row["name"], verdicts), row
