"""Numbers of few bits in the forward and the backward, with weights that are kept in float32.

Matrix products and convolutions take operands of the low precision, accumulate in float32 and round
once, as tensor cores do; everything between them is computed in the low precision itself. On a CPU
without instructions for it this is also several times quicker than torch's own bfloat16 and float16.
"""

from dataclasses import dataclass

import torch

E4M3 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Precision:
    dtype: torch.dtype  # of what layers hand on, and of the clamps
    float8_weights: bool = False
    float8_clamps: bool = False  # what reaches a clamp is rounded to E4M3 too
    loss_scale: float = 1.0

    def layer(self, module, x):
        """A linear layer or a convolution."""
        operands = {"weight": self.weight(module.weight), "bias": module.bias}
        operands = {name: t.to(self.dtype).float() for name, t in operands.items()}
        y = torch.func.functional_call(module, operands, (x.to(self.dtype).float(),))
        return y.to(self.dtype)

    def weight(self, parameter):
        if not self.float8_weights:
            return parameter
        scale = parameter.detach().abs().amax() / torch.finfo(E4M3).max
        return straight_through(parameter, (parameter / scale).to(E4M3).float() * scale)

    def at_clamp(self, x):
        return straight_through(x, x.to(E4M3).to(x.dtype)) if self.float8_clamps else x


PRECISIONS = {
    "float32": Precision(torch.float32),
    "bfloat16": Precision(torch.bfloat16),
    "float16": Precision(torch.float16, loss_scale=2.0**10),
    "float8 weights": Precision(torch.bfloat16, float8_weights=True),
    "float8": Precision(torch.bfloat16, float8_weights=True, float8_clamps=True),
}


def straight_through(x, value):
    """`value`, with the gradient of `x`: rounding has none of its own."""
    return value.detach() + (x - x.detach())
