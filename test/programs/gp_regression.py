"""gpytorch: exact regression with a gradient of the inputs, where two are one."""

import gpytorch
import torch
from digests import step

x = torch.rand(25, 2).repeat(2, 1).requires_grad_()  # how much do the inputs matter?
y = torch.sin(6 * x.detach()[:, 0]) + 0.1 * torch.randn(50)


class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = GP(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for _ in range(3):
    optimizer.zero_grad()
    x.grad = None
    loss = -objective(model(x), y)
    loss.backward()
    step(loss, [x, *model.parameters()])
    optimizer.step()
