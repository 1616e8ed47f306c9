"""brevitas: a network with quantised weights and activations, whose clamps are `where`s of its own."""

import brevitas.nn as qnn
import torch
from digests import train

model = torch.nn.Sequential(
    qnn.QuantIdentity(bit_width=4),
    qnn.QuantLinear(32, 32, bias=True, weight_bit_width=3),
    qnn.QuantReLU(bit_width=4),
    qnn.QuantLinear(32, 8, bias=True, weight_bit_width=3),
)
x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
train(
    torch.optim.SGD(model.parameters(), lr=0.1),
    lambda: torch.nn.functional.cross_entropy(model(x), y),
    3,
)
