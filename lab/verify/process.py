"""The process that `verify` asks: python -m lab.verify.process ANSWER TASK [LIBRARY [OPERATOR...]]"""

import sys

import torch

from . import gradients, opinfo, torchscript


def main(answer, task, library="", *operators):
    if library:
        torch.ops.load_library(library)
    torch.set_num_threads(1)
    if task == "table":
        found, errors = gradients.gradients()
        found |= gradients.compiled("aot_eager")
        found = found, errors, *gradients.what_ran(errors)
    elif task == "inductor":
        found = gradients.compiled("inductor")
    elif task == "scripted":
        found = torchscript.executed()
    else:
        found = opinfo.gradients(operators, check=task == "checked samples")
    torch.save(found, answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
