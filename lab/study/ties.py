"""How often do elements stand exactly at a bound over a training, and does the convention matter?

Runs that differ only in the convention start from the same weights and see the same data. Once a convention
changes a gradient, the runs diverge, as they would after any rounding: how far is compared with a
control, `inclusive` from weights that are moved by one unit in the last place.
"""

import itertools

import torch
import torch.nn.functional as F

from lab.study.kinks import Kinks, clamp
from lab.study.models import MODELS
from lab.study.precision import PRECISIONS
from lab.study.training import CONTROL, fingerprint, move, train

GRADIENTS = ("inclusive", "joint", CONTROL)
WINDOWS = 4  # of the training, for the counts
COMPARISONS = 8  # of gradients, over the training
TEST_SIZE = 4096


def runs(seeds):
    for seed, *which in itertools.product(seeds, MODELS, PRECISIONS, GRADIENTS):
        yield dict(zip(("model", "precision", "gradient"), which), seed=seed)


def run(model, precision, gradient, seed):
    net = build(model, seed)
    if gradient == CONTROL:
        move([next(net.parameters())])
    kinks = Kinks(clamp("inclusive" if gradient == CONTROL else gradient), PRECISIONS[precision])
    every, differences = net.steps // COMPARISONS, []

    def compare(step, x, label):
        if step % every == every // 2:
            differences.append(gradient_difference(net, kinks.precision, x, label))

    ends = trained(net, kinks, seed, compare)
    return dict(**ends, gradient_difference=differences, **kinks.counts)


def build(model, seed):
    torch.manual_seed(seed)
    return MODELS[model]()


def trained(net, kinks, seed, before_step=lambda *_: None):
    """Trains with the clamps of `kinks`: the loss and the accuracy at the end, and the weights' fingerprint."""

    def loss(step):
        x, label = net.batch(net.batch_size)
        before_step(step, x, label)
        kinks.window = step * WINDOWS // net.steps
        return F.cross_entropy(net(x, kinks), label)

    torch.manual_seed(1000 + seed)
    train(net, net.steps, net.learning_rate, loss, scale=kinks.precision.loss_scale)
    kinks.window = None
    torch.manual_seed(2000 + seed)
    return dict(**test(net, kinks), fingerprint=fingerprint(net))


def gradient_difference(net, precision, x, label):
    """Norm of the difference between the gradients of `inclusive` and `joint`, over the former's."""
    buffers = {name: value.clone() for name, value in net.state_dict().items()}
    flat = []
    for convention in ("inclusive", "joint"):
        logits = net(x, Kinks(clamp(convention), precision))
        loss = F.cross_entropy(logits, label) * precision.loss_scale
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        flat.append(torch.cat([g.flatten() for g in gradients]))
    net.load_state_dict(buffers)  # norms count what they see
    return ((flat[0] - flat[1]).norm() / flat[0].norm()).item()


@torch.no_grad()
def test(net, kinks):
    net.eval()
    x, label = net.batch(TEST_SIZE)
    logits = net(x, kinks)
    accuracy = (logits.argmax(1) == label).float().mean()
    return dict(loss=F.cross_entropy(logits, label).item(), accuracy=accuracy.item())
