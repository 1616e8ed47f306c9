"""A model that tests change."""

from torch import nn


class Net(nn.Module):
    """A module used twice, one in a list, one with a hook, one of a derived class."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU6(), nn.ReLU(inplace=True))
        self.again = self.body[1]
        self.derived = type("Mine", (nn.ReLU6,), {})()
        self.head = nn.ModuleList([nn.Hardtanh(-2.0, 2.0)])

    def forward(self, x):
        return self.head[0](self.derived(self.again(self.body(x))))
