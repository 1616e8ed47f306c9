"""torchao: quantisation-aware training with int4 weights. The outermost levels are the bounds of a clamp."""

import torch
from digests import compiled, train
from torchao.quantization import quantize_
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
levels = IntxFakeQuantizeConfig(torch.int4, group_size=32)
quantize_(model, QATConfig(weight_config=levels, step="prepare"))
forward = compiled(model)
x, y = torch.randn(16, 64), torch.randn(16, 32)
train(
    torch.optim.SGD(model.parameters(), lr=1.0),
    lambda: torch.nn.functional.mse_loss(forward(x), y),
    3,
)
