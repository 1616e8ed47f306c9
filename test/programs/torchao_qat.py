"""torchao: quantisation-aware training with int4 weights. The outermost levels are the bounds of a clamp."""

import torch
from digests import compiled, step
from torchao.quantization import quantize_
from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
levels = IntxFakeQuantizeConfig(torch.int4, group_size=32)
quantize_(model, QATConfig(weight_config=levels, step="prepare"))
forward = compiled(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
x, y = torch.randn(16, 64), torch.randn(16, 32)
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(forward(x), y)
    loss.backward()
    step(loss, model.parameters())
    optimizer.step()
