"""torchdiffeq: a neural ODE whose state is kept in a box, differentiated through and by the adjoint."""

import torch
from digests import step
from torchdiffeq import odeint, odeint_adjoint


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, t, y):
        return self.linear(y.clamp(0, 1)) - y


field = Field()
start = torch.tensor([[0.0, 1.0, 0.5, 0.25], [1.0, 1.0, 0.0, 0.0]])
for solve in (odeint, odeint_adjoint):
    y0 = start.clone().requires_grad_()
    loss = solve(field, y0, torch.tensor([0.0, 0.5]), method="rk4")[-1].square().sum()
    step(loss, [y0, *field.parameters()])
