"""segmentation-models-pytorch: a network whose output is clamped to [0, 1], and its losses."""

import segmentation_models_pytorch as smp
import torch
from digests import compiled, step

model = smp.Unet("resnet18", encoder_weights=None, in_channels=1, classes=2, activation="clamp")
model.segmentation_head[0].weight.data.round_()  # nothing yet: every output starts at 0
model.segmentation_head[0].bias.data.zero_()
forward = compiled(model)
losses = [
    smp.losses.DiceLoss("multilabel", from_logits=False, log_loss=True),
    smp.losses.JaccardLoss("multilabel", from_logits=False, log_loss=True),
    smp.losses.FocalLoss("multilabel", normalized=True),
]
x, y = torch.rand(2, 1, 32, 32), torch.randint(0, 2, (2, 2, 32, 32)).float()
for loss in losses:
    step(loss(forward(x), y), model.parameters())
