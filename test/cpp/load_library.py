"""libclampgrad alone, loaded into Python: torch.ops.clampgrad is there and follows the table.

PYTHONPATH=ROOT python load_library.py LIBRARY
"""

import sys

# Not to be found by accident: the library must do without the package.
sys.modules["clampgrad"] = None

import torch  # noqa: E402

from oracle import CONVENTIONS, gradient_of_x  # noqa: E402

torch.ops.load_library(sys.argv[1])

x = torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, torch.nan])
g = torch.tensor([1.0, -1.0, 2.0, 3.0, -4.0, 5.0])
for convention in CONVENTIONS:
    leaf = x.clone().requires_grad_()
    torch.ops.clampgrad.clamp(leaf, 0, 1, gradient=convention).backward(g)
    expected = gradient_of_x(convention, x, g, 0, 1)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=0, equal_nan=True)

x, y = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
torch.ops.clampgrad.maximum(x, y).sum().backward()
assert x.grad.tolist() == y.grad.tolist() == [0.5, 0.5]

slope = torch.func.vmap(torch.func.grad(lambda x: torch.ops.clampgrad.clamp(x, 0, 1)))
assert slope(torch.tensor([0.0, 0.5, 1.0])).tolist() == [0, 1, 0]
