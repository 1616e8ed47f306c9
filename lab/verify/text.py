"""What upstream's files say for the installed torch, and what patches make of them.

The two YAML files and the headers come with the wheel, and a file that is added stands in its patch. The functions in C++ and in TorchScript come from a checkout, or out of the hunks of our series,
which show them whole.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torchgen

from ..series import FUNCTIONS, NATIVE, SCRIPT, YAML, Refusal, files_added, files_of, git, named

PACKAGED = Path(torchgen.__file__).parent / "packaged"
INCLUDE = PACKAGED.parents[1] / "torch" / "include"
MANUAL = ("clamp_backward", "clamp_backward_min_max", "clamp_jvp")
JOINT = "v2.13.0/joint"  # the series whose hunks show the functions whole
SCRIPTED = ("clamp_1", "clamp_2", "max", "min")
Functions = list[tuple[str, str]]  # names, which may be overloaded, and definitions


@dataclass
class Text:
    yaml: str
    manual: Functions
    script: Functions
    native: str = ""  # native_functions.yaml
    added: dict[str, str] = field(default_factory=dict)  # files of aten/, where operators are added
    headers: set[str] = field(default_factory=set)  # of torch/csrc and aten/ that a patch changes


def manual_functions(text: str) -> Functions:
    """The definitions of the clamp functions in a FunctionsManual.cpp."""
    names = "|".join(MANUAL)
    pattern = rf"^(?:std::tuple<at::Tensor, at::Tensor>|(?:at::)?Tensor) ({names})\(\n.*?^}}\n"
    found = re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    return [(m[1], m[0]) for m in found]


def script_functions(text: str) -> Functions:
    """The definitions of the same functions in a symbolic_script.cpp."""
    names = "|".join(SCRIPTED)
    pattern = rf'^( +)def ({names})\(.*?(?=^\1def |^ *\)"|\Z)'
    return [(m[2], m[0]) for m in re.finditer(pattern, text, re.MULTILINE | re.DOTALL)]


def hunks(patch: Path, name: str, side: str) -> str:
    """The text of one file before (`-`) or after (`+`) a patch, as far as its hunks show it."""
    section = re.search(
        rf"^--- a/{re.escape(name)}\n(.*?)(?=^diff |\Z)", patch.read_text(), re.M | re.S
    )
    lines = section.group(1).splitlines()[1:] if section else []
    return "".join(line[1:] + "\n" for line in lines if line[:1] in (" ", side))


# What stands around the lines that a patch adds to a file of aten/ which no wheel has.
AROUND = {
    "aten/src/ATen/native/cpu/": """#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/BinaryOps.h>
#include <ATen/Dispatch.h>
#include <ATen/native/cpu/Loops.h>
namespace at::native {{ namespace {{ using namespace at::vec;
{0}
}}
{1}
}}
""",
    "aten/src/ATen/native/": """#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/BinaryOps.h>
{2}
namespace at::native {{
{0}
}}
""",
    "aten/src/ATen/functorch/": """#include <ATen/ATen.h>
#include <torch/library.h>
namespace at::functorch {{ TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {{
{0}
}} }}
""",
}


def fragment(patch: Path, name: str) -> str:
    """The lines that a patch adds to such a file, as one of their own: functions, then registrations."""
    around = next((text for folder, text in AROUND.items() if name.startswith(folder)), "")
    section = re.search(
        rf"^\+\+\+ b/{re.escape(name)}\n(.*?)(?=^diff |\Z)", patch.read_text(), re.M | re.S
    )
    assert section
    kinds = (r"^\+(?!#include|REGISTER_)(.*)", r"^\+(REGISTER_.*)", r"^\+(#include.*)")
    return around.format(*("\n".join(re.findall(kind, section[1], re.M)) for kind in kinds))


def manual_text(release: str, source: Path | None) -> str:
    """FunctionsManual.cpp before any patch, at least its clamp functions.

    From 2.14 on, upstream's functions give what our series for 2.13 makes of them, which stands for
    them there.
    """
    if source:
        return (source / FUNCTIONS).read_text()
    series = named(JOINT)
    old = series.fits(release)
    showing = [p for p in series.patches if FUNCTIONS in files_of(p)]
    return "\n".join(hunks(p, FUNCTIONS, "-" if old else "+") for p in showing)


def script_text(source: Path | None) -> str:
    """symbolic_script.cpp before any patch, at least its functions, which no release changed yet."""
    if source:
        return (source / SCRIPT).read_text()
    (patch,) = (p for p in named(JOINT).patches if SCRIPT in files_of(p))
    return hunks(patch, SCRIPT, "-")


def patched(directory: Path, patches: list[Path], release: str, source: Path | None) -> Text:
    """Applies patches, under `directory`, to the files in which gradients are said."""
    before = {
        YAML: (PACKAGED / "autograd/derivatives.yaml").read_text(),
        NATIVE: (PACKAGED / "ATen/native/native_functions.yaml").read_text(),
        FUNCTIONS: manual_text(release, source),
        SCRIPT: script_text(source),
    }
    every = files_of(*patches)
    headers = [n for n in every if n.endswith(".h") and of_the_wheel(n).is_file()]
    before |= {name: of_the_wheel(name).read_text() for name in headers}
    fragments = {
        name: fragment(patch, name)
        for patch in patches
        for name in files_of(patch)
        if name.startswith("aten/") and name.endswith(".cpp") and name not in files_added(patch)
    }
    new = [n for patch in patches for n in files_added(patch) if n.startswith("aten/")]
    for name, text in before.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    git(directory, "init", "--quiet")
    for patch in patches:
        touched = files_of(patch)
        if FUNCTIONS in touched and not source and not named(JOINT).fits(release):
            raise Refusal(
                f"{patch.name} changes {FUNCTIONS}: give a checkout of {release}, --source."
            )
        included = [f"--include={n}" for n in (*before, *new) if n in touched]
        if not included:
            continue
        result = git(directory, "apply", *included, str(patch.resolve()))
        if result.returncode:
            raise Refusal(
                f"{patch.name} does not apply to torch {release}:\n{result.stderr.strip()}"
            )
    after = {name: (directory / name).read_text() for name in before}
    for name, functions in ((FUNCTIONS, manual_functions), (SCRIPT, script_functions)):
        if rest(after[name], functions) != rest(before[name], functions):
            known = ", ".join(dict.fromkeys(n for n, _ in functions(before[name])))
            raise Refusal(f"Only {known} of {name} can be proved here.")
    return Text(
        after[YAML],
        manual_functions(after[FUNCTIONS]),
        script_functions(after[SCRIPT]),
        after[NATIVE],
        {n: (directory / n).read_text() for n in new} | fragments
        if after[NATIVE] != before[NATIVE]
        else {},
        {name for name in headers if after[name] != before[name]},
    )


def of_the_wheel(name: str) -> Path:
    """Where it has a header."""
    return INCLUDE / name.removeprefix("aten/src/")


def rest(text: str, functions: Callable[[str], Functions]) -> str:
    """A file without the functions that are read out of it."""
    for _, function in functions(text):
        text = text.replace(function, "")
    return text
