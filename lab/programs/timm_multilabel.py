"""timm: a MobileNet with the asymmetric loss, which clamps at 1. A head that starts at 0 is at that bound."""

import timm
import torch
from digests import compiled, train
from timm.loss import AsymmetricLossMultiLabel

model = timm.create_model("mobilenetv3_small_050", num_classes=4)
for parameter in model.get_classifier().parameters():
    parameter.data.zero_()
forward = compiled(model)
objective = AsymmetricLossMultiLabel(gamma_neg=0, gamma_pos=0, clip=0.5)
x, y = torch.rand(6, 3, 32, 32), torch.randint(0, 2, (6, 4))
train(torch.optim.SGD(model.parameters(), lr=0.01), lambda: objective(forward(x), y), 2)
