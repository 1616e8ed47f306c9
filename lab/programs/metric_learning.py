"""pytorch-metric-learning: losses of embeddings, of which one clamps cosines at 0. Those of orthogonal ones are 0."""

import torch
from digests import show
from pytorch_metric_learning import losses, regularizers

torch.manual_seed(0)
x, y = torch.randn(12, 4), torch.arange(12) % 3
for loss in (
    losses.ContrastiveLoss(),
    losses.TripletMarginLoss(),
    losses.LargeMarginSoftmaxLoss(3, 4),
    losses.ManifoldLoss(4, K=3),
    losses.P2SGradLoss(4, 3),
    losses.SoftTripleLoss(3, 4, weight_regularizer=regularizers.SparseCentersRegularizer(3, 10)),
):
    torch.manual_seed(0)
    embeddings = x.clone().requires_grad_()
    weights = list(loss.parameters())
    if isinstance(loss, losses.ManifoldLoss):  # which has no use for labels
        embeddings.data.copy_(torch.eye(4)[y])
        value = loss(embeddings)
    else:
        value = loss(embeddings, y)
    gradients = torch.autograd.grad(value, [embeddings, *weights], allow_unused=True)
    show(type(loss).__name__, value, *(g for g in gradients if g is not None))
