"""Upstream's text for the installed torch, patched, and the C++ of the family made from it."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import torchgen

from ..apply import files_of
from ..series import Refusal, named
from ..tree import FUNCTIONS, YAML, git
from .restated import CLAMP_JVP, SCALAR_SIGNATURE

PACKAGED = Path(torchgen.__file__).parent / "packaged"
FAMILY = re.compile(r"(_foreach_)?(clamp|maximum|minimum|fmax|fmin)(_|$)")
MANUAL = ("clamp_backward", "clamp_backward_min_max", "clamp_jvp")


@dataclass
class Code:
    """Generated C++ by name, and the functions of FunctionsManual.cpp where their text is known."""

    structs: dict[str, str]
    nodes: dict[str, str]
    node_prelude: str
    kernels: dict[str, str]
    kernel_prelude: str
    registrations: dict[str, str]
    manual: str


def manual_functions(text: str) -> str:
    """The definitions of the clamp functions in a FunctionsManual.cpp, whole."""
    pattern = r"^(?:std::tuple<at::Tensor, at::Tensor>|(?:at::)?Tensor) (?:%s)\(\n.*?^}\n"
    return "\n".join(re.findall(pattern % "|".join(MANUAL), text, re.MULTILINE | re.DOTALL))


def text_of(patch: Path, name: str, side: str) -> str:
    """The text of one file before (`-`) or after (`+`) a patch, as far as its hunks show it."""
    section = re.search(
        rf"^--- a/{re.escape(name)}\n(.*?)(?=^diff |\Z)", patch.read_text(), re.M | re.S
    )
    lines = section.group(1).splitlines()[1:] if section else []
    return "".join(line[1:] + "\n" for line in lines if line[:1] in (" ", side))


def manual_text(release: str, source: Path | None) -> str:
    """The clamp functions of FunctionsManual.cpp: from a checkout, or out of the hunks of a series.

    From 2.14 on, upstream's functions have the rule of that series. What the series makes of them
    stands for them there, but for clamp_jvp.
    """
    if source:
        return (source / FUNCTIONS).read_text()
    series = named("v2.13.0")
    old = series.fits(release)
    scalar, tensors = (text_of(p, FUNCTIONS, "-" if old else "+") for p in series.patches[:2])
    if not old:
        tensors = tensors[: tensors.index("at::Tensor clamp_jvp(")] + CLAMP_JVP
    return SCALAR_SIGNATURE + scalar + "\n" + tensors


def patched_text(directory: Path, patches: list[Path], release: str, source: Path | None) -> str:
    """Patches derivatives.yaml under `directory`; returns the patched clamp functions."""
    tree = directory / "tree"
    manual = manual_text(release, source)
    for name, text in (
        (YAML, (PACKAGED / "autograd/derivatives.yaml").read_text()),
        (FUNCTIONS, manual),
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    git(tree, "init", "--quiet")
    for patch in patches:
        if not patch.is_file():
            raise Refusal(f"There is no {patch}.")
        touched = files_of(patch)
        if FUNCTIONS in touched and not source and not named("v2.13.0").fits(release):
            raise Refusal(
                f"{patch.name} changes {FUNCTIONS}: give a checkout of {release}, --source."
            )
        included = [f"--include={name}" for name in (YAML, FUNCTIONS) if name in touched]
        if not included:
            continue
        result = git(tree, "apply", *included, str(patch.resolve()))
        if result.returncode:
            raise Refusal(
                f"{patch.name} does not apply to torch {release}:\n{result.stderr.strip()}"
            )
    after = (tree / FUNCTIONS).read_text()
    functions = manual_functions(after)
    if source and after.replace(functions, "") != manual.replace(manual_functions(manual), ""):
        raise Refusal(f"Only {', '.join(MANUAL)} of {FUNCTIONS} can be proved here.")
    return functions


def generated(directory: Path, manual: str) -> Code:
    """Runs the installed torchgen on the (patched) derivatives.yaml and takes its output apart."""
    config, out = directory / "autograd", directory / "out"
    copytree(PACKAGED / "autograd", config)
    (config / "derivatives.yaml").write_text((directory / "tree" / YAML).read_text())
    native = PACKAGED / "ATen/native"
    command = [sys.executable, "-m", "torchgen.packaged.autograd.gen_autograd"]
    arguments = [native / "native_functions.yaml", native / "tags.yaml", out, config]
    result = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        last = result.stderr.strip().splitlines()[-6:]
        raise Refusal("torchgen does not take the patched derivatives.yaml:\n" + "\n".join(last))
    header = (out / "Functions.h").read_text()
    structs = re.findall(
        r"^struct TORCH_API (\w+) (: public \w+ \{)\n#endif\n(.*?^};)", header, re.M | re.S
    )
    if not structs:
        raise Refusal("torchgen's Functions.h has no form that is known here.")
    node_prelude, *parts = re.split(
        r"^(?=static variable_list \w+_apply_functional\()",
        (out / "Functions.cpp").read_text(),
        flags=re.M,
    )
    nodes = {p[len("static variable_list ") : p.index("_apply_functional")]: p for p in parts}
    nodes = {name: re.sub(r"\n} // namespace.*\Z", "", p, flags=re.S) for name, p in nodes.items()}
    everything = (out / "VariableTypeEverything.cpp").read_text()
    kernels = re.findall(
        r"^((?!TORCH)[\w:<>&,. ]+? (\w+)\(c10::DispatchKeySet ks.*?^}\n)", everything, re.M | re.S
    )
    registrations = re.findall(r'm\.impl\("([^"]+)",\s*TORCH_FN\(VariableType::(\w+)\)', everything)
    return Code(
        {name: f"struct {name} {base}\n{body}\n" for name, base, body in structs},
        nodes,
        node_prelude,
        {name: text for text, name in kernels},
        everything[: everything.index("namespace torch::autograd")],
        {kernel: operator for operator, kernel in registrations},
        manual,
    )


def differences(a: Code, b: Code) -> set[str]:
    """Names of the generated kernels and nodes that are not the same text."""
    pairs = ((a.kernels, b.kernels), (a.nodes, b.nodes), (a.structs, b.structs))
    return {n for x, y in pairs for n in x.keys() | y.keys() if x.get(n) != y.get(n)}
