"""pyro: variational inference of a coin and of a regression with saturated probabilities."""

import pyro
import pyro.distributions as dist
import torch
from digests import show
from pyro.infer import SVI, Trace_ELBO

pyro.set_rng_seed(0)
flips = torch.tensor([1.0, 1, 0, 1, 1, 0])


def model():
    fairness = pyro.sample("fairness", dist.Beta(10, 10))
    scale = pyro.param("scale", torch.tensor(20.0))
    sure = torch.sigmoid(scale * torch.tensor([-1.0, 1.0]))
    with pyro.plate("flips", 6):
        pyro.sample("flip", dist.Bernoulli(fairness), obs=flips)
    with pyro.plate("sure", 2):
        pyro.sample("outcome", dist.Bernoulli(sure), obs=torch.tensor([0.0, 1.0]))


def guide():
    a = pyro.param("a", torch.tensor(15.0), constraint=dist.constraints.positive)
    b = pyro.param("b", torch.tensor(15.0), constraint=dist.constraints.positive)
    pyro.sample("fairness", dist.Beta(a, b))


svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
for i in range(3):
    show(f"ELBO {i}", torch.tensor(svi.step()))
    show(f"parameters {i}", *(pyro.param(name) for name in ("a", "b", "scale")))
