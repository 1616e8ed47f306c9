"""torchopt: a learning rate by differentiating through inner steps, whose parameters stay in a box."""

import torch
import torchopt
from digests import step

weight = torch.nn.Parameter(torch.tensor([0.0, 0.5, 1.0, 0.25]))
rate = torch.nn.Parameter(torch.tensor(0.25))


class Box(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.x = torch.nn.Parameter(torch.tensor([0.0, 0.5, 1.0, 0.75]))

    def forward(self):
        return (self.x.clamp(0, 1) - weight).square().sum() * rate


for _ in range(2):
    inner = Box()
    optimizer = torchopt.MetaSGD(inner, lr=0.5)
    for _ in range(3):
        optimizer.step(inner())
    loss = (inner.x.clamp(0, 1) - 1).square().sum()
    step(loss, [weight, rate])
    rate.data -= 0.1 * rate.grad
