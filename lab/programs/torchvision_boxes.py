"""torchvision: boxes fitted by its IoU losses. Their corners tie, and every release shares the gradient of a tie."""

import torch
from digests import compiled, show
from torchvision.ops import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss

target = torch.tensor([[0.0, 0, 4, 4], [4, 4, 8, 8], [0, 4, 4, 8], [2, 2, 6, 6]])
for loss in (generalized_box_iou_loss, distance_box_iou_loss, complete_box_iou_loss):
    boxes = torch.tensor(
        [[4.0, 0, 8, 4], [4, 4, 8, 9], [1, 0, 3, 4], [2, 2, 6, 6]]
    ).requires_grad_()
    objective = compiled(loss)
    for i in range(2):
        (gradient,) = torch.autograd.grad(objective(boxes, target, reduction="sum"), boxes)
        show(f"{loss.__name__} {i}", gradient)
        boxes = (boxes - 0.5 * gradient).detach().requires_grad_()
