"""stable-baselines3: PPO with clipped values, and SAC, on CartPole and Pendulum."""

import torch
from digests import show
from stable_baselines3 import PPO, SAC

ppo = PPO(
    "MlpPolicy",
    "CartPole-v1",
    n_steps=64,
    batch_size=32,
    n_epochs=2,
    clip_range_vf=0.2,
    seed=0,
    device="cpu",
)
torch.set_num_threads(1)
ppo.learn(total_timesteps=128)
show("PPO", *ppo.policy.parameters())

sac = SAC("MlpPolicy", "Pendulum-v1", learning_starts=16, batch_size=16, seed=0, device="cpu")
sac.learn(total_timesteps=24)
show("SAC", *sac.policy.parameters())
