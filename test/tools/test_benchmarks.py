"""The benchmarks run what they name, and save for backward what they claim."""

import pytest
import torch

import records
from benchmarks import bars, broadcast, cases, memory, tables, values
from benchmarks.run import pooled, time_block
from benchmarks.timing import DIRECTIONS, interleaved, step, summary

PLAIN = [group for group in cases.GROUPS if "compiled" not in group.name]


@pytest.mark.parametrize("group", PLAIN, ids=lambda group: group.name)
def test_rivals_have_one_forward(group):
    limits = {"torch.neg", "F.relu"}
    if group.name == "maximum":
        limits = {name for name in group.functions if "maximum" not in name}
    inputs = cases.inputs(group, 1000, torch.float32)
    first, *others = (f(*inputs) for name, f in group.functions.items() if name not in limits)
    for result in others:
        torch.testing.assert_close(result, first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("group", PLAIN, ids=lambda group: group.name)
def test_every_case_is_timed(group, direction):
    inputs = cases.inputs(group, 10, torch.bfloat16)
    g = torch.ones(10, dtype=torch.bfloat16)
    steps = {name: step(f, inputs, g, direction) for name, f in group.functions.items()}
    samples = interleaved(steps, seconds=0, rounds=2, slice_seconds=0)
    assert samples.keys() == group.functions.keys()
    times = [summary(values) for values in samples.values()]
    assert all(0 < t["low"] <= t["median"] <= t["high"] and t["rounds"] == 2 for t in times)


def test_a_ratio_below_its_target_is_missed():
    parts = [[time_block(cases.GROUPS[0], 1, "float32", 1, "both", 0, "cpu")] for _ in range(2)]
    (row,) = pooled(parts)
    for rival, median in {"F.relu": 1.0, "torch.clamp": 1.3, "torch.neg": 0.94}.items():
        row["functions"][rival]["median"] = median * row["functions"]["clampgrad.clamp"]["median"]
    lines = [*bars.ratios({"rows": [{"malloc": "fixed", **row}]}, "cpu")]
    assert [line.endswith("missed") for line in lines] == [False, True, True]
    assert lines[1] == "torch.clamp / ours: 1.30, target 1.35: clamp, N = 1, float32  missed"


def test_calls_that_record_nothing(monkeypatch):
    """All cases run, and those that have a target are among them."""
    for sizes in ("SIZES", "MODULE_SIZES", "LAYOUT_SIZES"):
        monkeypatch.setattr(values, sizes, (2**12,))
    seen = {}
    for group, _, dtype, _, direction, calls in values.cases():
        seen.setdefault((group, direction), {})[dtype] = calls
        assert all(isinstance(call(), (torch.Tensor, tuple)) for call in calls.values())
    for bar in bars.BARS["values"]:
        of_group = seen[bar["group"], bar.get("direction", "both")]
        for dtype in {*of_group, *bar} & {"float32", "bfloat16", "float16"}:
            if dtype in bar:
                assert {*bar["rivals"], *filter(None, [bar.get("of")])} <= of_group[dtype].keys()


def test_bounds_that_are_broadcast(monkeypatch):
    """All cases run, with torch's gradients, for nothing ties; and a
    target is missed where it is."""
    shapes = {"": (2, 4, 6, 8), ", channels_last": (2, 4, 6, 8), ", 7 x 7": (2, 4, 7, 7)}
    monkeypatch.setitem(broadcast.SHAPES, "cpu", shapes)
    rows = []
    for name, learned, functions in broadcast.cases("cpu", torch.float32):
        torch.testing.assert_close(functions["clampgrad.clamp"](), functions["torch.clamp"]())
        times = {f: {"median": 1.0, "peak": 1} for f in functions}
        rows.append({"case": name, "learned": learned, "dtype": "float32", "functions": times})
    assert not [*broadcast.missed(rows)]
    rows[1]["functions"]["clampgrad.clamp"] = {"median": 1.2, "peak": 2}
    assert len([*broadcast.missed(rows)]) == 2


@pytest.mark.compiled("the portable implementation keeps a byte per element")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("bar", bars.BARS["saved"], ids=lambda bar: bar["function"])
def test_bits_that_are_saved(bar, dtype):
    (group,) = (group for group in cases.GROUPS if group.name == bar["group"])
    inputs = cases.inputs(group, 2**12, dtype)
    assert memory.saved_bytes(group.functions[bar["function"]], *inputs) * 8 == bar["bits"] * 2**12


def test_the_rows_of_a_gpu_come_first(monkeypatch, tmp_path):
    """They have a peak, and no digest; what is measured there is said apart."""

    def write(name, machine, **measured):
        rows = [
            {
                "setting": setting,
                "model": "a model",
                "milliseconds": 20.4,
                "saved_bytes": 2**22,
                **measured,
            }
            for setting in ("stock", "convert")
        ]
        header = {"torch": "2.13.0", "machine": machine, "versions": {"timm": "1.0"}, "rounds": 1}
        records.write(tmp_path / name, rows, **header, commit="abcdef0")

    monkeypatch.setattr(records, "FOLDER", tmp_path)
    write("real-models-2.13.0.jsonl", {"cpu": "A processor"}, gradients="the same")
    of_cpu = "| a model | CPU, torch 2.13.0 | 20 ms, 4.0 MiB | 20 ms, 4.0 MiB |"
    alone = tables.real_models().replace(tables.SPACE, " ")
    assert of_cpu in alone and "recorded on a GPU yet" in alone
    write("real-models-cuda.jsonl", {"gpu": "A GPU"}, peak_bytes=2**25)
    both = tables.real_models().replace(tables.SPACE, " ")
    rows = [line for line in both.splitlines() if line.startswith("| a model")]
    assert rows == [
        "| a model | A GPU, torch 2.13.0 | 20 ms, 4.0 (32) MiB | 20 ms, 4.0 (32) MiB |",
        of_cpu,
    ]
    assert "recorded on a GPU yet" not in both and "at commit `abcdef0`" in both


def test_a_caption_names_the_processor():
    machine = records.machine()
    caption = records.made_on({"torch": "2.13.0", "machine": machine})
    assert caption.startswith(f"torch 2.13.0, {machine['cpu']}, ")


def test_the_portable_implementation_keeps_its_bars():
    """In the record; and a bar that is missed is said to be."""
    record = records.read("portable")
    lines = [*bars.portable(record)]
    assert len(lines) == 20 and not [line for line in lines if line.endswith("missed")]
    for row in record["rows"]:
        row["microseconds"]["torch.clamp"] /= 100
    assert any(line.endswith("missed") for line in bars.portable(record))
