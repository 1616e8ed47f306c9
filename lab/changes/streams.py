"""Random numbers for a seed, and distributions at the ends of their supports."""

import itertools

import torch
import torch.nn.functional as F
from torch import distributions, nn
from torch.utils import data

from lab.changes.fills import INF, NAN

TABLE = {}
tensor = torch.tensor

DRAWS = {
    **{f"rand {n}": lambda d, n=n: torch.rand(n, dtype=d) for n in (5, 15, 16, 1000)},
    **{f"randn {n}": lambda d, n=n: torch.randn(n, dtype=d) for n in (5, 15, 16, 1000)},
    "normal_, strided": lambda d: torch.zeros(40, 40, dtype=d).t().normal_(),
    "uniform_": lambda d: torch.zeros(50, dtype=d).uniform_(-2, 3),
    "randint": lambda d: (torch.randint(0, 1000, (50,)), torch.randint(0, 2**40, (50,))),
    "random_": lambda d: torch.zeros(50, dtype=d).random_(),
    "randperm": lambda d: (torch.randperm(10), torch.randperm(5000), torch.randperm(300000)[:50]),
    "bernoulli": lambda d: torch.bernoulli(torch.full((50,), 0.3, dtype=d)),
    "bernoulli_": lambda d: torch.zeros(50, dtype=d).bernoulli_(0.3),
    "multinomial": lambda d: torch.multinomial(torch.arange(1, 20).to(d), 5),
    "multinomial, replaced": lambda d: torch.multinomial(torch.arange(1, 20).to(d), 50, True),
    "normal": lambda d: torch.normal(torch.zeros(20, dtype=d), torch.arange(20).to(d)),
    "poisson": lambda d: torch.poisson(torch.arange(40).to(d)),
    "binomial": lambda d: torch.binomial(
        torch.full((20,), 9.0, dtype=d), torch.full((20,), 0.3, dtype=d)
    ),
    **{
        name: lambda d, name=name, args=args: getattr(torch.zeros(50, dtype=d), name)(*args)
        for name, args in {
            "exponential_": (),
            "cauchy_": (),
            "log_normal_": (),
            "geometric_": (0.3,),
        }.items()
    },
    **{
        f.__name__: lambda d, f=f: f(torch.ones(2, 10, 3, dtype=d), 0.3, True)
        for f in (F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout)
    },
    "rrelu": lambda d: F.rrelu(-torch.ones(50, dtype=d), training=True),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.zeros(50, dtype=d)),
    "fractional_max_pool2d": lambda d: F.fractional_max_pool2d(
        torch.arange(100.0).reshape(1, 1, 10, 10).to(d), 2, output_size=4
    ),
    **{
        f"init.{name}": lambda d, name=name: getattr(nn.init, name)(torch.zeros(6, 7, dtype=d))
        for name in sorted(vars(nn.init))
        if name.endswith("_")
        and name not in ("constant_", "dirac_", "sparse_", "zeros_", "ones_", "eye_")
        and not name.startswith("_")
    },
    "init.sparse_": lambda d: nn.init.sparse_(torch.zeros(6, 7, dtype=d), 0.5),
    "init.trunc_normal_, far": lambda d: nn.init.trunc_normal_(
        torch.zeros(60, dtype=d), 0, 1, 2, 3
    ),
    "loader": lambda d: [*data.DataLoader(torch.arange(50), 7, shuffle=True)],
    "weighted sampler": lambda d: [*data.WeightedRandomSampler(range(1, 20), 30)],
    "random_split": lambda d: [[*s.indices] for s in data.random_split(range(20), [0.5, 0.5])],
    "sdpa dropout": lambda d: F.scaled_dot_product_attention(
        *[torch.ones(2, 4, 8, dtype=d)] * 3, dropout_p=0.5
    ),
}
TABLE["random"] = [
    (
        name,
        lambda one, f=f: f(one.dtype),
        (tensor([1.0]),),
        ("float32", "float64", "bfloat16", "float16"),
    )
    for name, f in DRAWS.items()
]

# Parameters at a kink where they have one: probabilities of 0 and 1, whole numbers.
PARAMETERS = {
    "Normal": [(0.0, 1.0)],
    "Beta": [(2.0, 3.0), (1.0, 1.0)],
    "Gamma": [(1.0, 3.0)],
    "Laplace": [(0.0, 1.0)],
    "Uniform": [(0.0, 1.0)],
    "StudentT": [(3.0,)],
    "VonMises": [(0.0, 1.0)],
    "Gumbel": [(0.0, 1.0)],
    "Exponential": [(1.0,)],
    "Poisson": [(4.0,), (0.0,)],
    "Geometric": [(0.3,), (1.0,)],
    "LogNormal": [(0.0, 1.0)],
    "Kumaraswamy": [(2.0, 3.0)],
    "Cauchy": [(0.0, 1.0)],
    "Pareto": [(1.0, 2.0)],
    "Weibull": [(1.0, 2.0)],
    "HalfCauchy": [(1.0,)],
    "HalfNormal": [(1.0,)],
    "ContinuousBernoulli": [(0.5,), (0.499,)],
    "Chi2": [(3.0,)],
    "FisherSnedecor": [(3.0, 4.0)],
    "NegativeBinomial": [(3.0, 0.4)],
    "Binomial": [(10.0, 0.3)],
    "Bernoulli": [(0.0,), (1.0,), (0.3,)],
    "RelaxedBernoulli": [(0.5, 0.3)],
    "InverseGamma": [(2.0, 3.0)],
    "Categorical": [([0.1, 0.2, 0.7],), ([0.0, 0.0, 1.0],)],
    "OneHotCategorical": [([0.1, 0.9],)],
    "Dirichlet": [([1.0, 2.0],)],
}
POINTS = tensor([0.0, 1, -1, 0.5, 2, 3, 1e-30, INF, NAN])


def ask_distribution(name, question, x, *parameters):
    made = getattr(distributions, name)(*parameters, validate_args=False)
    if question in ("sample", "rsample"):
        return getattr(made, question)((30,))
    if question in ("mean", "variance"):
        return getattr(made, question)
    return getattr(made, question)(*[x] * (question != "entropy"))


def simplex_or_points(name):
    if name in ("OneHotCategorical", "Dirichlet"):
        return tensor([[0.0, 1], [0.5, 0.5]])
    return POINTS.nan_to_num(0, 1, 0).clamp(0, 2).round() if name == "Categorical" else POINTS


TABLE["distributions"] = [
    (
        f"{name}{parameters}.{question}",
        lambda x, *ps, name=name, question=question: ask_distribution(name, question, x, *ps),
        (simplex_or_points(name).double(), *(tensor(p, dtype=torch.float64) for p in parameters)),
        ("float32", "float64", "bfloat16") if question == "sample" else ("float32", "float64"),
    )
    for name, choices in PARAMETERS.items()
    for parameters, question in itertools.product(
        choices, ("log_prob", "cdf", "icdf", "entropy", "mean", "variance", "sample", "rsample")
    )
]
for total in (3, 30, 1000):

    def ask_multinomial(logits, n=total):
        made = distributions.Multinomial(n, logits=logits)
        return made.entropy(), made.log_prob(tensor([n, 0, 0]).to(logits.dtype)), made.sample()

    TABLE["distributions"] += [
        (f"Multinomial({total})", ask_multinomial, (tensor([0.0, 1, 2]),), ("float32", "float64"))
    ]
