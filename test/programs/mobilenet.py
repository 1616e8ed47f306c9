"""torchvision: MobileNetV2 for two steps; its relu6 is an operator that a pin leaves alone."""

import torch
import torchvision
from digests import compiled, train

model = torchvision.models.mobilenet_v2(num_classes=4, width_mult=0.25, dropout=0.0)
forward = compiled(model)
x, y = torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
train(
    torch.optim.SGD(model.parameters(), lr=0.1),
    lambda: torch.nn.functional.cross_entropy(forward(x), y),
    2,
)
