"""Three small models with their data, made on the spot with torch's global generator, and classified by cross-entropy.

Each has `forward(x, kinks)`, where `kinks` holds the clamps and the precision, and `batch(n)`.
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

    def __init__(self):
        super().__init__()
        self.labels = teacher(self.inputs)
        self.first = nn.Linear(self.inputs, self.hidden)
        self.second = nn.Linear(self.hidden, self.hidden)
        self.head = nn.Linear(self.hidden, CLASSES)

    def batch(self, n):
        x = torch.randn(n, self.inputs)
        return x, self.labels(x)

    def forward(self, x, kinks):
        layer = kinks.precision.layer
        x = kinks.relu(layer(self.first, x), "relu of a layer at 0")
        x = kinks.relu(x + layer(self.second, x), "relu of a sum at 0")
        return layer(self.head, x).float()


class ConvNet(nn.Module):
    """Three convolutions with batch norm, of ReLU6, hardswish and ReLU6; shifted patterns in noise."""

    steps, batch_size, learning_rate = 160, 48, 3e-3
    size, gain = 12, 2.0

    def __init__(self):
        super().__init__()
        coarse = torch.randn(CLASSES, 1, 4, 4)
        self.patterns = F.interpolate(coarse, size=(self.size, self.size), mode="bilinear")[:, 0]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride, padding=1)
            for before, after, stride in ((1, 8, 1), (8, 16, 2), (16, 16, 1))
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(c.out_channels) for c in self.convolutions)
        for norm in self.norms:
            nn.init.constant_(norm.weight, self.gain)
        self.head = nn.Linear(16, CLASSES)

    def batch(self, n):
        label = torch.randint(CLASSES, (n,))
        rows, columns = (torch.arange(self.size) + torch.randint(self.size, (2, n, 1))) % self.size
        x = self.patterns[label[:, None, None], rows[:, :, None], columns[:, None]].unsqueeze(1)
        return x + torch.randn(x.shape), label

    def forward(self, x, kinks):
        layer = kinks.precision.layer
        activations = kinks.relu6, kinks.hardswish, kinks.relu6
        for convolution, norm, activation in zip(self.convolutions, self.norms, activations):
            x = layer(convolution, x)
            x = activation(norm(x.float()).to(x.dtype))
        return layer(self.head, x.float().mean((2, 3))).float()


class SwiGLU(nn.Module):
    """A residual block with a clamped SwiGLU and a head, on inputs of Student's t with 3 degrees."""

    steps, batch_size, learning_rate = 300, 128, 1e-3
    width, hidden = 32, 64

    def __init__(self, limit):
        super().__init__()
        self.limit = limit
        self.labels = teacher(self.width)
        self.gate = nn.Linear(self.width, self.hidden)
        self.up = nn.Linear(self.width, self.hidden)
        for p in (*self.gate.parameters(), *self.up.parameters()):
            p.data *= 2
        self.down = nn.Linear(self.hidden, self.width)
        self.head = nn.Linear(self.width, CLASSES)

    def batch(self, n):
        normal, chi = torch.randn(n, self.width), torch.randn(3, n, self.width)
        x = normal / chi.square().mean(0).sqrt()
        return x, self.labels(x)

    def forward(self, x, kinks):
        layer = kinks.precision.layer
        x = x.to(kinks.precision.dtype)
        hidden = kinks.swiglu(layer(self.gate, x), layer(self.up, x), self.limit)
        return layer(self.head, x + layer(self.down, hidden)).float()


MODELS = {
    "mlp": MLP,
    "conv": ConvNet,
    "swiglu, limit 7": lambda: SwiGLU(7),
    "swiglu, limit 10": lambda: SwiGLU(10),
}


def teacher(inputs):
    """The labels of a wider random network of tanh."""
    first = torch.randn(128, inputs) * 2 / math.sqrt(inputs)
    second = torch.randn(CLASSES, 128)
    return lambda x: (torch.tanh(x @ first.T) @ second.T).argmax(1)
