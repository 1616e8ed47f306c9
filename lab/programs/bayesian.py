"""botorch: acquisition functions, and their gradient at a point that was observed already."""

import torch
from botorch.acquisition import UpperConfidenceBound, qExpectedImprovement, qSimpleRegret
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from digests import show
from gpytorch.kernels import RBFKernel, ScaleKernel

x = torch.rand(12, 2, dtype=torch.float64)
y = torch.sin(5 * x).sum(1, keepdim=True)
model = SingleTaskGP(x, y, covar_module=ScaleKernel(RBFKernel()))
sampler = SobolQMCNormalSampler(torch.Size([32]), seed=0)
best = y.max()
for acquisition in (
    qExpectedImprovement(model, best_f=best, sampler=sampler),
    qSimpleRegret(model, sampler=sampler),
    UpperConfidenceBound(model, beta=2.0),
):
    q = 1 if isinstance(acquisition, UpperConfidenceBound) else 2
    for name, start in {
        "new": torch.full((3, q, 2), 0.25) + torch.rand(3, q, 2),
        "observed": x[: 3 * q].view(3, q, 2),
    }.items():
        candidates = start.double().clone().requires_grad_()
        value = acquisition(candidates)
        (gradient,) = torch.autograd.grad(value.sum(), candidates)
        show(f"{type(acquisition).__name__}, {name}", value, gradient)
