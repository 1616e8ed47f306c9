"""The C++ that the installed torchgen makes of a derivatives.yaml, taken apart."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

from ..series import Refusal, output_of
from .text import PACKAGED, Text

FAMILY = re.compile(r"(_foreach_)?(clamp|maximum|minimum|fmax|fmin)(_|$)")


@dataclass
class Code:
    """Generated C++ by name, and the functions of FunctionsManual.cpp that it calls."""

    structs: dict[str, str]
    nodes: dict[str, str]
    node_prelude: str
    kernels: dict[str, str]
    kernel_prelude: str
    registrations: dict[str, str]
    manual: str


def generated(directory: Path, text: Text) -> Code:
    """Runs the installed torchgen on the (patched) derivatives.yaml and takes its output apart."""
    config, out = directory / "autograd", directory / "out"
    copytree(PACKAGED / "autograd", config)
    (config / "derivatives.yaml").write_text(text.yaml)
    native = directory / "native_functions.yaml"
    native.write_text(text.native)
    command = [sys.executable, "-m", "torchgen.packaged.autograd.gen_autograd"]
    arguments = [native, PACKAGED / "ATen/native/tags.yaml", out, config]
    output_of([*command, *arguments], "torchgen does not take the patched derivatives.yaml")
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
        "\n".join(function for _, function in text.manual),
    )


def differ(a: dict[str, str], b: dict[str, str]) -> set[str]:
    return {name for name in a.keys() | b.keys() if a.get(name) != b.get(name)}


def kernels_that_differ(a: Code, b: Code) -> set[str]:
    """Kernels of another text: forward-mode formulas stand in them."""
    return differ(a.kernels, b.kernels)


def differences(a: Code, b: Code) -> set[str]:
    """Names of the generated kernels and nodes that are not the same text."""
    return kernels_that_differ(a, b) | differ(a.nodes, b.nodes) | differ(a.structs, b.structs)


def affected(a: Code, b: Code) -> set[str]:
    """The kernels that record a node and differ, or whose node does."""
    nodes = differ(a.nodes, b.nodes) | differ(a.structs, b.structs)
    node = re.compile(rf"\b({'|'.join(nodes)})\b") if nodes else None
    changed = kernels_that_differ(a, b)
    recording = recorders(b).items()
    return {n for n, text in recording if n in changed or (node and node.search(text))}


def recorders(code: Code) -> dict[str, str]:
    """The kernels that record a node, but for out= variants, which record none of their own."""
    found = {n: text for n, text in code.kernels.items() if n in code.registrations}
    return {n: text for n, text in found.items() if "grad_fn" in text and "_out" not in n}


def operator_of(kernel: str, code: Code) -> str:
    """The name of its operator, without the overload."""
    return code.registrations[kernel].partition(".")[0]
