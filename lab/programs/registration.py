"""monai: mutual information of pictures, which it clamps to [0, 1] where they are black and white."""

import torch
from digests import compiled, step
from monai.losses import (
    AsymmetricUnifiedFocalLoss,
    GlobalMutualInformationLoss,
    LocalNormalizedCrossCorrelationLoss,
)

fixed = torch.rand(1, 1, 8, 8)
moving = (torch.rand(1, 1, 8, 8) * 4).round() / 4
moving.requires_grad_()
mutual = GlobalMutualInformationLoss(kernel_type="gaussian")
correlation = LocalNormalizedCrossCorrelationLoss(spatial_dims=2, kernel_size=3)
focal = AsymmetricUnifiedFocalLoss(to_onehot_y=True, num_classes=2)
objective = compiled(lambda a, b: mutual(a, b) + correlation(a, b))
for _ in range(2):
    loss = objective(moving, fixed)
    loss = loss + focal(torch.cat([moving, 1 - moving], 1), fixed.round())
    step(loss, [moving])
    moving.data -= moving.grad
