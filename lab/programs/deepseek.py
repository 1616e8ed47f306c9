"""transformers: DeepSeek-V4, whose experts clamp at swiglu_limit. In bfloat16 many values are at it."""

from digests import train_language_model
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
train_language_model(DeepseekV4ForCausalLM(config))
