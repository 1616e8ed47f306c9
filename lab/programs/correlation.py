"""torchmetrics: a correlation as a loss. Predictions that are the targets correlate by exactly 1."""

import torch
from digests import step
from torchmetrics.functional import (
    mean_absolute_percentage_error,
    pearson_corrcoef,
    weighted_mean_absolute_percentage_error,
)

target = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
for start in (target, torch.rand(5)):
    prediction = start.clone().requires_grad_()
    loss = -pearson_corrcoef(prediction, target)
    loss = loss + mean_absolute_percentage_error(prediction, target + 1)
    loss = loss + weighted_mean_absolute_percentage_error(prediction, target)
    step(loss, [prediction])
