"""torchattacks: attacks on pictures with black and white pixels. Most clamp outside of the graph; margins clamp at 0."""

import torch
import torchattacks
from digests import show

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 4))
for parameter in model.parameters():  # quantised, so that two logits may be the same
    parameter.data = (6 * parameter.data).round()
images, labels = torch.randint(0, 3, (16, 3, 4, 4)) / 2, torch.arange(16) % 4
for name, keywords in {
    "FGSM": {},
    "PGD": {"steps": 4},
    "PGDL2": {"steps": 4},
    "MIFGSM": {"steps": 4},
    "CW": {"steps": 8, "c": 1},
    "EADL1": {"max_iterations": 10, "binary_search_steps": 2},
    "DeepFool": {"steps": 4},
    "UPGD": {"steps": 4, "loss": "margin"},
}.items():
    torch.manual_seed(0)
    show(name, getattr(torchattacks, name)(model, **keywords)(images, labels))
