"""diffusers: a variational autoencoder and a denoiser, and a guided step that clips its prediction."""

import torch
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DModel
from digests import compiled, show, step

vae = AutoencoderKL(block_out_channels=(8,), norm_num_groups=2, sample_size=8, latent_channels=2)
unet = UNet2DModel(
    sample_size=8,
    in_channels=2,
    out_channels=2,
    layers_per_block=1,
    block_out_channels=(8, 16),
    norm_num_groups=2,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    attention_head_dim=4,
)
denoise = compiled(unet)
parameters = [*vae.parameters(), *unet.parameters()]
scheduler = DDPMScheduler(num_train_timesteps=50, clip_sample=True)
images, noise = torch.rand(2, 3, 8, 8) * 2 - 1, torch.randn(2, 2, 8, 8)
posterior = vae.encode(images).latent_dist
latents = posterior.sample(torch.Generator().manual_seed(0))
times = torch.tensor([3, 40])
predicted = denoise(scheduler.add_noise(latents, noise, times), times).sample
loss = (predicted - noise).square().mean() + 1e-3 * posterior.kl().mean()
loss = loss + (vae.decode(latents).sample - images).abs().mean()
step(loss, parameters)

scheduler.set_timesteps(10)
x = (torch.randn(2, 2, 8, 8) * 2).round().div(2).bfloat16().requires_grad_()
guess = scheduler.step(torch.zeros_like(x), scheduler.timesteps[-1], x).pred_original_sample
(gradient,) = torch.autograd.grad(guess.float().sum(), x)
show("guidance", guess, gradient)
