"""What upstream's files say for the installed torch, and what patches make of them.

The YAML files and the headers come with the wheel, and a file that is added stands in its patch.
The functions in C++ and in TorchScript come out of the hunks of our series, which show them whole.
"""

import re
from pathlib import Path

import torchgen

from ..series import FUNCTIONS, NATIVE, SCRIPT, YAML, Refusal, files_added, files_of, git, named

PACKAGED = Path(torchgen.__file__).parent / "packaged"
TAGS = PACKAGED / "ATen/native/tags.yaml"
INCLUDE = PACKAGED.parents[1] / "torch" / "include"
JOINT, BOUNDS = (
    "v2.13.0/joint",
    "proposals/tensor-bounds",
)  # the hunks of these series show the functions whole
MANUAL = re.compile(
    r"(?ms)^(?:static )?(?:std::tuple<[^>\n]*>|(?:at::)?Tensor|bool) (\w+)\(.*?^}\n"
)
ASIDE = re.compile(r"(?m)^(?: *//.*|#include .*|)\n")  # comments and what a build needs
SCRIPTED = re.compile(r'(?ms)^( +)def (?:clamp_1|clamp_2|max|min)\(.*?(?=^\1def |^ *\)"|\Z)')
# A file that no wheel has is compiled, as far as a patch shows it, if it is one of these.
COMPILED = re.compile(r"aten/src/ATen/(native|native/cpu|functorch)/[^/]+\.cpp$")
KERNELS = "aten/src/ATen/native/cpu/"
# What stands around the functions that a patch adds to such a file;
# registrations of kernels follow them.
AROUND = {
    KERNELS: "namespace at::native { namespace { using namespace at::vec;\n%s\n}\n%s\n}",
    "aten/src/ATen/native/": "namespace at::native {\n%s\n%s\n}",
    "aten/src/ATen/functorch/": "TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) { using namespace at;\n%s\n%s\n}",
}
INCLUDED = """#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/native/cpu/Loops.h>
#include <torch/library.h>"""


def entries(text):
    """Those of derivatives.yaml or native_functions.yaml by signature, without
    comments. A parser takes long."""
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    blocks = re.split(r"^- (?=name: |func: )", text, flags=re.MULTILINE)[1:]
    return {re.match(r"\w+: (.*)", b)[1].strip(): f"- {b.rstrip()}\n" for b in blocks}


def section(patch, name):
    """The lines of a patch about one file."""
    about = rf"(?ms)^\+\+\+ b/{re.escape(name)}\n(.*?)(?=^diff |^--- [^\n]*\n\+\+\+ |\Z)"
    found = re.search(about, patch.read_text())
    return found[1].splitlines() if found else []


def hunks(patch, name, side):
    """The text of one file before (`-`) or after (`+`) a patch, as far as its hunks show it."""
    return "".join(line[1:] + "\n" for line in section(patch, name) if line[:1] in (" ", side))


def removes(patches, name):
    """Whether patches take away lines of a file, or change them, that no earlier one has added."""
    added = []
    for line in (line for patch in patches for line in section(patch, name)):
        if line.startswith("+"):
            added.append(line[1:])
        elif line.startswith("-"):
            if line[1:] not in added:
                return True
            added.remove(line[1:])
    return False


def additions(patches, name):
    """The lines of a file that patches add, in their order there, as a later one
    leaves those of an earlier."""
    known = []  # the file as far as hunks show it: (a line, whether it was added)
    for patch in patches:
        for hunk in re.split(r"(?m)^@@ .*\n", "\n".join(section(patch, name)) + "\n")[1:]:
            lines = [line for line in hunk.splitlines() if line[:1] in ("+", "-", " ")]
            old = [line[1:] for line in lines if line[0] != "+"]
            places = range(len(known) - len(old) + 1)
            here = (i for i in places if [text for text, _ in known[i : i + len(old)]] == old)
            start = next(here, len(known))
            quoted = iter(known[start : start + len(old)] or [(text, False) for text in old])
            new = []
            for line in lines:
                if line[0] == "+":
                    new.append((line[1:], True))
                elif line[0] == " ":
                    new.append(next(quoted))
                else:
                    next(quoted)
            known[start : start + len(old)] = new
    return [text for text, added in known if added]


def fragment(patches, name):
    """The lines that patches add to such a file, as a file of their own. New
    operators are declared elsewhere."""
    added = [a for a in additions(patches, name) if not a.startswith("#include <ATen/ops/")]
    includes = [line for line in added if line.startswith("#include")]
    registrations = [line for line in added if line.startswith("REGISTER_")]
    functions = [line for line in added if line not in includes + registrations]
    around = next(text for folder, text in AROUND.items() if name.startswith(folder))
    body = around % ("\n".join(functions), "\n".join(registrations))
    return "\n".join([INCLUDED, *includes, body])


def shown(name, release):
    """The functions of clamp in FunctionsManual.cpp or symbolic_script.cpp before any patch.

    No release changed those of TorchScript yet. Those of 2.14 in C++ give what our series for 2.13
    makes of them, which stands for them there.
    """
    if name == FUNCTIONS and named(BOUNDS).fits(release):
        first, *others = (hunks(patch, name, "-") for patch in named(BOUNDS).patches)
        includes = re.findall(r"(?m)^#include .*\n", "".join(others))
        return "".join([*includes, first])
    series = named(JOINT)
    side = "-" if name == SCRIPT or series.fits(release) else "+"
    return "\n".join(hunks(patch, name, side) for patch in series.patches)


def of_the_wheel(name):
    """Where it has a file of the source tree: formulas, templates, headers."""
    if name.startswith("tools/") or name == NATIVE:
        return PACKAGED / name.removeprefix("tools/").removeprefix("aten/src/")
    return INCLUDE / name.removeprefix("aten/src/")


def patched(directory, patches, release):
    """{name: text} of the files that say what gradients are, written under
    `directory`, with patches applied."""
    known = named(JOINT).fits(release) or named(BOUNDS).fits(release)
    if FUNCTIONS in files_of(*patches) and not known:
        raise Refusal(f"{FUNCTIONS} of {release} is not known here: build it.")
    texts = {name: shown(name, release) for name in (FUNCTIONS, SCRIPT)}
    for name in (YAML, NATIVE, *files_of(*patches)):
        if of_the_wheel(name).is_file() and not name.endswith(".py"):
            texts[name] = of_the_wheel(name).read_text()
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    new = [name for patch in patches for name in files_added(patch)]
    new = [name for name in new if COMPILED.match(name) or name.endswith(".h")]
    git(directory, "init", "--quiet")
    for patch in patches:
        if included := [f"--include={n}" for n in (*texts, *new) if n in files_of(patch)]:
            result = git(directory, "apply", *included, str(patch.resolve()))
            if result.returncode:
                raise Refusal(f"{patch.name} does not apply to torch {release}:\n{result.stderr}")
    after = {name: (directory / name).read_text() for name in (*texts, *new)}
    for name, functions in ((FUNCTIONS, MANUAL), (SCRIPT, SCRIPTED)):  # the rest is not compiled
        if ASIDE.sub("", functions.sub("", after[name])) != ASIDE.sub(
            "", functions.sub("", texts[name])
        ):
            raise Refusal(
                f"Only the functions of clamp in {name}, and those beside them, can be proved here."
            )
    if after[NATIVE] != texts[NATIVE]:
        for name in (n for n in files_of(*patches) if COMPILED.match(n) and n not in after):
            after[name] = fragment(patches, name)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(after[name])
    return after
