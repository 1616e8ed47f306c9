"""brevitas: a network with quantised weights and activations, whose clamps are `where`s of its own."""

import brevitas.nn as qnn
import torch
from digests import step

model = torch.nn.Sequential(
    qnn.QuantIdentity(bit_width=4),
    qnn.QuantLinear(32, 32, bias=True, weight_bit_width=3),
    qnn.QuantReLU(bit_width=4),
    qnn.QuantLinear(32, 8, bias=True, weight_bit_width=3),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 32), torch.randint(0, 8, (16,))
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    step(loss, model.parameters())
    optimizer.step()
