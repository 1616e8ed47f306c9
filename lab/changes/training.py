"""Weights after steps of every optimiser; learning rates of every schedule; clipped gradients."""

import inspect
import itertools

import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils
from torch.testing._internal.common_optimizers import optim_db

from lab.changes.fills import INF, NAN, make_ramp

TABLE = {"optimizers": [], "schedules": [], "clipping": []}
ONE = torch.ones(1)
STEPS = 4
GRADIENTS = {
    "ramp": lambda i, shape: make_ramp(*shape) + i / 4,
    "zeros": lambda i, shape: torch.zeros(shape),
    "nan": lambda i, shape: torch.full(shape, NAN),
    "huge": lambda i, shape: make_ramp(*shape) * 1e18,
    "tiny": lambda i, shape: make_ramp(*shape) * 1e-18,
}
EXTRA = [{"lr": 0.0}, {"lr": 1.0}, {"eps": 0.0}, {"eps": 1.0}, {"betas": (0.0, 0.9)}]
EXTRA += [{"nesterov": False}, {"nesterov": False, "weight_decay": 0.0}]
IMPLEMENTATIONS = [{}, {"foreach": False}, {"foreach": True}, {"fused": True}]


def take_steps(optimizer_class, settings, make_gradient, one):
    """Weights, and gradients: an optimiser may write to them."""
    is_matrix_only = optimizer_class.__name__ == "Muon"
    weights = [make_ramp(3, 4), make_ramp(3)][: 1 if is_matrix_only else 2]
    weights = [nn.Parameter(w.to(one.dtype)) for w in weights]
    optimizer = optimizer_class(weights, **settings)
    closure = [lambda: sum(w.square().sum() for w in weights)] * (
        optimizer_class is torch.optim.LBFGS
    )
    for i in range(STEPS):
        for w in weights:
            w.grad = make_gradient(i, w.shape).to(w.dtype)
        optimizer.step(*closure)
    return [w.detach() for w in weights], [w.grad for w in weights]


def list_settings(info):
    """Those of PyTorch's own tests, and EXTRA, without what needs a GPU."""
    accepted = inspect.signature(info.optim_cls).parameters
    own = [i.kwargs for i in info.optim_inputs_func(device="cpu")]
    for settings, implementation in itertools.product([*own, *EXTRA], IMPLEMENTATIONS):
        if accepted.keys() >= settings.keys() | implementation.keys():
            yield {**settings, **implementation}


for info in optim_db:
    if info.optim_cls is torch.optim.SparseAdam:
        continue
    for settings, (gradient_name, make_gradient) in itertools.product(
        list_settings(info), GRADIENTS.items()
    ):
        dtypes = ("float32", "float64", "bfloat16") if gradient_name == "ramp" else ("float32",)

        def call(one, cls=info.optim_cls, settings=settings, make=make_gradient):
            return take_steps(cls, settings, make, one)

        text = ", ".join(f"{k}={v}" for k, v in sorted(settings.items()))
        name = f"{info.optim_cls.__name__}({text}), {gradient_name}"
        TABLE["optimizers"].append((name, call, (ONE,), dtypes))


SCHEDULES = {
    "StepLR": (7,),
    "MultiStepLR": ([3, 9, 9],),
    "ConstantLR": (),
    "LinearLR": (),
    "ExponentialLR": (0.9,),
    "CosineAnnealingLR": (10, 0.01),
    "CosineAnnealingWarmRestarts": (5, 2),
    "PolynomialLR": (10, 2.0),
    "OneCycleLR": (0.5, 41),
    "CyclicLR": (0.01, 0.1, 6),
    "ReduceLROnPlateau": ("min", 0.5, 2),
    "LambdaLR": (lambda epoch: 0.95**epoch,),
    "MultiplicativeLR": (lambda epoch: 0.95,),
}


def make_sgd():
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)


def list_rates(make_schedule, metric=None):
    optimizer = make_sgd()
    schedule, rates = make_schedule(optimizer), []
    for i in range(40):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step(*[max(0.0, 5.0 - i)] * bool(metric))
    return torch.tensor(rates, dtype=torch.float64)


def make_sequence(optimizer):
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5),
        lr_scheduler.CosineAnnealingLR(optimizer, 20),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [5])


def make_chain(optimizer):
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
    ]
    return lr_scheduler.ChainedScheduler(parts)


MAKERS = {
    name: lambda o, name=name, args=args: getattr(lr_scheduler, name)(o, *args)
    for name, args in SCHEDULES.items()
} | {"SequentialLR": make_sequence, "ChainedScheduler": make_chain}
for name, make_schedule in MAKERS.items():

    def call(one, make=make_schedule, metric="Plateau" in name):
        return list_rates(make, metric)

    TABLE["schedules"].append((name, call, (ONE,), ("float64",)))


def clip(gradients, norm, foreach, one):
    weights = [nn.Parameter(torch.ones(2, dtype=one.dtype)) for _ in gradients]
    for w, g in zip(weights, gradients):
        w.grad = torch.tensor(g, dtype=one.dtype)
    total = nn.utils.clip_grad_norm_(weights, 1.0, norm, foreach=foreach)
    return total, [w.grad for w in weights]


LISTS = {
    "zero": [[0.0, 0.0]],
    "at the norm": [[1.0, 0.0]],
    "over": [[3.0, 4.0], [1.0, 1.0]],
    "under": [[0.1, 0.1]],
    "nan": [[NAN, 1.0]],
    "inf": [[INF, 1.0], [1.0, 1.0]],
    "none": [],
    "tiny": [[1e-30, 0.0]],
    "huge": [[1e30, 1e30]],
}
for norm, (name, gradients), foreach in itertools.product(
    (0.0, 1.0, 2.0, INF), LISTS.items(), (None, True, False)
):

    def call(one, gradients=gradients, norm=norm, foreach=foreach):
        return clip(gradients, norm, foreach, one)

    TABLE["clipping"].append(
        (f"{name}, norm {norm}, foreach={foreach}", call, (ONE,), ("float32", "bfloat16"))
    )


def average_weights(one, **settings):
    module = nn.Linear(2, 2)
    averaged = swa_utils.AveragedModel(module, **settings)
    for i in range(STEPS):
        nn.init.constant_(module.weight, float(i))
        averaged.update_parameters(module)
    return averaged.module.weight.detach()


TABLE["schedules"] += [
    ("AveragedModel", average_weights, (ONE,), ("float32",)),
    (
        "AveragedModel, EMA",
        lambda one: average_weights(one, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9)),
        (ONE,),
        ("float32",),
    ),
]
