"""The C++ that the installed torchgen makes of a derivatives.yaml, for some operators, compiled and linked.

Loaded into a stock torch, the library registers its kernels over `aten::` at the alias key Autograd. Its nodes are in a
namespace of their own, so nothing of libtorch is interposed and the library may be loaded late.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from shutil import copytree

import torch

from ..series import FUNCTIONS, NATIVE, YAML, Refusal, output_of
from .new_operators import DEFINES, Added, new_operators
from .upstream_files import MANUAL, PACKAGED, entries

FAMILY = ("clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin")
# What the generated code calls and libtorch does not export. The library without a patch must have stock's gradients
# with it. The last is without its in-place shortcut.
HELPERS = """
namespace torch::autograd::VariableType {
at::Tensor& unpack(at::Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "undefined tensor for argument '", name, "' (position ", pos, ")");
  return t;
}
const at::Tensor& unpack(const at::Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "undefined tensor for argument '", name, "' (position ", pos, ")");
  return t;
}
std::vector<at::Tensor> unpack(const at::ITensorListRef& tl, const char*, int) {
  return std::vector<at::Tensor>(tl.begin(), tl.end());
}
}
#include <ATen/TensorSubclassLikeUtils.h>
namespace torch::autograd::generated::details {
using namespace at;
Tensor masked_fill_inplace_if_safe(const Tensor& t, const Tensor& mask, const Scalar& value) {
  return t.masked_fill(mask, value);
}
"""


def stem(signature):
    """clamp_min of _foreach_clamp_min_.Scalar(...) and of all that shares its formulas."""
    return re.match(r"(?:_foreach_)?(\w+?)_*\b", signature)[1]


def changed_entries(before, after):
    """The signatures of the formulas that are not the same."""
    old, new = entries(before[YAML]), entries(after[YAML])
    return sorted(s for s in old.keys() | new.keys() if old.get(s) != new.get(s))


def generated(directory, texts, stems):
    """Nodes and kernels of these operators, with the functions of FunctionsManual.cpp that they call."""
    config, out = directory / "tools/autograd", directory / "generated"
    copytree(PACKAGED / "autograd", config)
    native = directory / "native_functions.yaml"
    for name in (n for n in texts if n.startswith("tools/autograd/")):
        (directory / name).write_text(texts[name])
    for path, name in ((config / "derivatives.yaml", YAML), (native, NATIVE)):
        found = entries(texts[name]).items()
        path.write_text("".join(block for s, block in found if stem(s) in stems))
    command = [sys.executable, "-m", "torchgen.packaged.autograd.gen_autograd", native]
    output_of(
        [*command, PACKAGED / "ATen/native/tags.yaml", out, config],
        "torchgen does not take the patched derivatives.yaml",
    )
    header, nodes, kernels = (
        (out / name).read_text().replace("#pragma once", "")
        for name in ("Functions.h", "Functions.cpp", "VariableTypeEverything.cpp")
    )
    manual = "\n".join(found[0] for found in MANUAL.finditer(texts[FUNCTIONS]))
    # The last has `using namespace at`, which Functions.cpp does without.
    text = "\n".join([header, nodes, kernels, HELPERS, manual, "}"])
    text = re.sub(r"(namespace torch::autograd::)generated(?= \{|;)", r"\1proved", text)
    return re.sub(r'(std::string name\(\) const override \{ return ")', r"\1Proved", text)


def libraries(directory, texts, stems):
    """Compiled without the patch and with it; and the names of the operators that it adds."""
    folders = [directory / "stock", directory / "patched"]
    for folder in folders:
        folder.mkdir()
    codes = [generated(*of_side, stems) for of_side in zip(folders, texts)]
    added = new_operators(folders[1], *texts)
    with ThreadPoolExecutor(2) as both:
        return [*both.map(compiled, folders, texts, codes, [Added(), added])], added.operators


def compiled(directory, texts, code, added):
    """The library; refuses with the compiler's first errors."""
    # It looks for a compiler and for CUDA when it is imported, and may complain.
    from torch.utils.cpp_extension import include_paths, library_paths

    headers, path = directory / "headers", directory / "proved.cpp"
    for name, text in texts.items():
        if name.endswith(".h"):
            file = headers / name.removeprefix("aten/src/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    path.write_text(added.prelude + code)
    minor = int(torch.__version__.split(".")[1])
    standard = "c++20" if minor >= 13 else "c++17"
    flags = [f"-std={standard}", "-DNDEBUG", "-w", "-fPIC", "-fvisibility=hidden"]
    flags += DEFINES if added.sources else []
    flags += [f"-I{p}" for p in (headers, *added.include, *include_paths())]
    sources = [(path, ["-O0"]), *added.sources]
    objects = [directory / f"{n}.o" for n in range(len(sources))]
    for (file, own), o in zip(sources, objects):
        compiler(*flags, *own, "-c", file, "-o", o)
    library = directory / "libproved.so"
    # What libtorch does not export is named now, not when it is loaded.
    linked = [*(f"-L{p}" for p in library_paths()), "-ltorch_cpu", "-lc10", "-ltorch"]
    compiler(*objects, "-shared", "-Wl,--no-undefined", "-o", library, *linked)
    return library


def compiler(*arguments):
    command = shlex.split(os.environ.get("CXX", "c++"))
    if not shutil.which(command[0]):
        raise Refusal(f"There is no C++ compiler {command[0]}: install one, or name it in CXX.")
    result = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode:
        lines = [re.sub(r"^/\S*/(\w+\.\w+)", r"\1", line) for line in result.stderr.splitlines()]
        errors = [line for line in lines if "error:" in line or "undefined reference" in line]
        raise Refusal("The code does not compile:\n" + "\n".join(dict.fromkeys(errors[:8])))
