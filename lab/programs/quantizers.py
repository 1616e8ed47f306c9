"""vector-quantize-pytorch: codebooks, one of which clamps what is at its outermost levels already."""

import torch
from digests import step
from vector_quantize_pytorch import FSQ, LFQ, ResidualFSQ, VectorQuantize

encoder, x = torch.nn.Linear(8, 8, bias=False), torch.randint(-2, 3, (4, 6, 8)) / 2
encoder.weight.data.copy_(torch.eye(8))
for quantizer in (
    VectorQuantize(dim=8, codebook_size=16, learnable_codebook=True, ema_update=False),
    LFQ(codebook_size=256, dim=8, entropy_loss_weight=0.1),
    FSQ([5] * 8, bound_hard_clamp=True),
    ResidualFSQ(dim=8, levels=[5, 5, 5], num_quantizers=2),
):
    torch.manual_seed(0)
    parameters = [*encoder.parameters(), *quantizer.parameters()]
    quantized, *rest = quantizer(encoder(x))
    loss = (quantized - x.flip(0)).square().mean() + sum(
        t.sum() for t in rest if isinstance(t, torch.Tensor) and t.requires_grad
    )
    step(loss, parameters)
