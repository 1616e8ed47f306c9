"""Many threads at once, forward and backward, each with its own convention."""

from concurrent.futures import ThreadPoolExecutor

import torch

import clampgrad
from common import assert_same, tied
from oracle import CONVENTIONS, gradient_of_x


def test_threads_do_not_disturb_each_other():
    shared = tied(5000)
    g = torch.ones_like(shared)
    expected = {c: gradient_of_x(c, shared, g, 0, 1) for c in CONVENTIONS}

    def work(i):
        convention = CONVENTIONS[i % len(CONVENTIONS)]
        for _ in range(20):
            leaf = shared.detach().requires_grad_()
            y = clampgrad.clamp(leaf, 0, 1, gradient=convention)
            y.backward(g)
            assert_same(leaf.grad, expected[convention], convention)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(4 * len(CONVENTIONS))))


def test_backward_in_another_thread():
    x = tied(5000).requires_grad_()
    y = clampgrad.clamp(x, 0, 1, gradient="half")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(y.backward, torch.ones_like(x)).result()
    assert_same(x.grad, gradient_of_x("half", x.detach(), torch.ones(5000), 0, 1))
