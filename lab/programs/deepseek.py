"""transformers: DeepSeek-V4, whose experts clamp at swiglu_limit. In bfloat16 many values are at it."""

import torch
from digests import compiled, train
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

config = DeepseekV4Config(
    num_hidden_layers=2,
    layer_types=["sliding_attention"] * 2,
    mlp_layer_types=["moe"] * 2,
    hidden_size=64,
    moe_intermediate_size=32,
    num_attention_heads=4,
    head_dim=32,
    q_lora_rank=32,
    o_groups=2,
    o_lora_rank=16,
    index_n_heads=2,
    index_head_dim=16,
    n_routed_experts=4,
    num_experts_per_tok=2,
    vocab_size=128,
    max_position_embeddings=64,
    initializer_range=1.0,
    swiglu_limit=2.0,
    attn_implementation="eager",
    experts_implementation="eager",
)
model = DeepseekV4ForCausalLM(config).bfloat16()
model.config.use_cache = False
forward = compiled(model)
tokens = torch.randint(0, 128, (2, 16))
train(
    torch.optim.SGD(model.parameters(), lr=1e-2),
    lambda: forward(input_ids=tokens, labels=tokens).loss,
    2,
)
