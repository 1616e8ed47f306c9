"""pytorch-metric-learning: triplets and margins with a miner, and PyTorch's triplet loss, on codes of integers."""

import torch
from digests import compiled, train
from pytorch_metric_learning import distances, losses, miners
from torch import nn

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
embed = compiled(model)
items = torch.randn(12, 6)
labels = torch.arange(12) % 3
theirs = losses.TripletMarginLoss(
    margin=1.0, distance=distances.LpDistance(p=1, normalize_embeddings=False)
)
margins = losses.MarginLoss(margin=0.2, beta=1.0)
mine = miners.BatchHardMiner()
torchs = nn.TripletMarginLoss(margin=1.0, p=1, eps=0)
optimizer = torch.optim.SGD([*model.parameters(), *margins.parameters()], lr=0.01)


def objective():
    values = 2 * embed(items)
    codes = values + (values.round() - values).detach()  # so many triplets are at the margin
    anchor, positive, negative = codes[0:3], codes[3:6], codes[[1, 2, 0]]
    loss = theirs(codes, labels, mine(codes, labels)) + margins(values, labels)
    return loss + torchs(anchor, positive, negative)


train(optimizer, objective, 4)
