"""Three small models with their data: made on the spot, classified by cross-entropy.

Each is a module with `forward(x, kinks)`, where `kinks` holds the clamps, and `batch(n, generator)`.
The scales are such that the bounds are reached at all, which is where a convention could matter: the
norms of the convolutional net start with a gain of 2, the inputs of the SwiGLU block are heavy-tailed.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 8


class MLP(nn.Module):
    """Two hidden layers of ReLU, the second around a residual connection, as in a ResNet."""

    steps, batch_size, learning_rate = 300, 128, 3e-3
    inputs, hidden = 32, 96

    def __init__(self, generator):
        super().__init__()
        self.labels = teacher(self.inputs, generator)
        self.first = linear(self.inputs, self.hidden, generator)
        self.second = linear(self.hidden, self.hidden, generator)
        self.head = linear(self.hidden, CLASSES, generator)

    def batch(self, n, generator):
        x = torch.randn(n, self.inputs, generator=generator)
        return x, self.labels(x)

    def forward(self, x, kinks):
        layer = kinks.precision.linear
        x = kinks.relu(layer(x, self.first), "relu of a layer at 0")
        x = kinks.relu(x + layer(x, self.second), "relu of a sum at 0")
        return layer(x, self.head).float()


class ConvNet(nn.Module):
    """Three convolutions with batch norm, of ReLU6, hardswish and ReLU6; shifted patterns in noise."""

    steps, batch_size, learning_rate = 160, 48, 3e-3
    size, gain = 12, 2.0

    def __init__(self, generator):
        super().__init__()
        coarse = torch.randn(CLASSES, 1, 4, 4, generator=generator)
        self.patterns = F.interpolate(coarse, size=(self.size, self.size), mode="bilinear")
        channels, strides = (1, 8, 16, 16), (1, 2, 1)
        self.strides = strides
        self.convolutions = nn.ModuleList()
        self.norms = nn.ModuleList()
        for before, after in zip(channels, channels[1:]):
            part = nn.Conv2d(before, after, 3)
            redraw(part, before * 9, generator)
            norm = nn.BatchNorm2d(after)
            nn.init.constant_(norm.weight, self.gain)
            self.convolutions.append(part)
            self.norms.append(norm)
        self.head = linear(channels[-1], CLASSES, generator)

    def batch(self, n, generator):
        label = torch.randint(CLASSES, (n,), generator=generator)
        shifts = torch.randint(self.size, (2, n, 1), generator=generator)
        rows, columns = (torch.arange(self.size) + shifts) % self.size
        x = self.patterns[label[:, None, None], 0, rows[:, :, None], columns[:, None]].unsqueeze(1)
        return x + torch.randn(x.shape, generator=generator), label

    def forward(self, x, kinks):
        layer = kinks.precision.layer
        activations = (kinks.relu6, kinks.hardswish, kinks.relu6)
        parts = zip(self.convolutions, self.norms, self.strides, activations)
        for part, norm, stride, activation in parts:
            x = layer(F.conv2d, x, part.weight, part.bias, stride=stride, padding=1)
            x = activation(norm(x.float()).to(x.dtype))
        x = x.float().mean((2, 3))
        return kinks.precision.linear(x, self.head).float()


class SwiGLU(nn.Module):
    """A residual block with a clamped SwiGLU and a head, on inputs of Student's t with 3 degrees."""

    steps, batch_size, learning_rate = 300, 128, 1e-3
    width, hidden = 32, 64

    def __init__(self, generator, limit):
        super().__init__()
        self.limit = limit
        self.labels = teacher(self.width, generator)
        self.gate = linear(self.width, self.hidden, generator, gain=2.0)
        self.up = linear(self.width, self.hidden, generator, gain=2.0)
        self.down = linear(self.hidden, self.width, generator)
        self.head = linear(self.width, CLASSES, generator)

    def batch(self, n, generator):
        shape = (n, self.width)
        normal = torch.randn(shape, generator=generator)
        chi = torch.randn(3, *shape, generator=generator).square().mean(0)
        x = normal / chi.sqrt()
        return x, self.labels(x)

    def forward(self, x, kinks):
        layer = kinks.precision.linear
        x = x.to(kinks.precision.dtype)
        hidden = kinks.swiglu(layer(x, self.gate), layer(x, self.up), self.limit)
        return layer(x + layer(hidden, self.down), self.head).float()


MODELS = {
    "mlp": MLP,
    "conv": ConvNet,
    "swiglu, limit 7": lambda generator: SwiGLU(generator, 7),
    "swiglu, limit 10": lambda generator: SwiGLU(generator, 10),
}


def teacher(inputs, generator):
    """The labels of a wider random network of tanh."""
    first = torch.randn(128, inputs, generator=generator) * 2 / math.sqrt(inputs)
    second = torch.randn(CLASSES, 128, generator=generator)
    return lambda x: (torch.tanh(x @ first.T) @ second.T).argmax(1)


def linear(before, after, generator, gain=1.0):
    return redraw(nn.Linear(before, after), before, generator, gain)


def redraw(part, fan_in, generator, gain=1.0):
    """torch's own initialisation, drawn from `generator`."""
    with torch.no_grad():
        for p in part.parameters():
            p.uniform_(-1, 1, generator=generator).mul_(gain / math.sqrt(fan_in))
    return part
