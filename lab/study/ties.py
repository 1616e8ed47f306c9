"""How often do elements stand exactly at a bound over a training, and does the convention matter?

Runs that differ in the convention alone see the same data from the same weights. Where a convention
changes one gradient, the runs part, as they would after any rounding: how far they part is
compared with a control, `inclusive` from weights that are moved by one unit in the last place.
"""

import hashlib

import torch
import torch.nn.functional as F

from lab.study.kinks import Kinks
from lab.study.models import MODELS
from lab.study.precision import PRECISIONS

CONTROL = "control"
GRADIENTS = ("inclusive", "joint", CONTROL)
WINDOWS = 4  # of the training, for the counts
COMPARISONS = 8  # of gradients, over the training
TEST_SIZE = 4096


def runs(seeds):
    for seed in seeds:
        for model in MODELS:
            for precision in PRECISIONS:
                for gradient in GRADIENTS:
                    yield dict(model=model, precision=precision, gradient=gradient, seed=seed)


def run(model, precision, gradient, seed):
    moved = gradient == CONTROL
    net = build(model, seed, moved)
    kinks = Kinks("inclusive" if moved else gradient, PRECISIONS[precision])
    differences = train(net, kinks, seed)
    loss, accuracy = test(net, kinks, seed)
    return dict(
        loss=loss,
        accuracy=accuracy,
        fingerprint=fingerprint(net),
        gradient_difference=differences,
        **kinks.counts(),
    )


def build(model, seed, moved=False):
    net = MODELS[model](torch.Generator().manual_seed(seed))
    if moved:
        with torch.no_grad():
            first = next(net.parameters())
            first.copy_(torch.nextafter(first, torch.tensor(torch.inf)))
    return net


def fingerprint(net):
    """A number of the final weights: it is equal where they are equal to the bit."""
    weights = torch.cat([p.detach().flatten() for p in net.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:12]


def train(net, kinks, seed, comparisons=COMPARISONS):
    """Adam under the convention of `kinks`; gives back how far two conventions' gradients differ."""
    steps = net.steps
    generator = torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=net.learning_rate)
    scale = kinks.precision.loss_scale
    differences = []
    for step in range(steps):
        x, label = net.batch(net.batch_size, generator)
        if comparisons and step % (steps // comparisons) == steps // comparisons // 2:
            differences.append(gradient_difference(net, kinks.precision, x, label))
        kinks.window = step * WINDOWS // steps
        optimizer.zero_grad()
        (F.cross_entropy(net(x, kinks), label) * scale).backward()
        for p in net.parameters():
            p.grad /= scale
        optimizer.step()
    kinks.window = None
    return differences


def gradient_difference(net, precision, x, label):
    """Norm of the difference between the gradients of `inclusive` and `joint`, over the former's."""
    buffers = {name: value.clone() for name, value in net.state_dict().items()}
    flat = []
    for convention in ("inclusive", "joint"):
        loss = F.cross_entropy(net(x, Kinks(convention, precision)), label) * precision.loss_scale
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        flat.append(torch.cat([g.flatten() for g in gradients]))
    net.load_state_dict(buffers)  # norms count what they see
    return ((flat[0] - flat[1]).norm() / flat[0].norm()).item()


@torch.no_grad()
def test(net, kinks, seed):
    net.eval()
    generator = torch.Generator().manual_seed(2000 + seed)
    x, label = net.batch(TEST_SIZE, generator)
    logits = net(x, kinks)
    accuracy = (logits.argmax(1) == label).float().mean()
    return F.cross_entropy(logits, label).item(), accuracy.item()
