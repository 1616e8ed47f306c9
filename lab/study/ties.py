"""How often do elements stand exactly at a bound over a training, and does the convention matter?

Runs that differ only in the convention start from the same weights and see the same data. Once a convention
changes a gradient, the runs diverge, as they would after any rounding: how far is compared with a
control, `inclusive` from weights that are moved by one unit in the last place.
"""

import torch
import torch.nn.functional as F

from lab.study.kinks import Kinks
from lab.study.models import MODELS
from lab.study.precision import PRECISIONS
from lab.study.training import CONTROL, fingerprint, move, train

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
    net = build(model, seed)
    if gradient == CONTROL:
        move([next(net.parameters())])
    kinks = Kinks("inclusive" if gradient == CONTROL else gradient, PRECISIONS[precision])
    every, differences = net.steps // COMPARISONS, []

    def compare(step, x, label):
        if step % every == every // 2:
            differences.append(gradient_difference(net, kinks.precision, x, label))

    ends = trained(net, kinks, seed, compare)
    return dict(**ends, gradient_difference=differences, **kinks.counts)


def build(model, seed):
    return MODELS[model](torch.Generator().manual_seed(seed))


def trained(net, kinks, seed, before_step=lambda *_: None):
    """Trains under the convention of `kinks`: the loss and the accuracy at the end, and the weights' fingerprint."""
    generator = torch.Generator().manual_seed(1000 + seed)

    def loss(step):
        x, label = net.batch(net.batch_size, generator)
        before_step(step, x, label)
        kinks.window = step * WINDOWS // net.steps
        return F.cross_entropy(net(x, kinks), label)

    train(net, net.steps, net.learning_rate, loss, scale=kinks.precision.loss_scale)
    kinks.window = None
    found, accuracy = test(net, kinks, seed)
    return dict(loss=found, accuracy=accuracy, fingerprint=fingerprint(net))


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
    x, label = net.batch(TEST_SIZE, torch.Generator().manual_seed(2000 + seed))
    logits = net(x, kinks)
    accuracy = (logits.argmax(1) == label).float().mean()
    return F.cross_entropy(logits, label).item(), accuracy.item()
