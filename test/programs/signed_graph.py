"""PyG: signed graph convolutions. Their margins and power means clamp values that do not tie."""

import torch
from digests import train
from torch_geometric import seed_everything
from torch_geometric.nn import SignedGCN
from torch_geometric.nn.aggr import PowerMeanAggregation

seed_everything(0)
edges = torch.randint(0, 10, (2, 60))
positive, negative = edges[:, :30], edges[:, 30:]
model = SignedGCN(8, 8, num_layers=2, lamb=5)
mean = PowerMeanAggregation(learn=True)
x = torch.randn(10, 8)


def loss():
    z = model(x, positive, negative)
    return model.loss(z, positive, negative) + mean(z, torch.arange(10) // 5).mean()


train(torch.optim.SGD([*model.parameters(), *mean.parameters()], lr=0.1), loss, 3)
