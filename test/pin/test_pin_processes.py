"""`clampgrad run` pins the processes that a program starts, whoever starts them."""

import importlib.util

import pytest

from clampgrad import implementation
from testing.slopes import STOCK_SLOPES

pytestmark = pytest.mark.slow


WORK = """
import multiprocessing, os, subprocess, sys
import torch

def slope():
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(torch.clamp(x, 0, 1), x)[0].item()

def say(*rank):
    sys.stdout.write(f"{slope()}\\n")  # at once, where two processes write
    sys.stdout.flush()

class Slopes(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, i):
        return slope()

def by_multiprocessing(method):
    process = multiprocessing.get_context(method).Process(target=say)
    process.start()
    process.join()

def by_loader(method):
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Slopes(), num_workers=1, multiprocessing_context=method)
    print(*(batch.item() for batch in loader))

ANOTHER = [sys.executable, "-c", "import work; work.say()"]

if __name__ == "__main__":
    {}
"""

BODIES = {
    "spawn": "by_multiprocessing('spawn')",
    "forkserver": "by_multiprocessing('forkserver')",
    "fork": "by_multiprocessing('fork')",
    "torch.multiprocessing.spawn": "torch.multiprocessing.spawn(say, nprocs=1)",
    "DataLoader, fork": "by_loader('fork')",
    "DataLoader, spawn": "by_loader('spawn')",
    "subprocess": "subprocess.run(ANOTHER)",
    "exec": "os.execv(sys.executable, ANOTHER)",
}


@pytest.fixture
def run(program, tmp_path):
    def run(*command, body="say()", **variables):
        (tmp_path / "work.py").write_text(WORK.replace("{}", body, 1))
        return program(*command, **variables)

    return run


PINNED = ["clampgrad", "run", "--gradient", "half"]


@pytest.mark.parametrize("way", BODIES)
def test_what_a_program_starts(run, way):
    done = run("-m", *PINNED, "work.py", body=BODIES[way])
    assert (done.returncode, done.stdout.split()) == (0, ["0.5"]), done.stderr


# A program of Lightning's command line, and a test of pytest's.
FIT = """
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.cli import LightningCLI

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
    def training_step(self, batch):
        return self.weight.clamp(0, 1).sum()
    def on_after_backward(self):
        print(self.weight.grad.item(), flush=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)
    def train_dataloader(self):
        return torch.utils.data.DataLoader([0])

if __name__ == "__main__":
    LightningCLI(Model)
"""
TEST = "import work\ndef test():\n    work.say()\n"
QUIET = (
    "fit --trainer.accelerator cpu --trainer.devices 1 --trainer.max_epochs 1 --trainer.logger "
    "false --trainer.enable_checkpointing false --trainer.enable_progress_bar false"
)
ACCELERATE = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --main_process_port 0"
# The launcher, its program, and how many processes print their slope.
LAUNCHERS = {
    "torchrun": ("-m torch.distributed.run --standalone --nproc-per-node 2", "work.py", 2),
    "accelerate": (ACCELERATE, "work.py", 2),
    "python -m": ("", "-m work", 1),
    "pytest": ("", "-m pytest -q -s -p no:cacheprovider test_slope.py", 1),
    "Lightning CLI": ("", f"fit.py {QUIET}", 1),
}
NEEDS = {"accelerate": ["accelerate"], "Lightning CLI": ["pytorch_lightning", "jsonargparse"]}
WAYS = [
    (launcher, way)
    for launcher, (words, *_) in LAUNCHERS.items()
    for way in ("variable", "run outside", "run inside")
    if words or way != "run inside"
]


@pytest.mark.parametrize("launcher, way", WAYS)
def test_launchers(run, tmp_path, launcher, way):
    missing = [n for n in NEEDS.get(launcher, []) if not importlib.util.find_spec(n)]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)}: nox -s programs has them")
    words, program, processes = LAUNCHERS[launcher]
    words, program = words.split(), program.split()
    (tmp_path / "test_slope.py").write_text(TEST)
    (tmp_path / "fit.py").write_text(FIT)
    if way == "variable":
        done = run(*words, *program, CLAMPGRAD_GRADIENT="half")
    elif way == "run outside":
        done = run("-m", *PINNED, *words, *program)
    else:
        done = run(*words, "-m", *PINNED, *program)
    slopes = [word for word in done.stdout.split() if word in ("0.0", "0.5", "1.0")]
    assert (done.returncode, slopes) == (0, ["0.5"] * processes), done.stdout + done.stderr


def test_a_program_that_clears_the_environment(run):
    """docs/support.md: that is how the pin is passed on."""
    body = "import os; del os.environ['CLAMPGRAD_GRADIENT']; subprocess.run(ANOTHER)"
    done = run("-m", *PINNED, "work.py", body=body)
    assert [*map(float, done.stdout.split())] == STOCK_SLOPES[:1]


def test_where_nothing_tells_the_processes(run):
    """It is an error, because without torch's entry points the processes would not be pinned."""
    done = run("-m", *PINNED, "work.py", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 2 and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in done.stderr


@pytest.mark.parametrize("inner, slope", [("half", "0.5"), ("inclusive", "1.0")])
def test_a_run_inside_a_run(run, inner, slope):
    done = run("-m", *PINNED, "-m", "clampgrad", "run", "--gradient", inner, "work.py")
    assert done.stdout.split() == [slope], done.stderr


def test_every_process_says_what_it_pinned_and_reached(run):
    done = run("-m", *PINNED, "-v", "work.py", body=BODIES["subprocess"])
    assert done.stdout.split() == ["0.5"]
    first, second, third, fourth = done.stderr.splitlines()
    pinned = f"pinned to half ({implementation} implementation, torch 2."
    assert pinned in first and pinned in second
    assert "the pin reached 1 call: clamp 1" in third  # the subprocess, which ends first
    assert "warning: the pin reached no call" in fourth
