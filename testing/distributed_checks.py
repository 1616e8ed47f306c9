"""The checks of test_distributed.py, which every process of a group runs;
each must pass on each rank."""

import datetime
import faulthandler
import os
import traceback
from functools import partial
from itertools import product

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import clampgrad
import clampgrad.nn
from oracle import CONVENTIONS, EXACT
from testing.comparing import BOUNDS, assert_same, eager, random_with_ties

PLACEMENTS = (Shard(0), Shard(1), Replicate())


def check(f, mesh, args, placements):
    """Forward and backward on DTensors, with no communication."""
    leaves = [distribute_tensor(a, mesh, [p]).requires_grad_() for a, p in zip(args, placements)]
    g = random_with_ties(8, 6, seed=9, nan=False).clamp(-9, 9)
    sharded = distribute_tensor(g, mesh, placements[:1])
    with CommDebugMode() as communication:
        y = f(*leaves)
        gradients = torch.autograd.grad(y, leaves, sharded)
    assert communication.get_total_counts() == 0, communication.get_comm_counts()
    assert isinstance(y, DTensor) and y.placements == (placements[0],)
    assert_same(y.detach().full_tensor(), f(*args))
    for actual, expected in zip(gradients, eager(f, args, g)):
        assert_same(actual.full_tensor(), expected)


def tensors(count, *shape):
    """Random tensors without infinities, because the order of their sum would matter."""
    return [random_with_ties(*shape, seed=i, nan=False).clamp(-9, 9) for i in range(count)]


def check_all(f, mesh, args, conventions=CONVENTIONS):
    """Every convention, with the arguments sharded by rows, sharded by columns, and replicated."""
    for convention in conventions:
        for placement in PLACEMENTS:
            check(partial(f, gradient=convention), mesh, args, [placement] * len(args))


def numbers_for_bounds(mesh):
    for name, bounds in BOUNDS.items():
        in_place = getattr(clampgrad, f"{name}_")
        check_all(partial(getattr(clampgrad, name), **bounds), mesh, [random_with_ties(8, 6)])
        check_all(
            lambda x, **more: in_place(x.clone(), **bounds, **more), mesh, [random_with_ties(8, 6)]
        )


def tensors_for_bounds(mesh):
    check_all(clampgrad.clamp, mesh, tensors(3, 8, 6))
    check_all(partial(clampgrad.clamp, max=1), mesh, tensors(2, 8, 6))  # and a number
    for f in (clampgrad.maximum, clampgrad.minimum, clampgrad.fmax, clampgrad.fmin):
        check_all(f, mesh, tensors(2, 8, 6), EXACT)


def a_replicated_bound_for_all_rows(mesh):
    """Its gradient is a sum over rows on several ranks: Partial, until it is read."""
    args = [*tensors(1, 8, 6), *tensors(1, 6)]
    for convention in CONVENTIONS:
        f = partial(clampgrad.clamp_min, gradient=convention)
        check(f, mesh, args, [Shard(0), Replicate()])


def operators_without_keywords(mesh):
    """The operators that PyTorch itself would carry."""
    operators = torch.ops.clampgrad
    for placement in PLACEMENTS:
        check(
            lambda x: operators.clamp_mingrad(x, 0, 1), mesh, [random_with_ties(8, 6)], [placement]
        )
        check(operators.clamp_mingrad, mesh, tensors(3, 8, 6), [placement] * 3)
        check(operators.maximum_mingrad, mesh, tensors(2, 8, 6), [placement] * 2)


def torchs_own_under_a_pin(mesh):
    (x,) = tensors(1, 8, 6)
    pins, functions = ("half", "straight_through"), (torch.clamp, torch.clamp_)
    for own, pin, placement in product(functions, pins, PLACEMENTS):
        leaf = distribute_tensor(x, mesh, [placement]).requires_grad_()
        with clampgrad.pin(pin):
            y = own(leaf * 1, 0, 1)
        (gradient,) = torch.autograd.grad(y, leaf, distribute_tensor(x, mesh, [placement]))
        clamp = partial(clampgrad.clamp, min=0, max=1, gradient=pin)
        assert_same(gradient.full_tensor(), eager(clamp, [x], x)[0])


def partial_sums_are_reduced_first(mesh):
    """As torch.clamp does: the clamp of a sum is not the sum of clamps."""
    x = torch.linspace(-1, 1, 48).reshape(8, 6)

    def summed():
        return DTensor.from_local(x, mesh, [Partial()]).requires_grad_()

    stock = torch.clamp(summed(), 0, 1)
    assert_same(stock.detach().full_tensor(), (x * mesh.size()).clamp(0, 1))
    for convention in CONVENTIONS:
        y = clampgrad.clamp(summed(), 0, 1, gradient=convention)
        assert y.placements == stock.placements
        assert_same(y.detach().full_tensor(), stock.detach().full_tensor())


# ---- A training step -----------------------------------------------------------------------------


class Model(torch.nn.Module):
    """Small integers all the way, so that no sum rounds and no order of summing matters."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.clamp = clampgrad.nn.Clamp(-8, 8, gradient="half")
        self.bound = torch.nn.Parameter(torch.full((8,), 4.0))
        generator = torch.Generator().manual_seed(0)
        for p in (*self.inner.parameters(), *self.outer.parameters()):
            p.data = torch.randint(-2, 3, p.shape, generator=generator).float()

    def forward(self, x):
        y = clampgrad.clamp(self.inner(x), -4, self.bound)
        return self.clamp(self.outer(y))


class InPlace(Model):
    def forward(self, x):
        y = clampgrad.clamp_(self.inner(x), -4, self.bound, gradient="inclusive")
        return clampgrad.clamp_(self.outer(y), -8, 8, gradient="half")


class Pinned(Model):
    @clampgrad.pin("half")
    def steps(self, x):
        return self.outer(self.inner(x).clamp_(-4, 4).clamp_max_(self.bound)).clamp_(-8, 8)

    def forward(self, x):
        return checkpoint(self.steps, x, use_reentrant=False)


def train(model, wrapped, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-6)
    for batch in data:
        optimizer.zero_grad()
        wrapped(batch).mean().backward()
        optimizer.step()


def check_training(mesh, wrap, Model=Model):
    generator = torch.Generator().manual_seed(1)
    data = torch.randint(-2, 3, (2, 8, 8), generator=generator).float()
    start, alone, model = Model(), Model(), Model()
    train(alone, alone, data)
    train(model, wrap(model), data.chunk(mesh.size(), dim=1)[mesh.get_rank()])
    for p, expected, before in zip(*(m.parameters() for m in (model, alone, start))):
        full = p.full_tensor() if isinstance(p, DTensor) else p
        assert_same(full.detach(), expected.detach())
        assert not torch.equal(full, before)  # or nothing was trained


def ddp_step(mesh):
    check_training(mesh, DistributedDataParallel)


def fsdp_step(mesh):
    check_training(mesh, lambda model: fully_shard(model, mesh=mesh))


def fsdp_offloaded_in_place(mesh):
    offload = CPUOffloadPolicy(pin_memory=False)
    for kind in (InPlace, Pinned):
        check_training(mesh, partial(fully_shard, mesh=mesh, offload_policy=offload), kind)


CHECKS = {
    f.__name__: f
    for f in (
        numbers_for_bounds,
        tensors_for_bounds,
        a_replicated_bound_for_all_rows,
        operators_without_keywords,
        torchs_own_under_a_pin,
        partial_sums_are_reduced_first,
        ddp_step,
        fsdp_step,
        fsdp_offloaded_in_place,
    )
}


def run(rank, world, folder):
    """Runs every check and writes its traceback, empty if it passed, to a file of its own."""
    faulthandler.enable()  # a crash says where
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)
    minute = datetime.timedelta(minutes=1)  # if one rank fails, the others must not wait long
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=minute)
    mesh = init_device_mesh("cpu", (world,))
    for name, check in CHECKS.items():
        try:
            check(mesh)
            report = ""
        except Exception:
            report = traceback.format_exc()
        (folder / f"{name}.{rank}").write_text(report)
        dist.barrier()
    dist.destroy_process_group()
    # Caches of DTensor's keep the group, and so gloo's threads. One of them that drops a tensor
    # while Python is being taken down aborts the process:
    # https://github.com/pytorch/pytorch/pull/179291
    os._exit(0)
