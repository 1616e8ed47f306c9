"""peft on transformers: LoRA of a small Llama, with accumulation and clipped gradients."""

import torch
from digests import compiled, step
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    num_hidden_layers=2,
    hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
    use_cache=False,
)
model = get_peft_model(
    LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
)
forward = compiled(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.randint(0, 128, (2, 16))
for _ in range(3):
    optimizer.zero_grad()
    loss = forward(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-2)
    step(loss, model.parameters())
    optimizer.step()
