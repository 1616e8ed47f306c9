"""foolbox: gradient attacks through its own tensors, which clip outside of the graph."""

import foolbox
import torch
from digests import show

model = torch.nn.Sequential(
    torch.nn.Flatten(), torch.nn.Linear(48, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
)
attacked = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device="cpu")
images, labels = torch.randint(0, 3, (4, 3, 4, 4)) / 2, torch.tensor([0, 1, 2, 3])
for attack in (
    foolbox.attacks.FGSM(),
    foolbox.attacks.LinfPGD(steps=4, random_start=False),
    foolbox.attacks.L2PGD(steps=4, random_start=False),
    foolbox.attacks.DDNAttack(steps=4),
    foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=2, steps=4),
):
    _, clipped, _ = attack(attacked, images, labels, epsilons=0.3)
    show(type(attack).__name__, clipped)
