"""A stack as in MobileNetV2, trained a few steps with one activation or another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
from benchmarks.memory import saved_bytes
from benchmarks.timing import interleaved, summary

ACTIVATIONS = {
    "clampgrad.clamp": lambda x: clampgrad.clamp(x, 0, 6),
    "F.relu6": F.relu6,
    "clampgrad.clamp_": lambda x: clampgrad.clamp_(x, 0, 6),
    "F.relu6, in place": lambda x: F.relu6(x, inplace=True),
}


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; https://arxiv.org/abs/1801.04381"""

    def __init__(self, channels: int, expansion: int, activation):
        super().__init__()
        wide = channels * expansion
        self.expand = nn.Conv2d(channels, wide, 1, bias=False)
        self.depthwise = nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False)
        self.project = nn.Conv2d(wide, channels, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in (wide, wide, channels))
        self.activation = activation

    def forward(self, x):
        y = self.activation(self.norms[0](self.expand(x)))
        y = self.activation(self.norms[1](self.depthwise(y)))
        return x + self.norms[2](self.project(y))


def stack(activation, channels: int = 16, blocks: int = 4, expansion: int = 6) -> nn.Module:
    torch.manual_seed(0)
    body = [InvertedResidual(channels, expansion, activation) for _ in range(blocks)]
    return nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1), *body)


def images(batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))


def trainer(model: nn.Module, x: torch.Tensor):
    """A function that takes one step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def measure(seconds: float, batch: int = 8, size: int = 64) -> list[dict]:
    """Step time and saved bytes for each activation, on the same batch."""
    x = images(batch, size)
    models = {name: stack(activation) for name, activation in ACTIVATIONS.items()}
    saved = {name: saved_bytes(model, x) for name, model in models.items()}
    steps = {name: trainer(model, x) for name, model in models.items()}
    same = {"group": "model", "n": batch, "size": size, "dtype": "float32", "threads": 1}
    same["direction"] = "both"
    return [
        {**same, "function": name, **summary(values), "saved_bytes": saved[name]}
        for name, values in interleaved(steps, seconds, slice_seconds=0).items()
    ]
