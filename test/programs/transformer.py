"""x-transformers: a small decoder with normalised queries and keys."""

import torch
from digests import compiled, train
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

model = AutoregressiveWrapper(
    TransformerWrapper(
        num_tokens=64,
        max_seq_len=16,
        attn_layers=Decoder(dim=32, depth=2, heads=2, attn_dim_head=16, attn_qk_norm=True),
    )
)
forward = compiled(model)
tokens = torch.randint(0, 64, (2, 16))
train(torch.optim.Adam(model.parameters(), lr=1e-2), lambda: forward(tokens), 2)
