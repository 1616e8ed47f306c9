"""What upstream's files say for the installed torch, and what patches make of them.

The YAML files and the headers come with the wheel, and a file that is added stands in its patch. The functions in C++
and in TorchScript come out of the hunks of our series, which show them whole.
"""

import re
from pathlib import Path

import torchgen

from ..series import FUNCTIONS, NATIVE, SCRIPT, YAML, Refusal, files_added, files_of, git, named

PACKAGED = Path(torchgen.__file__).parent / "packaged"
INCLUDE = PACKAGED.parents[1] / "torch" / "include"
JOINT = "v2.13.0/joint"  # the series whose hunks show the functions whole
MANUAL = re.compile(
    r"^(?:std::tuple<at::Tensor, at::Tensor>|(?:at::)?Tensor) (clamp_\w+)\(\n.*?^}\n", re.M | re.S
)
SCRIPTED = re.compile(
    r'^( +)def (?P<name>clamp_1|clamp_2|max|min)\(.*?(?=^\1def |^ *\)"|\Z)', re.M | re.S
)
# A file of aten/ that no wheel has is compiled, as far as a patch shows it, if it is one of these.
COMPILED = re.compile(r"aten/src/ATen/((native|native/cpu|functorch)/[^/]+\.cpp|.*\.h)$")
# What stands around the lines that a patch adds to a file of aten/ which no wheel has: functions, then registrations.
IN_NATIVE = """#include <ATen/core/Tensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/BinaryOps.h>
{includes}
namespace at::native {{
{functions}
}}
"""
AROUND = {
    "aten/src/ATen/native/cpu/": """#include <ATen/Dispatch.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/cpu/Loops.h>
namespace at::native {{ namespace {{ using namespace at::vec;
{functions}
}}
{registrations}
}}
""",
    "aten/src/ATen/native/": "#define TORCH_ASSERT_ONLY_METHOD_OPERATORS\n" + IN_NATIVE,
    "aten/src/ATen/functorch/": """#include <ATen/ATen.h>
#include <torch/library.h>
namespace at::functorch {{ TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {{
{functions}
}} }}
""",
}


def entries(text):
    """Those of derivatives.yaml or native_functions.yaml by signature, without comments. A parser takes long."""
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    blocks = re.split(r"^- (?=name: |func: )", text, flags=re.MULTILINE)[1:]
    return {
        block.partition("\n")[0].partition(":")[2].strip(): f"- {block.rstrip()}\n"
        for block in blocks
    }


def section(patch, name):
    """The lines of a patch about one file."""
    found = re.search(
        rf"^\+\+\+ b/{re.escape(name)}\n(.*?)(?=^diff |\Z)", patch.read_text(), re.M | re.S
    )
    return found[1].splitlines() if found else []


def hunks(patch, name, side):
    """The text of one file before (`-`) or after (`+`) a patch, as far as its hunks show it."""
    return "".join(line[1:] + "\n" for line in section(patch, name) if line[:1] in (" ", side))


def fragment(patch, name):
    """The lines that a patch adds to such a file, as a file of their own."""
    around = next((text for folder, text in AROUND.items() if name.startswith(folder)), "")
    added = [line[1:] for line in section(patch, name) if line.startswith("+")]
    includes = [line for line in added if line.startswith("#include")]
    registrations = [line for line in added if line.startswith("REGISTER_")]
    functions = [line for line in added if line not in includes + registrations]
    parts = {"includes": includes, "registrations": registrations, "functions": functions}
    return around.format(**{part: "\n".join(lines) for part, lines in parts.items()})


def manual_text(release):
    """FunctionsManual.cpp before any patch, its clamp functions.

    From 2.14 on, upstream's functions give what our series for 2.13 makes of them, which stands for them there.
    """
    series = named(JOINT)
    side = "-" if series.fits(release) else "+"
    return "\n".join(hunks(patch, FUNCTIONS, side) for patch in series.patches)


def script_text():
    """symbolic_script.cpp before any patch, its functions, which no release changed yet."""
    return "".join(hunks(patch, SCRIPT, "-") for patch in named(JOINT).patches)


def of_the_wheel(name):
    """Where it has a file of the source tree: formulas, templates, headers."""
    if name.startswith("tools/") or name == NATIVE:
        return PACKAGED / name.removeprefix("tools/").removeprefix("aten/src/")
    return INCLUDE / name.removeprefix("aten/src/")


def patched(directory, patches, release):
    """{name: text} of the files that say what gradients are, written under `directory`, with patches applied."""
    touched = files_of(*patches)
    whole = [n for n in touched if not n.endswith(".py") and of_the_wheel(n).is_file()]
    texts = {name: of_the_wheel(name).read_text() for name in (YAML, NATIVE, *whole)}
    texts |= {FUNCTIONS: manual_text(release), SCRIPT: script_text()}
    new = [n for patch in patches for n in files_added(patch) if COMPILED.match(n)]
    if FUNCTIONS in touched and not named(JOINT).fits(release):
        raise Refusal(f"{FUNCTIONS} of {release} is not known here: build it.")
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    git(directory, "init", "--quiet")
    for patch in patches:
        if included := [f"--include={n}" for n in (*texts, *new) if n in files_of(patch)]:
            result = git(directory, "apply", *included, str(patch.resolve()))
            if result.returncode:
                error = result.stderr.strip()
                raise Refusal(f"{patch.name} does not apply to torch {release}:\n{error}")
    after = {name: (directory / name).read_text() for name in (*texts, *new)}
    for name, functions in ((FUNCTIONS, MANUAL), (SCRIPT, SCRIPTED)):
        if functions.sub("", after[name]) != functions.sub("", texts[name]):
            raise Refusal(f"Only the functions of clamp in {name} can be proved here.")
    if after[NATIVE] != texts[NATIVE]:
        after |= {
            name: fragment(patch, name)
            for patch in patches
            for name in files_of(patch)
            if COMPILED.match(name) and name not in after
        }
    return after
