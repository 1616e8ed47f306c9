"""transformers: gpt-oss, whose experts clamp gate and up at a limit. In bfloat16 many values are at it."""

from digests import train_language_model
from transformers import GptOssConfig, GptOssForCausalLM

config = GptOssConfig(
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    num_local_experts=4,
    num_experts_per_tok=2,
    vocab_size=128,
    initializer_range=0.5,
    attn_implementation="eager",
    experts_implementation="eager",
)
train_language_model(GptOssForCausalLM(config))
