"""Somebody's program on stable-baselines3: PPO on CartPole, two rollouts."""

from stable_baselines3 import PPO

model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
model.learn(total_timesteps=128)
print("steps", model.num_timesteps)
