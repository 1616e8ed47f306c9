"""clampgrad run: a program under a pin, without editing it."""

import argparse
import os

from clampgrad._contract.table import ALIASES, CONVENTIONS
from clampgrad._pin.pin import set_pin_in_words
from clampgrad.cli import program

# torch's variable: with 0, `import torch` calls no entry points, and so not ours in a new process.
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        "clampgrad run",
        description="Run a program, and the processes that it starts, with the gradient of "
        "torch.clamp and its family pinned.",
        usage=f"%(prog)s [-h] --gradient NAME [--maximize] [-v] {program.USAGE}",
        allow_abbrev=False,
    )
    names = ", ".join(CONVENTIONS)
    parser.add_argument(
        "--gradient",
        required=True,
        metavar="NAME",
        help=f"one of {names}, an alias ({', '.join(ALIASES)}), or installed: what the installed "
        "torch does",
    )
    parser.add_argument(
        "--maximize",
        action="store_true",
        help="the program maximises its loss (with_grad and restoring)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="say on stderr what is pinned and, in the end, how many calls the pin reached, in "
        "each process",
    )
    options, user_program = program.parse(parser, arguments)
    if os.environ.get(AUTOLOAD) == "0":
        parser.error(f"{AUTOLOAD}=0 keeps the pin from processes that the program starts: unset it")
    words = options.gradient + ", maximize" * options.maximize
    if options.verbose:
        os.environ["CLAMPGRAD_VERBOSE"] = "1"
    try:
        set_pin_in_words(words)
    except (ValueError, RuntimeError) as error:
        parser.error(str(error).splitlines()[0])
    # The processes that the program starts inherit the variable, and those that fork, the pin. The
    # pin stays on: threads may go on when the program has ended.
    os.environ["CLAMPGRAD_GRADIENT"] = words
    user_program.run()
