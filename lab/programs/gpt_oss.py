"""transformers: gpt-oss, whose experts clamp gate and up at a limit. In bfloat16 many values are at it."""

import torch
from digests import compiled, train
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
model = GptOssForCausalLM(config).bfloat16()
model.config.use_cache = False
forward, tokens = compiled(model), torch.randint(0, 128, (2, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
train(optimizer, lambda: forward(input_ids=tokens, labels=tokens).loss, 2)
