"""Every public name, as the documentation uses it: type checkers find
nothing here (test_types.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

import clampgrad

VERSION: str = clampgrad.__version__
IMPLEMENTATION: str = clampgrad.implementation
NAMES: tuple[str, ...] = clampgrad.CONVENTIONS + clampgrad.EXACT + clampgrad.PSEUDO


def functions(x: Tensor, lo: Tensor, gradient: clampgrad.Gradient = "min_norm") -> None:
    assert_type(clampgrad.clamp(x, 0, lo, gradient=gradient), Tensor)
    clampgrad.clamp(x, min=0.0, max=None, gradient="with_grad", maximize=True, out=lo)
    for in_place in (clampgrad.clamp_, clampgrad.clamp_min_, clampgrad.clamp_max_, clampgrad.clip_):
        assert_type(in_place(x, 0), Tensor)
    assert_type(clampgrad.clamp_min(x, lo, gradient="torch_2_13"), Tensor)
    assert_type(clampgrad.clamp_max(x, 1, gradient="jax"), Tensor)
    assert_type(clampgrad.clamp_with_grad(x, 0, 1, maximize=True), Tensor)
    assert_type(clampgrad.clip(x, 0), Tensor)
    for of_two in (clampgrad.maximum, clampgrad.minimum, clampgrad.fmax, clampgrad.fmin):
        assert_type(of_two(x, lo, gradient="joint", out=lo), Tensor)
    assert_type(clampgrad.relu(x, gradient="half"), Tensor)
    assert_type(clampgrad.relu6(x, inplace=True), Tensor)
    assert_type(clampgrad.hardtanh(x, -1.0, 1.0), Tensor)


class SoftClip(nn.Module):
    """As in docs/howto/custom_module.md."""

    gradient: clampgrad.Gradient = "min_norm"

    @clampgrad.pin("inclusive")
    def forward(self, x: Tensor) -> Tensor:
        return clampgrad.clamp(x, -1, 1, gradient=self.gradient)


def modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU6())
    assert_type(clampgrad.nn.convert(model, example_inputs=torch.ones(1, 2)), nn.Sequential)
    assert_type(clampgrad.nn.set_gradient(model, gradient="inclusive"), nn.Sequential)
    clampgrad.nn.set_gradient(model, "half", filter_fn=lambda module, name: name.startswith("1"))
    assert_type(clampgrad.nn.conversions(model), dict[str, str])
    assert_type(clampgrad.nn.undo(model), nn.Sequential)
    clamps = clampgrad.nn.Clamp(0, torch.ones(1), gradient="ste"), clampgrad.nn.ReLU(inplace=True)
    six = clampgrad.nn.ReLU6(gradient="restoring", maximize=True)
    nn.Sequential(*clamps, six, clampgrad.nn.Hardtanh(-1.0, 1.0, gradient="inclusive"))


@clampgrad.pin("inclusive")
def step(x: Tensor, scale: float = 1.0) -> float:
    return (x.clamp(0, 1) * scale).sum().item()


@clampgrad.pin("half")
def steps(count: int) -> Iterator[int]:
    yield from range(count)


@clampgrad.pin(None)
async def later(name: str) -> bytes:
    return name.encode()


@clampgrad.pin("installed")
async def pages(count: int) -> AsyncIterator[int]:
    yield count


async def pins(x: Tensor) -> None:
    with clampgrad.pin("with_grad", maximize=True) as pinned:
        assert_type(pinned, clampgrad.pin)
    assert_type(step(x, scale=2.0), float)
    assert_type(list(steps(2)), list[int])
    assert_type(await later("a"), bytes)
    assert_type([page async for page in pages(1)], list[int])
    assert_type(SoftClip().forward(x), Tensor)
    assert_type(clampgrad.pin.remember(step)(x), float)
    clampgrad.set_pin("installed")
    clampgrad.set_pin(None)
    assert_type(clampgrad.pin.current(), str | None)


def tools(x: Tensor, folder: Path) -> None:
    with clampgrad.audit(every=10) as report:
        x.clamp(0, 1).sum().backward()  # type: ignore[no-untyped-call]
    assert_type(report, clampgrad.Report)
    report.save(folder / "audit.json")
    print(report, report.summary(), report.skipped)
    for finding in report:
        assert_type(finding, clampgrad.Finding)
        assert_type(finding.warnings, list[clampgrad.Diagnostic])
        print(finding.file, finding.line, finding.moved["joint"])
    for suspect in report.suspects:
        assert_type(suspect, clampgrad.Suspect)
    rows = clampgrad.survey(device="cpu")
    assert_type((rows, rows[0]), tuple[clampgrad.Survey, clampgrad.Row])
    clampgrad.plot("half", torch.tanh, loss=torch.square, path=folder / "plot.png")
