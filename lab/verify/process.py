"""The process that `verify` asks: python -m lab.verify.process TASK, a JSON on stdin and one on stdout."""

import json
import sys

import torch


def main() -> None:
    question = json.load(sys.stdin)
    if library := question.pop("library"):
        torch.ops.load_library(library)
    torch.set_num_threads(1)
    if sys.argv[1] == "opinfo":
        from . import samples

        result = samples.opinfo(**question)
    else:
        from . import checks

        result = getattr(checks, sys.argv[1])() | checks.nodes()
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
