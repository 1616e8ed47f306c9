"""Cases that PyTorch's databases lack: exactly at kinks, at ties, and where rows are masked."""

import itertools
import math

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from lab.changes.fills import GRID, INF, NAN, make_pairs, make_ramp

TABLE = {}
FLOATS = ("float32", "float64", "bfloat16")
WIDE = ("float32", "float64")
tensor = torch.tensor

TIES = tensor([[1, 1, 0, 1], [2, 2, 2, 2], [0, -0.0, 0, -0.0], [3, 1, 3, -2], [-1, -1, -4, -1]])
WILD = tensor(
    [
        [NAN, 1, 1, 0],
        [INF, INF, 1, 2],
        [-INF, -INF, -INF, -INF],
        [-INF, 0, -INF, 0],
        [NAN, NAN, NAN, NAN],
        [INF, -INF, 0, 1],
    ]
)
MATRICES = {
    "ties": TIES,
    "wild": WILD,
    "constant": torch.full((4, 5), 0.5),
    "zeros": torch.zeros(4, 5),
    "one": tensor([[2.0]]),
    "long": make_ramp(3, 300).round().float(),
    "empty": torch.zeros(0, 3),
}


def add(group, name, function, *tensors, dtypes=FLOATS):
    TABLE.setdefault(group, []).append((name, function, tensors, dtypes))


# ---- The clamp family and what calls it ----------------------------------------------------------

X = tensor(GRID, dtype=torch.float64)
A, B = make_pairs(torch.float64)
for name, f in {
    "clamp(-1, 1)": lambda x: x.clamp(-1, 1),
    "clamp(1, -1)": lambda x: x.clamp(1, -1),
    "clamp(min=0)": lambda x: x.clamp(min=0),
    "clamp_max(1)": lambda x: x.clamp_max(1),
    "clamp_(-1, 1)": lambda x: x.clone().clamp_(-1, 1),
    "clamp_ of a view": lambda x: (y := x.clone(), y[::2].clamp_(0, 1))[0],
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh(-0.5, 0.5)": lambda x: F.hardtanh(x, -0.5, 0.5),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "threshold(1, 20)": lambda x: F.threshold(x, 1, 20),
    "softshrink(0)": lambda x: F.softshrink(x, 0.0),
    "nan_to_num(1, 2, 3)": lambda x: x.nan_to_num(1, 2, 3),
    "fake_quantize": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 4),
    "normalize": lambda x: F.normalize(x[:, None] * 1e-12, dim=1),
}.items():
    add("clamp", name, f, X)
    add("clamp", f"{name}, strided", lambda x, f=f: f(x.repeat_interleave(2)[::2]), X)
for name, f in {
    "clamp(Tensor, Tensor)": lambda a, b: a.clamp(b, b.roll(7)),
    "clamp(Tensor, same)": lambda a, b: a.clamp(b, b),
    "clamp(number, Tensor)": lambda a, b: a.clamp(torch.zeros_like(b), b),
    "clamp_min(Tensor)": torch.clamp_min,
    "clamp_max(Tensor)": torch.clamp_max,
    "max(a, b)": torch.max,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "where": lambda a, b: torch.where(a > b, a, b),
    "prelu": lambda a, b: F.prelu(a[None], b),
}.items():
    add("clamp", name, f, A, B)
BOUNDS = {"min=-1": {"min": -1}, "max=300": {"max": 300}, "min=.5": {"min": 0.5}}
BOUNDS |= {"max=1.5": {"max": 1.5}, "1 to 2": {"min": 1, "max": 2}}
for dtype, (name, bounds) in itertools.product(
    (torch.uint8, torch.int8, torch.int32, torch.int64), BOUNDS.items()
):
    add(
        "clamp",
        f"{dtype}, {name}",
        lambda x, kw=bounds: x.clamp(**kw),
        torch.arange(6).to(dtype),
        dtypes=("float32",),
    )


def find_tangent(f, a, b, ta, tb):
    with forward_ad.dual_level():
        a, b = forward_ad.make_dual(a, ta), forward_ad.make_dual(b, tb)
        return forward_ad.unpack_dual(f(a, b)).tangent


for f, (ta, tb) in itertools.product(
    (torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.clamp_min, torch.clamp_max),
    ((INF, 1.0), (1.0, INF), (NAN, 1.0), (1.0, NAN)),
):
    add(
        "clamp",
        f"tangents {ta}, {tb} of {f.__name__}",
        lambda a, b, f=f, ta=ta, tb=tb: find_tangent(f, a, b, a * 0 + ta, a * 0 + tb),
        tensor([1.0, 2, 3]),
        tensor([2.0, 2, 2]),
        dtypes=("float32",),
    )


def call_scripted(f):
    """What a scripted function returns in its first three calls: it profiles the first."""

    def call(x):
        scripted = torch.jit.script(f)
        results = []
        for _ in range(3):
            y = x.detach().requires_grad_()
            results += torch.autograd.grad(scripted(y).sum(), y)
        return results

    return call


def clamp_alone(x):
    return torch.clamp(x, 0.0, 1.0)


def clamp_beside(x):
    return torch.clamp(x, 0.0, 1.0) * 2.0 + x * 0.0


for f in (clamp_alone, clamp_beside):
    add(
        "clamp",
        f"TorchScript, {f.__name__}",
        call_scripted(f),
        tensor([0.0, 0.5, 1]),
        dtypes=("float32",),
    )

# ---- Reductions, orders, norms -------------------------------------------------------------------

REDUCTIONS = {
    **{
        f"{f.__name__} {way} {q}": lambda x, f=f, way=way, q=q: f(x, q, 1, interpolation=way)
        for f in (torch.quantile, torch.nanquantile)
        for way in ("linear", "lower", "higher", "midpoint", "nearest")
        for q in (0.0, 0.3, 0.5, 1.0)
    },
    "quantile of all": lambda x: torch.quantile(x, tensor([0.1, 0.5, 0.9], dtype=x.dtype)),
    **{f"norm {p}": lambda x, p=p: x.norm(p, 1) for p in (0, 0.5, 1, 2, 3, INF, -INF)},
    **{
        f"matrix_norm {p}": lambda x, p=p: torch.linalg.matrix_norm(x, p)
        for p in ("nuc", 1, 2, -2, INF)
    },
    **{f"cdist {p}": lambda x, p=p: torch.cdist(x, x.clone(), p) for p in (0, 0.5, 1, 2, 3, INF)},
    **{f"pdist {p}": lambda x, p=p: F.pdist(x, p) for p in (0, 0.5, 1, 2, 3, INF)},
    **{f"renorm {p}": lambda x, p=p: x.renorm(p, 0, 2.0) for p in (1, 2, 3, INF)},
    **{f"normalize {p}": lambda x, p=p: F.normalize(x, p, 1) for p in (1, 2, 3, INF)},
    **{f"lp_pool1d {p}": lambda x, p=p: F.lp_pool1d(x[None], p, 2) for p in (1.0, 2.0, 3.0, INF)},
    **{f"lp_pool2d {p}": lambda x, p=p: F.lp_pool2d(x[None], p, 1) for p in (1.0, 2.0, INF)},
    "median": lambda x: x.median(1),
    "median of all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(1),
    "mode": lambda x: x.mode(1),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "topk": lambda x: x.topk(2, 1),
    "topk, smallest": lambda x: x.topk(2, 1, largest=False),
    "sort": lambda x: x.sort(1),
    "sort, stable": lambda x: x.sort(dim=1, stable=True, descending=True),
    "max, min": lambda x: (x.max(1), x.min(0), x.max(), x.amin(1), torch.aminmax(x, dim=1)),
    "aminmax of all": lambda x: torch.aminmax(x),
    "cummax": lambda x: x.cummax(1),
    "std": lambda x: (x.std(1), x.std(1, correction=0), torch.var_mean(x, 1)),
    "std over": lambda x: x.std(1, correction=x.shape[1]),
    "prod": lambda x: (x.prod(), x.cumprod(1)),
    "logsumexp": lambda x: (x.logsumexp(1), x.logcumsumexp(1)),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(1)),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "cosine_similarity": lambda x: F.cosine_similarity(x, x.roll(1, 0), 1),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.clone()),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:], eps=0.0),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x[None], 1),
    "local_response_norm": lambda x: F.local_response_norm(x[None], 2),
    "cov": lambda x: (torch.cov(x), torch.corrcoef(x)),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 2, 1, return_indices=True),
    "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2, 1, 1, return_indices=True),
    "max_pool2d, dilated": lambda x: F.max_pool2d(x[None, None], 2, 1, 1, 2, ceil_mode=True),
    "max_pool3d": lambda x: F.max_pool3d(x[None, None, None], (1, 2, 2), 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None], 2),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x[None, None], 2, output_size=2),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 2, 1, 1, count_include_pad=False),
}
for (name, f), (matrix_name, matrix) in itertools.product(REDUCTIONS.items(), MATRICES.items()):
    dtypes = FLOATS if matrix_name in ("ties", "wild", "long") else WIDE
    add(f"reductions of {matrix_name}", name, f, matrix.double(), dtypes=dtypes)

# ---- Losses --------------------------------------------------------------------------------------

SIGNS = tensor([1, -1] * 4)
PREDICTED, TARGET = tensor([0, 1, -1, 0.5, -0.5, 2, 3, 1.5]), tensor([0, 0, 0, 0, 0, 1, 1, 0.5])
LOSSES = {
    "l1": F.l1_loss,
    **{
        f"smooth_l1 {k}": lambda a, b, k=k, **kw: F.smooth_l1_loss(a, b, beta=k, **kw)
        for k in (0.0, 0.5, 1.0)
    },
    **{f"huber {k}": lambda a, b, k=k, **kw: F.huber_loss(a, b, delta=k, **kw) for k in (0.5, 1.0)},
    "hinge_embedding": lambda a, b, **kw: F.hinge_embedding_loss(a, SIGNS, **kw),
    "margin_ranking": lambda a, b, **kw: F.margin_ranking_loss(a, b, SIGNS.to(a.dtype), 1.0, **kw),
    "soft_margin": lambda a, b, **kw: F.soft_margin_loss(a, SIGNS.to(a.dtype), **kw),
    "cosine_embedding": lambda a, b, **kw: F.cosine_embedding_loss(
        a.reshape(4, 2), b.reshape(4, 2), SIGNS[:4], **kw
    ),
    "triplet_margin": lambda a, b, **kw: F.triplet_margin_loss(
        *(t.reshape(4, 2) for t in (a, b, a.clone())), **kw
    ),
    "triplet_margin, swap": lambda a, b, **kw: F.triplet_margin_loss(
        *(t.reshape(4, 2) for t in (a, b, a.flip(0))), swap=True, margin=0.0, **kw
    ),
    "triplet_margin, at it": lambda a, b, **kw: F.triplet_margin_loss(
        *(t.reshape(4, 2)[1:2] for t in (a * 0, a * 0, a * 0 + 1)),
        margin=2.0**0.5,
        eps=0.0,
        p=2.0,
        **kw,
    ),
    "triplet with distance": lambda a, b, **kw: F.triplet_margin_with_distance_loss(
        *(t.reshape(4, 2) for t in (a, b, a.clone())),
        distance_function=lambda x, y: (x - y).abs().sum(1),
        **kw,
    ),
    "multi_margin": lambda a, b, **kw: F.multi_margin_loss(
        a.reshape(4, 2), SIGNS[:4].clamp(0), **kw
    ),
    "multilabel_margin": lambda a, b, **kw: F.multilabel_margin_loss(
        a.reshape(2, 4), tensor([[0, 2, -1, 1], [3, -1, 0, 0]]), **kw
    ),
    "poisson_nll": lambda a, b, **kw: F.poisson_nll_loss(
        a.abs(), b, log_input=False, full=True, **kw
    ),
    "gaussian_nll": lambda a, b, **kw: F.gaussian_nll_loss(
        a, a * 0, b * 0 + tensor([0, 1, 1e-7, 1e-6, 2, 0, 1, 3]).to(a.dtype), **kw
    ),
    "gaussian_nll, var": lambda a, b, **kw: F.gaussian_nll_loss(a, a * 0, b, eps=1.0, **kw),
    "kl_div": lambda a, b, **kw: F.kl_div(a, b, **kw),
    "binary_cross_entropy": lambda a, b, **kw: F.binary_cross_entropy(b, b.detach(), **kw),
    "bce with logits": lambda a, b, **kw: F.binary_cross_entropy_with_logits(a * 100, b, **kw),
}
for (name, f), reduction in itertools.product(LOSSES.items(), ("none", "mean", "sum")):
    add(
        "losses",
        f"{name}, {reduction}",
        lambda a, b, f=f, r=reduction: f(a, b, reduction=r),
        PREDICTED.double(),
        TARGET.double(),
    )
CLASS_WEIGHTS = tensor([0.0, 1, 2, 0])
CLASSIFICATIONS = {
    "cross_entropy": F.cross_entropy,
    "cross_entropy, smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "cross_entropy, ignored": lambda x, y: F.cross_entropy(x, y * 0 - 100),
    "cross_entropy, weighted": lambda x, y: F.cross_entropy(
        x, y, CLASS_WEIGHTS.to(x.dtype), label_smoothing=0.1
    ),
    "cross_entropy, soft": lambda x, y: F.cross_entropy(x, F.one_hot(y, 4).to(x.dtype)),
    "nll": lambda x, y: F.nll_loss(x, y, ignore_index=0),
    "masked softmax": lambda x, y: x.masked_fill(x == 0, -INF).softmax(1),
}
for (name, f), (matrix_name, matrix) in itertools.product(
    CLASSIFICATIONS.items(), {"ties": TIES, "wild": WILD}.items()
):
    add("losses", f"{name}, {matrix_name}", f, matrix.double(), torch.arange(len(matrix)) % 4)
for zero_infinity in (False, True):
    add(
        "losses",
        f"ctc, {zero_infinity}",
        lambda x, z=zero_infinity: F.ctc_loss(
            x.log_softmax(2),
            tensor([[1, 1, 2], [1, 2, 2]]),
            tensor([4, 3]),
            tensor([3, 3]),
            reduction="none",
            zero_infinity=z,
        ),
        make_ramp(4, 2, 3),
        dtypes=WIDE,
    )

# ---- Attention -----------------------------------------------------------------------------------

MASKS = {
    "no mask": None,
    "a row masked": tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool(),
    "all masked": torch.zeros(4, 4).bool(),
    "-inf": tensor([[0, 0, -INF, 1], [-INF] * 4, [0, -INF, -INF, -INF], [0, 0, 0, 0]]),
    "nan": torch.full((4, 4), NAN),
}
QUERIES = {
    "ramp": make_ramp(2, 2, 4, 8),
    "nan": make_ramp(2, 2, 4, 8).index_fill(2, tensor([0]), NAN),
    "inf": make_ramp(2, 2, 4, 8).index_fill(2, tensor([0]), INF),
    "huge": make_ramp(2, 2, 4, 8) * 1e30,
}


def attend(q, k, v, mask=None, math=False, flat=False, **kw):
    mask = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
    q, k, v = (t.flatten(0, 1) if flat else t for t in (q, k, v))
    with sdpa_kernel(SDPBackend.MATH) if math else sdpa_kernel([*DEFAULT_BACKENDS]):
        return F.scaled_dot_product_attention(q, k, v, mask, **kw)


DEFAULT_BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
ATTENTIONS = {name: {"mask": mask} for name, mask in MASKS.items()} | {
    "causal": {"is_causal": True},
    "scale 0": {"scale": 0.0},
    "dropout": {"dropout_p": 0.5},
}
for (name, kw), (query_name, q), math_alone, flat in itertools.product(
    ATTENTIONS.items(), QUERIES.items(), (False, True), (False, True)
):
    add(
        "attention",
        f"{name}, {query_name}{', 3-D' * flat}{', math' * math_alone}",
        lambda q, k, v, kw=kw, m=math_alone, flat=flat: attend(q, k, v, math=m, flat=flat, **kw),
        q,
        make_ramp(2, 2, 4, 8).roll(1, 2),
        make_ramp(2, 2, 4, 8).roll(1, 3),
    )

# ---- Scattered, sampled, interpolated ------------------------------------------------------------

INDEX = tensor([0, 1, 0, 2, 1, 0, 4, 4])
SOURCE, BASE = tensor([1.0, 1, 1, 0, 1, 3, 0, 0]), tensor([1.0, 1, 0, 0, 2])
for reduce, inclusive, wild in itertools.product(
    ("sum", "prod", "mean", "amax", "amin"), (True, False), (1.0, NAN, INF)
):
    kw = {"reduce": reduce, "include_self": inclusive}
    source = SOURCE.double().index_fill(0, tensor([1]), wild)
    name = f"{reduce} {inclusive} {wild}"
    add(
        "scatter",
        f"reduce {name}",
        lambda a, b, kw=kw: a.scatter_reduce(0, INDEX, b, **kw),
        BASE.double(),
        source,
    )
    if reduce != "sum":
        add(
            "scatter",
            f"index {name}",
            lambda a, b, kw=kw: a.index_reduce(0, INDEX, b, **kw),
            BASE.double(),
            source,
        )
for reduce, initial in itertools.product(("sum", "mean", "max", "min", "prod"), (None, 1.0)):
    lengths = tensor([3, 0, 2, 3])
    add(
        "scatter",
        f"segment {reduce} {initial}",
        lambda a, r=reduce, i=initial: torch.segment_reduce(a, r, lengths=lengths, initial=i),
        SOURCE.double(),
        dtypes=("float32",),
    )
for mode, padding in itertools.product(("sum", "mean", "max"), (None, 0)):
    offsets = tensor([0, 2, 2, 4])
    add(
        "scatter",
        f"embedding_bag {mode} {padding}",
        lambda w, m=mode, p=padding: F.embedding_bag(
            tensor([0, 1, 1, 2, 0, 0]), w, offsets, mode=m, padding_idx=p
        ),
        tensor([[1.0, 1], [1, 1], [0, 2]]),
        dtypes=("float32",),
    )
LATTICE = tensor(
    [-2, -1.5, -1, -1 + 1e-7, -0.5, -1 / 3, 0, 0.5, 1, 1 + 1e-7, 1.5, 2, 3, 1e10, INF, NAN]
)
PLANE = torch.stack(torch.meshgrid(LATTICE, LATTICE, indexing="ij"), -1)[None].double()
for mode, padding, corners, side in itertools.product(
    ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False), (1, 4)
):
    add(
        "sampling",
        f"grid_sample {mode} {padding} {corners} {side}",
        lambda x, g, a=mode, b=padding, c=corners: F.grid_sample(x, g, a, b, c),
        make_ramp(1, 2, side, side),
        PLANE,
        dtypes=("float32",),
    )
MODES = {1: ("nearest", "linear", "area", "nearest-exact"), 3: ("nearest", "trilinear", "area")}
MODES[2] = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
for dims, modes in MODES.items():
    for mode, size in itertools.product(modes, (1, 2, 3, 7, 8)):
        corners = (False, True) if "linear" in mode or mode == "bicubic" else (None,)
        for align, antialias in itertools.product(corners, (False, True)):
            if antialias and mode not in ("bilinear", "bicubic"):
                continue
            add(
                "sampling",
                f"interpolate {dims} {mode} {size} {align} {antialias}",
                lambda x, m=mode, s=size, a=align, aa=antialias: F.interpolate(
                    x, s, mode=m, align_corners=a, antialias=aa
                ),
                make_ramp(1, 2, *[4] * dims),
            )
for mode, pad in itertools.product(
    ("reflect", "replicate", "circular", "constant"), ((2, 1, 1, 2), (-1, 1, 1, -1))
):
    add(
        "sampling",
        f"pad {mode} {pad}",
        lambda x, m=mode, p=pad: F.pad(x, p, m),
        make_ramp(1, 2, 4, 4),
    )
for name, f in {
    "conv2d": lambda x, w: F.conv2d(x, w, padding=1),
    "conv2d, dilated": lambda x, w: F.conv2d(x, w, stride=2, dilation=2, padding=2),
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1), stride=2),
}.items():
    for fill in (0.5, NAN, INF, 0.0):
        image = make_ramp(1, 2, 5, 5).index_fill(2, tensor([2]), fill)
        add("sampling", f"{name} {fill}", f, image, make_ramp(4, 2, 3, 3))

# ---- Linear algebra: functions that do not depend on the choice of a basis -----------------------

EYE, SYMMETRIC = torch.eye(3), tensor([[2.0, 1, 0], [1, 2, 1], [0, 1, 2]])
RANK2, RANK1 = (
    tensor([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]]),
    tensor([[1.0, 2, 3], [2, 4, 6], [-1, -2, -3]]),
)
SPECIAL_MATRICES = {
    "identity": EYE,
    "zero": EYE * 0,
    "1 x 1 zero": EYE[:1, :1] * 0,
    "1 x 1": EYE[:1, :1] * 2,
    "2 x 2 zero": EYE[:2, :2] * 0,
    "rank 2": RANK2,
    "rank 1": RANK1,
    "symmetric": SYMMETRIC,
    "general": make_ramp(3, 3).float() + EYE,
    "equal eigenvalues": torch.diag(tensor([2.0, 2, 1])),
    "nan": EYE * NAN,
    "4 x 3": make_ramp(4, 3).float(),
    "3 x 4": make_ramp(3, 4).float(),
    "batch": torch.stack([EYE, SYMMETRIC, RANK2]),
    "empty": EYE[:0, :0],
}
la = torch.linalg


def square_by_eigenvalues(x):
    w, v = la.eigh(x)
    return (v * w.square().unsqueeze(-2)) @ v.mT


def compose_svd(x):
    u, s, v = la.svd(x, full_matrices=False)
    return (u * s) @ v


def ones_beside(x):
    return torch.ones(*x.shape[:-1], 2, dtype=x.dtype)


LINEAR = {
    **{f.__name__: f for f in (la.svdvals, la.eigvalsh, la.det, la.slogdet, torch.logdet, la.inv)},
    **{f.__name__: f for f in (la.pinv, la.cholesky, la.cond, la.matrix_exp, la.lu_factor, la.lu)},
    "svd": compose_svd,
    "eigh": square_by_eigenvalues,
    "eigvals": lambda x: la.eigvals(x).abs().sort()[0],
    "pinv, hermitian": lambda x: la.pinv(x, hermitian=True),
    "lstsq": lambda x: la.lstsq(x, ones_beside(x))[0],
    "qr": la.qr,
    "solve": lambda x: la.solve(x, ones_beside(x)),
    "solve_triangular": lambda x: la.solve_triangular(x, ones_beside(x), upper=True),
    "cholesky_inverse": torch.cholesky_inverse,
    "matrix_power": lambda x: (la.matrix_power(x, 0), la.matrix_power(x, 3)),
    "matrix_rank": lambda x: la.matrix_rank(x),
    "householder": lambda x: la.householder_product(x, x.diagonal(dim1=-2, dim2=-1).clone()),
    "addmm, beta 0": lambda x: torch.addmm(x * NAN, x, x, beta=0),
    "trace": torch.trace,
    "cross": lambda x: la.cross(x, x.roll(1, 0)),
}
for (name, f), (matrix_name, matrix) in itertools.product(LINEAR.items(), SPECIAL_MATRICES.items()):
    add("linalg", f"{name} of {matrix_name}", f, matrix.double(), dtypes=WIDE)

# ---- Integers beside floats; large tensors, which take other kernels -----------------------------

EXPONENTS = [-3, -1, 0, 1, 3, 7, 8]
for dtype in (torch.int8, torch.int32, torch.int64):
    add("integers", f"ldexp {dtype}", torch.ldexp, torch.ones(7), tensor(EXPONENTS, dtype=dtype))
    add(
        "integers",
        f"pow {dtype}",
        torch.pow,
        tensor([0.0, -0.0, 1, -1, 2, INF, NAN]),
        tensor(EXPONENTS, dtype=dtype),
    )

LARGE = ((torch.arange(60000, dtype=torch.float64) * 7919) % 101 - 50).div(4).reshape(60, 1000)
IMAGE = (1, 6, 100, 100)
for name, f in {
    "sort": lambda x: x.sort(1),
    "sort of all": lambda x: x.flatten().sort(descending=True),
    "topk": lambda x: (x.topk(5, 1), x.topk(500, 1)),
    "kthvalue": lambda x: x.kthvalue(300, 1),
    "median": lambda x: (x.median(1), x.nanmedian(1), x.median()),
    "mode": lambda x: x.mode(1),
    "quantile": lambda x: torch.quantile(x.float(), 0.37, 1),
    "max": lambda x: (x.max(1), x.max(0), x.max(), x.amax(1), x.cummax(1)),
    "logsumexp": lambda x: (x.logsumexp(1), x.softmax(1)),
    "norms": lambda x: (x.norm(INF, 1), la.vector_norm(x, 1, 1), x.std(1)),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 5, 3),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(IMAGE), 3, 2, 1),
    "max_pool2d, channels last": lambda x: F.max_pool2d(
        x.reshape(IMAGE).contiguous(memory_format=torch.channels_last), 3, 2, 1
    ),
    "max_pool3d": lambda x: F.max_pool3d(x.reshape(1, 1, 60, 25, 40), 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x.reshape(IMAGE), 7),
    "clamp": lambda x: (x.clamp(-1, 1), F.relu(x), F.hardswish(x)),
    "losses": lambda x: (F.huber_loss(x, x.roll(1, 1)), F.smooth_l1_loss(x, x.roll(1, 1))),
    "layer_norm": lambda x: F.layer_norm(x, (1000,)),
    "batch_norm": lambda x: F.batch_norm(x.reshape(6, 10, 1000), None, None, training=True),
    "embedding_bag": lambda x: F.embedding_bag(torch.arange(60).reshape(6, 10), x, mode="max"),
    "scatter_reduce": lambda x: torch.zeros(60, 50, dtype=x.dtype).scatter_reduce(
        1, torch.arange(60000).reshape(60, 1000) % 50, x, "amax"
    ),
    "cdist": lambda x: (torch.cdist(x, x.clone(), 1), F.pdist(x)),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(60) * 16),
    "attention": lambda x: attend(*[x[:48].reshape(1, 4, 120, 100)] * 3, is_causal=True),
    "attention, 3-D": lambda x: attend(*[x[:48].reshape(4, 120, 100)] * 3, is_causal=True),
    "interpolate": lambda x: F.interpolate(x.reshape(IMAGE), 37, mode="bilinear", antialias=True),
    "conv2d": lambda x: F.conv2d(x.reshape(IMAGE), make_ramp(8, 6, 3, 3).to(x.dtype), padding=1),
    "matmul": lambda x: x @ x.T,
    "cumsum": lambda x: (x.cumsum(1), x.sum(), x.mean(1)),
    "elementwise": lambda x: (F.gelu(x), x.tanh(), x.sigmoid(), x.abs().log1p(), x.abs().sqrt()),
}.items():
    add("large", name, f, LARGE, dtypes=("float32", "bfloat16"))
assert math.isfinite(LARGE.sum())
