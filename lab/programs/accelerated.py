"""accelerate: accumulated gradients in bfloat16 autocast, where sums are often at a clamp's bound."""

import torch
from accelerate import Accelerator
from digests import compiled, report


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.clamp(layer(8 * x), -1, 1)
        return x.float().square().mean()


accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
data = torch.utils.data.DataLoader(torch.randn(32, 32), batch_size=8)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
forward = compiled(model)
for x in data:
    with accelerator.accumulate(model):
        loss = forward(x)
        accelerator.backward(loss)
        report(loss, model.parameters())
        optimizer.step()
        optimizer.zero_grad()
