"""Lightning: a Trainer that fits weights which are kept between -1 and 1, as some start."""

import logging
import warnings

import pytorch_lightning as lightning
import torch
from digests import compiled, show

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


class Binary(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randint(-2, 3, (8, 4)) / 2)
        self.objective = compiled(self.loss)

    def loss(self, x, y):
        return torch.nn.functional.mse_loss(x @ self.weight.clamp(-1, 1), y)

    def training_step(self, batch):
        return self.objective(*batch)

    def on_train_batch_end(self, outputs, batch, index):
        show(f"loss {index}", outputs["loss"].detach())

    def on_before_optimizer_step(self, optimizer):
        show(f"gradients {self.global_step}", self.weight.grad)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randn(32, 4))
lightning.Trainer(
    max_epochs=1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Binary(), torch.utils.data.DataLoader(data, batch_size=8))
