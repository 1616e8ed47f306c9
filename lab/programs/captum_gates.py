"""captum: attributions, and stochastic gates whose means are at 0 and 1, where their clamp is."""

import captum.attr
import torch
from captum.module import BinaryConcreteStochasticGates, GaussianStochasticGates
from digests import show, step

model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Hardtanh(0, 1), torch.nn.Linear(16, 3))
x = torch.randn(4, 8)
for method in (captum.attr.IntegratedGradients, captum.attr.Saliency, captum.attr.DeepLift):
    show(method.__name__, method(model).attribute(x, target=1))

for gates in (BinaryConcreteStochasticGates(8), GaussianStochasticGates(8, std=0.5)):
    for mode in (True, False):
        gates.train(mode)
        parameters = [*gates.parameters(), *model.parameters()]
        if isinstance(gates, GaussianStochasticGates):
            gates.mu.data.round_()
        gated, penalty = gates(x)
        step(model(gated).square().mean() + penalty, parameters)
