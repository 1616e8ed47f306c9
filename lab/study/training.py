"""One way to train, and to tell what came of it, for all studies."""

import hashlib
import math

import torch

CONTROL = "control"  # `inclusive`, from weights moved by one unit in the last place


def train(net, steps, rate, loss, decay=False, scale=1):
    """Adam on `loss(step)`, which is scaled before it is differentiated; the rate falls along a cosine if `decay`."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        if decay:
            optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        (loss(step) * scale).backward()
        for p in net.parameters() if scale != 1 else ():
            p.grad /= scale
        optimizer.step()


@torch.no_grad()
def move(parameters):
    """Moves weights by one unit in the last place."""
    for p in parameters:
        p.copy_(torch.nextafter(p, torch.tensor(torch.inf)))


def fingerprint(net):
    """A number of the weights: it is equal where they are equal to the bit."""
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]
