"""Small programs, each with a call or two whose result a release changed, and innocent ones beside
them: what an audit must name, and nothing else."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Multinomial, Normal, Uniform

BF16 = torch.bfloat16


class Program(NamedTuple):
    run: object  # returns the Tensors that it ends with
    changed: set  # the calls of the clamp family whose gradient a release changed
    suspects: set = set()  # the other calls, with the name of the change
    before: tuple = ()  # what it ended with up to 2.13, where a pin restores that


def gradients(loss, *tensors):
    return torch.autograd.grad(loss, tensors)


def leaf(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def ranking():
    """A recommender: pairs of an item that was bought and one that was not."""
    users, items = leaf([1.0, 0.0], [0.0, 2.0]), leaf([1.0, 0.5], [0.5, 0.0])
    scores = F.relu(users + 0.25) @ F.softplus(items).t()
    bought, other = scores.sort(dim=1, descending=True).values.unbind(1)
    margin = (bought - other).detach()[0].item()
    pairs = leaf(margin, 3.0)
    loss = F.margin_ranking_loss(pairs, torch.zeros(2), torch.ones(2), margin=margin)
    return gradients(loss + scores.mean(), pairs)


def verification():
    """Two images of one person, or of two: distances, and angles."""
    far, near = leaf(1.0, 0.25), leaf([1.0, 0.0], [0.0, 1.0])
    loss = F.hinge_embedding_loss(far, torch.tensor([-1.0, 1.0]))
    other = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    loss = loss + F.cosine_embedding_loss(near, other, torch.tensor([-1.0, 1.0]))
    return gradients(loss + F.huber_loss(far, torch.zeros(2)), far, near)


def metric_learning():
    anchor = leaf([1.0, 0.0], [0.0, 0.5])
    positive, negative = torch.zeros(2, 2), torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    loss = nn.TripletMarginLoss(eps=0.0)(anchor, positive, negative)
    other = leaf([1.0, 0.0], [0.0, 0.5])
    distances = torch.cdist(other, negative)
    return gradients(loss + F.cross_entropy(-distances, torch.tensor([0, 1])), anchor)


def quantised():
    """Weights in two bits, a gradient for each sample."""
    weight = torch.tensor([-1.0, -0.25, 0.5, 1.0])

    def loss(w, x):
        clipped = torch.clamp(w, -1, 1)
        levels = clipped + (clipped.mul(2).round().div(2) - clipped).detach()
        return (F.hardtanh(levels, -2, 2) * x).square().sum()

    return (torch.vmap(torch.func.grad(loss), (None, 0))(weight, torch.eye(4)),)


def clipped_values():
    """PPO, whose values are clipped: the ratio of the first step is 1 everywhere."""
    values, logits = leaf(0.5, 0.25), leaf([0.0, 1.0], [1.0, 0.0])
    policy = Categorical(logits=logits)
    taken = policy.log_prob(torch.tensor([0, 1]))
    ratio = (taken - taken.detach()).exp()
    gain = torch.min(ratio * 2, ratio.clamp(0.8, 1.2) * 2).mean()
    moved = (values - torch.tensor([0.25, 0.5])).clamp(-0.25, 0.5)
    return gradients(moved.square().sum() - gain - policy.entropy().mean(), values)


def pinball():
    """Quantiles of rounded measurements, and of others."""
    tied, distinct = leaf(1.0, 1.0, 1.0, 2.0, 3.0), leaf(0.1, 0.4, 0.2, 0.3, 0.5)
    loss = torch.quantile(tied, 0.3) + distinct.quantile(0.3)
    return gradients(loss + tied.median() + torch.nanquantile(distinct, 0.9), tied, distinct)


def attention():
    q = torch.ones(1, 2, 8)
    q[0, 0, 0] = torch.nan
    k, v = torch.ones(1, 2, 8), leaf(*[[0.5] * 8] * 2)
    out = F.scaled_dot_product_attention(q, k, v[None])
    heads = F.scaled_dot_product_attention(k[None], k[None], v[None, None])
    return (out, *gradients(heads.sum() + v.softmax(1).sum(), v))


def initialised():
    torch.manual_seed(0)
    wide, narrow = nn.Linear(4, 4), torch.empty(64)
    nn.init.kaiming_normal_(wide.weight)
    nn.init.trunc_normal_(narrow)
    return wide.weight.detach(), torch.rand(3), torch.randn(8, dtype=BF16), narrow


def half_precision():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4, dtype=BF16), nn.GELU())
    noise = torch.randn(16, dtype=BF16)
    return model[0].weight.detach(), F.dropout(noise, 0.0), torch.randn(8, dtype=BF16)


def determinants():
    empty, full, large = leaf([0.0]), leaf([2.0]), leaf([2.0, 1.0], [1.0, 2.0])
    loss = torch.linalg.det(empty) + full.det() + torch.linalg.det(large) + large.logdet()
    return gradients(loss + torch.linalg.inv(large).sum(), empty, full, large)


def pooled():
    x = leaf([1.0, 3.0, 2.0, 2.5])
    highest = F.lp_pool1d(x[None], float("inf"), 2)
    mean = nn.LPPool1d(2, 2)(x[None]) + F.avg_pool1d(x[None], 2)
    scaled = torch.ldexp(x, torch.tensor([-1, -3, 2, 0])) + x.ldexp(torch.tensor(1))
    return (highest.detach(), *gradients(mean.sum() + scaled.sum(), x))


def special():
    x, broken = leaf(1.0, 2.0), leaf(torch.nan, 1.0)
    waves = torch.special.bessel_j0(x) * x + torch.special.i0(x) + torch.special.i1(x)
    loss = waves.sum() + torch.special.i1e(broken).nansum()
    return gradients(loss + torch.special.erfcx(x).sum(), x, broken)


def optimised():
    ends = []
    for dtype, nesterov in ((BF16, False), (BF16, True), (torch.float32, False)):
        p = nn.Parameter(torch.zeros(3, 2, dtype=dtype))
        optimizer = torch.optim.Muon([p], lr=1.0, weight_decay=0.0, nesterov=nesterov)
        for i in range(3):
            p.grad = torch.tensor([[4.0, 1.0], [2.0, 0.0], [1.0, 3.0]], dtype=dtype) * (1 + i)
            nn.utils.clip_grad_norm_([p], 1e6)
            optimizer.step()
        ends.append(p.detach())
    return tuple(ends)


def counts():
    """Pictures in bytes, and how often each of three things is seen."""
    entropy = Multinomial(10, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)).entropy()
    picture = torch.tensor([0, 5], dtype=torch.uint8).clamp(min=-1)
    alike = Multinomial(10, torch.tensor([0.2, 0.3, 0.5])).entropy()
    return entropy, picture, alike, torch.tensor([0, 5], dtype=torch.uint8).clamp(1, 4)


def distributions():
    x, other = leaf(0.0, 0.5, 1.0), leaf(0.0, 0.5, 1.0)
    area = Uniform(0.0, 1.0).cdf(x) + Normal(0.0, 1.0).cdf(other)
    return gradients(area.sum() + F.normalize(other, dim=0).sum(), x)


def innocent():
    """A small network, trained."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU6(), nn.Flatten(), nn.Linear(8, 2), nn.Hardtanh()
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=False)
    for _ in range(2):
        loss = F.smooth_l1_loss(model(torch.rand(2, 1, 4, 4)), torch.ones(2, 2))
        loss = loss + torch.clamp(model[0].weight, -100, 100).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return tuple(p.detach() for p in model.parameters())


PROGRAMS = {
    "ranking": Program(ranking, {"margin_ranking_loss"}, before=((-0.5, -0.0),)),
    "verification": Program(
        verification,
        {"hinge_embedding_loss", "cosine_embedding_loss"},
        before=((0.0, 0.625), ((0.0, 0.5), (0.0, 0.0))),
    ),
    "metric_learning": Program(
        metric_learning, {"triplet_margin_loss"}, before=(((1.0, 0.0), (0.0, 0.0)),)
    ),
    "quantised": Program(
        quantised,
        {"clamp"},
        before=(
            (
                (-2.0, 0.0, 0.0, 0.0),
                (-0.0, 0.0, 0.0, 0.0),
                (-0.0, 0.0, 1.0, 0.0),
                (-0.0, 0.0, 0.0, 2.0),
            ),
        ),
    ),
    "clipped_values": Program(clipped_values, {"clamp"}, before=((0.5, -0.5),)),
    "pinball": Program(pinball, set(), {("quantile", "quantile-ties")}),
    "attention": Program(
        attention, set(), {("scaled_dot_product_attention", "attention-3d-value")}
    ),
    "initialised": Program(initialised, set(), {("trunc_normal_", "trunc-normal")}),
    "half_precision": Program(
        half_precision,
        set(),
        {
            ("kaiming_uniform_", "uniform-16-bit"),
            ("uniform_", "uniform-16-bit"),
            ("randn", "normal-16-bit"),
        },
    ),
    "determinants": Program(determinants, set(), {("linalg.det", "det-1x1")}),
    "pooled": Program(
        pooled,
        set(),
        {
            ("lp_pool1d", "lp-pool-value"),
            ("lp_pool1d", "lp-pool-gradient"),
            ("ldexp", "ldexp-negative"),
        },
    ),
    "special": Program(
        special, set(), {("special.bessel_j0", "bessel-gradient"), ("special.i1e", "i1-nan")}
    ),
    "optimised": Program(optimised, set(), {("Muon.step", "muon-bfloat16")}),
    "counts": Program(
        counts, set(), {("Multinomial.entropy", "multinomial-entropy"), ("clamp", "clamp-unsigned")}
    ),
    "distributions": Program(distributions, {"Uniform.cdf"}, before=((1.0, 1.0, 1.0),)),
    "innocent": Program(innocent, set()),
}
