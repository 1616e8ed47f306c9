"""kornia: a picture fitted in the Lab colour space. Its way back to RGB ends in clamps at 0 and 1."""

import kornia
import torch
from digests import show, step

picture = torch.rand(1, 3, 8, 8)
picture[..., :4] = picture[..., :4].round()  # black, white, and the colours between
picture.requires_grad_()
target = torch.rand(1, 3, 8, 8)
for _ in range(3):
    changed = kornia.enhance.adjust_brightness(picture, 0.0)
    changed = kornia.color.ycbcr_to_rgb(kornia.color.rgb_to_ycbcr(changed))
    loss = kornia.losses.ssim_loss(changed, target, window_size=3)
    loss = (
        loss + (kornia.color.rgb_to_lab(changed) - kornia.color.rgb_to_lab(target)).square().mean()
    )
    step(loss, [picture])
    picture.data -= 1e-3 * picture.grad
show("picture", picture)
