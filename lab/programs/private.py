"""opacus: private training, with per-sample gradients (torch.func) and with ghost clipping.

The activation is quantised to quarters, so that values are at its bounds.
"""

import warnings

import torch
from digests import show
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer

warnings.simplefilter("ignore")


class Quantised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randint(-8, 9, (8, 8)) / 4)

    def forward(self, x):
        return torch.clamp(x @ self.weight, 0, 1)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(Quantised(), torch.nn.Linear(8, 3))


x, y = torch.randint(-4, 5, (16, 8)) / 4, torch.randint(0, 3, (16,))
model = GradSampleModule(network(), force_functorch=True)
optimizer = DPOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1),
    noise_multiplier=0.0,
    max_grad_norm=1.0,
    expected_batch_size=16,
)
for i in range(2):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    show(f"per sample {i}", *(p.grad_sample for p in model.parameters()))
    optimizer.step()
    show(f"parameters {i}", *model.parameters())

linear = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
ghost = GradSampleModuleFastGradientClipping(linear, max_grad_norm=1.0, use_ghost_clipping=True)
torch.nn.functional.cross_entropy(ghost(x), y).backward()
show("ghost norms", ghost.get_norm_sample())
show("ghost coefficients", ghost.get_clipping_coef())
