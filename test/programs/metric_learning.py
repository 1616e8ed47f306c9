"""pytorch-metric-learning: losses of embeddings, among them one that clamps a cosine of exactly 1."""

import torch
from digests import show
from pytorch_metric_learning import losses, regularizers

torch.manual_seed(0)
x, y = torch.randn(12, 4), torch.arange(12) % 3
for loss in (
    losses.ContrastiveLoss(),
    losses.TripletMarginLoss(),
    losses.LargeMarginSoftmaxLoss(3, 4),
    losses.P2SGradLoss(4, 3),
    losses.SoftTripleLoss(3, 4, weight_regularizer=regularizers.SparseCentersRegularizer(3, 10)),
):
    torch.manual_seed(0)
    embeddings = x.clone().requires_grad_()
    weights = list(loss.parameters())
    if isinstance(loss, losses.LargeMarginSoftmaxLoss):
        weights[0].data.copy_(torch.eye(4, 3))
        embeddings.data[:3] = torch.eye(3, 4)  # a class each, as the network has learned them
    value = loss(embeddings, y)
    gradients = torch.autograd.grad(value, [embeddings, *weights], allow_unused=True)
    show(type(loss).__name__, value, *(g for g in gradients if g is not None))
