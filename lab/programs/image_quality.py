"""piq: losses of image quality, of a picture that is the one it is compared with."""

import piq
import torch
from digests import show

target = torch.rand(1, 3, 48, 48)
for loss in (piq.VIFLoss(), piq.FSIMLoss(), piq.SRSIMLoss(), piq.DSSLoss(), piq.GMSDLoss()):
    for name, start in {
        "same": target,
        "near": (target + 0.1 * torch.rand_like(target)) / 1.1,
    }.items():
        picture = start.clone().requires_grad_()
        value = loss(picture, target)
        (gradient,) = torch.autograd.grad(value, picture)
        show(f"{type(loss).__name__}, {name}", value, gradient)
