"""The process that `verify` asks: python -m lab.verify.process TASK, a JSON on stdin and one on stdout.

What is proved is loaded while torch is imported: the modules of a patch in place of torch's own, and
the library with its operators just before the first of them, which may name these.
"""

import ctypes
import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path


class Patched(MetaPathFinder):
    """Modules of torch from other files than the installed ones."""

    def __init__(self, files: dict[str, str], library: str | None) -> None:
        self.files, self.library = files, library
        torch = find_spec("torch")
        assert torch and torch.origin
        self.torch = Path(torch.origin).parent

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        if name not in self.files:
            return None
        self.load()
        package = self.files[name].endswith("__init__.py")
        places = [str(self.torch.joinpath(*name.split(".")[1:]))]
        return spec_from_file_location(
            name, self.files[name], submodule_search_locations=places if package else None
        )

    def load(self) -> None:
        if self.library:
            ctypes.CDLL(self.library)
            self.library = None


def main() -> None:
    question = json.load(sys.stdin)
    patched = Patched(question["modules"], question["library"])
    sys.meta_path.insert(0, patched)
    import torch

    patched.load()
    torch.set_num_threads(1)
    if sys.argv[1] == "opinfo":
        from . import samples

        result = samples.opinfo(question["operators"], question["oracle"], question["check"])
    else:
        from . import checks

        result = {"gradients": checks.gradients, "inductor": checks.inductor}[sys.argv[1]]()
        result |= checks.nodes()
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
