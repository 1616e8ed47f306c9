"""What a stack of convolution, norm and ReLU6 saves for backward, before and after conversion.

torch's ReLU6 saves its input, a whole Tensor; clampgrad saves one bit per
element. The gradients are equal.

Caveats. The count is of what autograd saves, each storage once; a model uses other memory too. Only
ReLU6 and Hardtanh gain: nn.ReLU saves its result, which the next convolution saves anyway.
nn.ReLU6(inplace=True) does not help, because autograd copies the input before it is overwritten.
"""

import torch
from torch import nn

import clampgrad
from example import bars, main

DEPTH = 6


def stack(activation):
    generator = torch.Generator().manual_seed(0)
    layers = []
    for _ in range(DEPTH):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), activation()]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    return model


def saved(model, x):
    """Bytes that autograd keeps from forward to backward, without the
    parameters; and a gradient."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = model(x)
    (gradient,) = torch.autograd.grad(result.square().sum(), model[0].weight)
    return sum(kept.values()), gradient


def measure():
    x = torch.rand(8, 16, 32, 32, generator=torch.Generator().manual_seed(1))
    data = {}
    model = stack(nn.ReLU6)
    data["nn.ReLU6"], before = saved(model, x)
    clampgrad.nn.convert(model)
    data["converted"], after = saved(model, x)
    data["nn.ReLU6(inplace=True)"], _ = saved(stack(lambda: nn.ReLU6(inplace=True)), x)
    return {
        "depth": DEPTH,
        "MiB": {name: round(size / 2**20, 3) for name, size in data.items()},
        "same gradient": torch.equal(before, after),
    }


def draw(figure, data):
    bars(figure.subplots(), data["MiB"], "MiB saved for backward", "{:.2f}")


if __name__ == "__main__":
    main(measure, draw)
