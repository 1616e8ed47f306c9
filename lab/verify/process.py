"""Gradients asked in processes of their own: python -m lab.verify.process
ANSWER TASK [LIBRARY [WORD...]]"""

import os
import sys
import tempfile

import torch

from ..series import ROOT, output_of
from . import gradients, opinfo, torchscript


def ask(task, *arguments):
    """What `main` answers, with no cache of compiled code and no pin."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", __name__, f"{scratch}/answer", task, *arguments]
        env = {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache", "CLAMPGRAD_GRADIENT": ""}
        output_of(command, f"the checks ({task}) broke off", cwd=ROOT, env=os.environ | env)
        return torch.load(f"{scratch}/answer")


def main(answer, task, library="", *words):
    """{key: rows}, {key: what it raises}, {key: names of what ran}, {key: what is saved}: at the
    points of the table, by backends of compilers too, or on the samples of operators."""
    if library:
        torch.ops.load_library(library)
    torch.set_num_threads(1)
    if task == "scripted":
        found = torchscript.executed(), {}, {}, {}
    elif task == "samples":
        found = opinfo.gradients(words)
    else:
        found = gradients.gradients()
        for backend in words:
            found[0].update(gradients.compiled(backend))
    torch.save(found, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
