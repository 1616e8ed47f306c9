"""For each row of clampgrad/_contract/changes.json, a short program whose result changed.

records/changes.jsonl holds what it returns before the change and since (record.py).
lab/test/test_changes.py runs it on the installed torch, without a pin and with one.
"""

import math

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import distributions, nn, special
from torch.autograd import grad

tensor = torch.tensor
INF, NAN = math.inf, math.nan
REPRODUCERS, EXAMPLES, FIRST = {}, {}, {}


def reproducer(example, first="2.11"):
    """Registers a program under the name of its row; `example` says on the page what it returns.
    Releases before `first` do not have what it calls."""

    def register(function):
        name = function.__name__.replace("_", "-")
        REPRODUCERS[name], EXAMPLES[name], FIRST[name] = function, example, first
        return function

    return register


def leaf(*values, dtype=torch.float32):
    return tensor(values, dtype=dtype, requires_grad=True)


# ---- The clamp family, and what calls it ---------------------------------------------------------


@reproducer("`x.clamp(0, 1)` at 0, 0.5 and 1")
def clamp_at_bound():
    x = leaf(0, 0.5, 1)
    return grad(x.clamp(0, 1).sum(), x)[0]


@reproducer("`margin_ranking_loss([1], [0], [1], margin=1)`")
def margin_ranking():
    x = leaf(1)
    return grad(F.margin_ranking_loss(x, tensor([0.0]), tensor([1.0]), margin=1.0), x)[0]


@reproducer("`hinge_embedding_loss([1], [-1])`")
def hinge_embedding():
    x = leaf(1)
    return grad(F.hinge_embedding_loss(x, tensor([-1])), x)[0]


@reproducer("`cosine_embedding_loss([[1, 0]], [[0, 1]], [-1])`")
def cosine_embedding():
    x = leaf([1, 0])
    return grad(F.cosine_embedding_loss(x, tensor([[0.0, 1]]), tensor([-1])), x)[0]


@reproducer("`triplet_margin_loss([[1, 0]], [[0, 0]], [[3, 0]], eps=0)`")
def triplet_margin():
    x = leaf([1, 0])
    positive, negative = tensor([[0.0, 0]]), tensor([[3.0, 0]])
    return grad(F.triplet_margin_loss(x, positive, negative, eps=0.0), x)[0]


@reproducer("`Uniform(0, 1).cdf(x)` at 0, 0.5 and 1")
def uniform_cdf():
    x = leaf(0, 0.5, 1)
    return grad(distributions.Uniform(0.0, 1.0).cdf(x).sum(), x)[0]


@reproducer("`fmax(x, y)` at NaN and 1")
def extrema_nan():
    x, y = leaf(NAN), leaf(1)
    return torch.cat(grad(torch.fmax(x, y).sum(), (x, y)))


@reproducer("tangent: `maximum(1, 2)` with the tangents inf and 1")
def extrema_tangent():
    with forward_ad.dual_level():
        x = forward_ad.make_dual(tensor(1.0), tensor(INF))
        y = forward_ad.make_dual(tensor(2.0), tensor(1.0))
        return forward_ad.unpack_dual(torch.maximum(x, y)).tangent


@reproducer("result: `clamp(min=-1)` of 0 and 5 in uint8")
def clamp_unsigned():
    return tensor([0, 5], dtype=torch.uint8).clamp(min=-1)


@reproducer("result: `clamp(max=300)` of 0 and 5 in int8")
def clamp_overflow():
    return tensor([0, 5], dtype=torch.int8).clamp(max=300)


# ---- Random numbers for a seed -------------------------------------------------------------------


@reproducer("result: `trunc_normal_` of 3 elements")
def trunc_normal():
    return nn.init.trunc_normal_(torch.empty(3))


@reproducer("result: `torch.rand(3, dtype=torch.bfloat16)`")
def uniform_16_bit():
    return torch.rand(3, dtype=torch.bfloat16)


@reproducer("result: `torch.randn(16, dtype=torch.bfloat16)[:3]`")
def normal_16_bit():
    return torch.randn(16, dtype=torch.bfloat16)[:3]


@reproducer("result: `nn.Linear(2, 1, dtype=torch.bfloat16).weight`")
def weights_16_bit():
    return nn.Linear(2, 1, dtype=torch.bfloat16).weight[0]


# ---- Other operators -----------------------------------------------------------------------------


@reproducer("`linalg.det` of [[0]]")
def det_1x1():
    x = leaf([0])
    return grad(torch.linalg.det(x), x)[0]


@reproducer("shape of the gradient: `linalg.det` of a 0 x 0 matrix")
def det_0x0():
    x = torch.zeros(0, 0, requires_grad=True)
    return tensor(grad(torch.linalg.det(x), x)[0].shape)


@reproducer("result: `lp_pool1d([1, 3, 2, 2], inf, 2)`")
def lp_pool_value():
    return F.lp_pool1d(tensor([[[1.0, 3, 2, 2]]]), INF, 2)


@reproducer("`lp_pool1d([1, 3, 2, 2], inf, 2)`")
def lp_pool_gradient():
    x = leaf([[1, 3, 2, 2]])
    return grad(F.lp_pool1d(x, INF, 2).sum(), x)[0]


@reproducer("`quantile(x, 0.3)` of 1, 1, 1, 1")
def quantile_ties():
    x = leaf(1, 1, 1, 1)
    return grad(torch.quantile(x, 0.3), x)[0]


@reproducer("`ldexp(x, [-1, -3, 2])` at 1, 1, 1")
def ldexp_negative():
    x = leaf(1, 1, 1)
    return grad(torch.ldexp(x, tensor([-1, -3, 2])).sum(), x)[0]


@reproducer("result: whether the tangent of `ldexp` of bfloat16 is bfloat16")
def ldexp_tangent():
    x = torch.ones(1, dtype=torch.bfloat16)
    with forward_ad.dual_level():
        y = torch.ldexp(forward_ad.make_dual(x, x.clone()), tensor([1]))
        return tensor([forward_ad.unpack_dual(y).tangent.dtype == x.dtype])


@reproducer("result: whether `linear_cross_entropy(..., options=...)` has a tangent", first="2.13")
def linear_cross_entropy_tangent():
    x, target = torch.eye(2), torch.full((2, 2), 0.5)
    with forward_ad.dual_level():
        y = F.linear_cross_entropy(
            forward_ad.make_dual(x, x.clone()), x, target, options=nn.LinearCrossEntropyOptions()
        )
        return tensor([forward_ad.unpack_dual(y).tangent is not None])


def make_query():
    """One batch without heads: two positions, of which the first is NaN."""
    q = torch.ones(1, 2, 8)
    q[0, 0, 0] = NAN
    return q


@reproducer("result: attention over two rows, the first query NaN")
def attention_3d_value():
    k = torch.ones(1, 2, 8)
    return F.scaled_dot_product_attention(make_query(), k, k)[0, :, 0]


@reproducer("causal attention over two rows, the first query NaN")
def attention_3d_gradient():
    k, v = torch.ones(1, 2, 8), torch.ones(1, 2, 8, requires_grad=True)
    y = F.scaled_dot_product_attention(make_query(), k, v, is_causal=True)
    return grad(y.sum(), v)[0][0, :, 0]


@reproducer("attention over two rows of ones, differentiated twice")
def attention_3d_twice():
    q = torch.ones(1, 2, 8, requires_grad=True)
    y = F.scaled_dot_product_attention(q, q, q)
    (g,) = grad(y.sum(), q, create_graph=True)
    return grad(g.sum(), q)[0][0, :, 0]


@reproducer("result: whether `chebyshev_polynomial_t(nan, 3)` is NaN")
def chebyshev_nan():
    y = special.chebyshev_polynomial_t(tensor(NAN), tensor(3.0))
    return y.isnan()  # before, y is whatever the memory held


@reproducer("result: whether `chebyshev_polynomial_u(nan, 3)` is NaN")
def polynomials_nan():
    y = special.chebyshev_polynomial_u(tensor(NAN), tensor(3.0))
    return y.isnan()  # before, y is whatever the memory held


@reproducer("`bessel_j0(x) * x` at 1")
def bessel_gradient():
    x = leaf(1)
    return grad((special.bessel_j0(x) * x).sum(), x)[0]


@reproducer("`i0` at NaN, differentiated twice")
def i0_twice():
    x = leaf(NAN)
    (g,) = grad(torch.i0(x).sum(), x, create_graph=True)
    return grad(g.sum(), x)[0]


@reproducer("`special.i1` at NaN")
def i1_nan():
    x = leaf(NAN)
    return grad(special.i1(x).sum(), x)[0]


@reproducer("`special.i1` at 1 in bfloat16")
def i1_16_bit():
    x = leaf(1, dtype=torch.bfloat16)
    return grad(special.i1(x).sum(), x)[0]


@reproducer("result: `Multinomial(1000, [0.2, 0.3, 0.5]).entropy()`")
def multinomial_entropy():
    p = tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    return distributions.Multinomial(1000, p).entropy()


@reproducer("result: two weights after three steps of `Muon`")
def muon_bfloat16():
    p = nn.Parameter(torch.zeros(3, 2, dtype=torch.bfloat16))
    optimizer = torch.optim.Muon([p], lr=1.0, weight_decay=0.0, nesterov=False)
    for i in range(3):
        p.grad = tensor([[4, 1], [2, 0], [1, 3]], dtype=torch.bfloat16) * (1 + i)
        optimizer.step()
    return p.detach()[0]


@reproducer("`sum(aminmax([1, 1]))`")
def aminmax_gradient():
    x = leaf(1, 1)
    return grad(sum(torch.aminmax(x)), x)[0]


@reproducer("`nextafter(x, 2 * x)` at 1")
def nextafter_gradient():
    x = leaf(1)
    return grad(torch.nextafter(x, x * 2).sum(), x)[0]


@reproducer("`pdist(x, 3)` of two points, differentiated twice")
def cdist_twice():
    x = leaf([0, 1], [1, 3])
    (g,) = grad(F.pdist(x, 3).sum(), x, create_graph=True)
    return grad(g[0, 0], x)[0]


@reproducer("tangent: `grid_sample` of ones with tangents of ones")
def grid_sample_tangent():
    with forward_ad.dual_level():
        image = forward_ad.make_dual(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
        sampled = F.grid_sample(image, torch.zeros(1, 1, 1, 2), align_corners=True)
        return forward_ad.unpack_dual(sampled).tangent.flatten()


@reproducer("`grid_sample` of 0, 1, 2, 3 in its centre, differentiated twice")
def grid_sample_twice():
    image = leaf([[[0, 1], [2, 3]]])
    grid = torch.zeros(1, 1, 1, 2, requires_grad=True)
    y = F.grid_sample(image, grid, align_corners=True)
    (g,) = grad(y.sum(), grid, create_graph=True)
    return grad(g.sum(), image)[0].flatten()


@reproducer("`grid_sample` of four ones at NaN, differentiated twice", first="2.12")
def grid_sample_nan():
    image = torch.ones(1, 1, 2, 2, requires_grad=True)
    grid = torch.full((1, 1, 1, 2), NAN, requires_grad=True)
    y = F.grid_sample(image, grid, align_corners=True)
    (g,) = grad(y.sum(), grid, create_graph=True)
    return grad(g.sum(), image)[0].flatten()


@reproducer("`group_norm` of 0 and 1, differentiated by the input and by the bias")
def group_norm_twice():
    x, bias = leaf([[0, 1]]), leaf(0)
    (g,) = grad(F.group_norm(x, 1, None, bias).sum(), x, create_graph=True)
    return grad(g.sum(), bias)[0]


@reproducer("result: `torch.cholesky(torch.eye(2))`")
def cholesky_qr():
    return torch.cholesky(torch.eye(2))


@reproducer("shape of the result: `group_norm` of a 2 x 0 x 3 input")
def group_norm_empty():
    return tensor(F.group_norm(torch.zeros(2, 0, 3), 1).shape)
