"""The text that formulas are generated from for the installed torch, before and after a series.

derivatives.yaml comes with the wheel. FunctionsManual.cpp does not: its functions of clamp come out
of the hunks of v2.13.0/joint, which show them whole.
"""

import re
from pathlib import Path

import torchgen

from ..series import FUNCTIONS, NATIVE, YAML, Refusal, files_of, git, named

PACKAGED = Path(torchgen.__file__).parent / "packaged"
TAGS = PACKAGED / "ATen/native/tags.yaml"
WHOLE = "v2.13.0/joint"
MANUAL = re.compile(r"(?ms)^(?:std::tuple<[^>\n]*>|(?:at::)?Tensor) (\w+)\(.*?^}\n")


def entries(text):
    """Maps signatures to the entries of derivatives.yaml or native_functions.yaml, without
    comments. A regular expression does it, because a parser takes long."""
    text = re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
    blocks = re.split(r"^- (?=name: |func: )", text, flags=re.MULTILINE)[1:]
    return {re.match(r"\w+: (.*)", b)[1].strip(): f"- {b.rstrip()}\n" for b in blocks}


def section(patch, name):
    """Returns the lines of a patch about one file."""
    about = rf"(?ms)^\+\+\+ b/{re.escape(name)}\n(.*?)(?=^diff |^--- [^\n]*\n\+\+\+ |\Z)"
    match = re.search(about, patch.read_text())
    return match[1].splitlines() if match else []


def hunks(patch, name, side):
    """Returns one file before (`-`) or after (`+`) a patch, as far as its hunks show it."""
    return "".join(line[1:] + "\n" for line in section(patch, name) if line[:1] in (" ", side))


def stock_functions(release):
    """Returns the functions of clamp in FunctionsManual.cpp of a release. Those of 2.14 and later
    give what our series for 2.13 makes of them, which stands for them there."""
    series = named(WHOLE)
    side = "-" if series.fits(release) else "+"
    return "\n".join(hunks(patch, FUNCTIONS, side) for patch in series.patches)


def of_the_wheel(name):
    """Returns where the installed wheel has a file of the source tree: a formula or a header."""
    if name.startswith("tools/") or name == NATIVE:
        return PACKAGED / name.removeprefix("tools/").removeprefix("aten/src/")
    return PACKAGED.parents[1] / "torch/include" / name.removeprefix("aten/src/")


def apply_patches(directory, patches, release):
    """Returns {name: text} of YAML and FUNCTIONS with the patches applied; refuses what does not
    apply. Writes the files under `directory`."""
    texts = {YAML: of_the_wheel(YAML).read_text(), FUNCTIONS: stock_functions(release)}
    if FUNCTIONS in files_of(*patches) and not named(WHOLE).fits(release):
        raise Refusal(f"{FUNCTIONS} of {release} is not known here: build it.")
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    git(directory, "init", "--quiet")
    for patch in patches:
        if included := [f"--include={n}" for n in texts if n in files_of(patch)]:
            result = git(directory, "apply", *included, str(patch.resolve()))
            if result.returncode:
                raise Refusal(f"{patch.name} does not apply to torch {release}:\n{result.stderr}")
    return {name: (directory / name).read_text() for name in texts}
