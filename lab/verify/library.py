"""The formulas of a series, compiled into a library for the installed torch.

torchgen writes the C++ of the clamp family from derivatives.yaml. Loaded into a stock torch, the
library registers its kernels over `aten::` at the alias key Autograd. Its nodes are in a namespace
of their own, so nothing of libtorch is interposed and the library may be loaded late.
"""

import os
import re
import shlex
from shutil import copytree

from torchgen.packaged.autograd.gen_autograd import gen_autograd
from torchgen.selective_build.selector import SelectiveBuilder

from oracle import TABLE

from ..series import FUNCTIONS, NATIVE, YAML, Refusal, output_of
from .upstream_files import MANUAL, PACKAGED, TAGS, entries, of_the_wheel

FAMILY = TABLE["operators"].keys()
EVERY = SelectiveBuilder.get_nop_selector()
OPENED = """
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/native/TypeProperties.h>
#include <torch/csrc/autograd/functions/utils.h>
namespace torch::autograd::generated::details {
using namespace at;
"""
# What the generated code calls and libtorch does not export; 2.14 declares the first, 2.15 the
# second.
HELPER = """
static Tensor filled(const Tensor& t, const Tensor& mask, const Scalar& value) {
  return areAnyTensorSubclassLike({t, mask}) ? t.masked_fill(mask, value) : t.masked_fill_(mask, value);
}
Tensor masked_fill_inplace_if_safe(Tensor t, const Tensor& mask, const Scalar& value) {
  return filled(t, mask, value);
}
Tensor masked_fill_inplace_if_safe(const Tensor& t, const Tensor& mask, const Scalar& value) {
  return filled(t, mask, value);
}
}
namespace torch::autograd {
at::Tensor TypeAndSize::zeros() {
  return at::zeros_symint(sym_sizes, options);
}
}
"""


def stem(signature):
    """Returns clamp_min for _foreach_clamp_min_.Scalar(...) and all that shares its formulas."""
    return re.match(r"(?:_foreach_)?(\w+?)_*\b", signature)[1]


def find_changed_entries(before, after):
    """Returns the signatures of the formulas that a series changes; refuses others than those of
    the family, which are not compiled here."""
    old, new = entries(before[YAML]), entries(after[YAML])
    changed = sorted(s for s in old.keys() | new.keys() if old.get(s) != new.get(s))
    if others := [s for s in changed if stem(s) not in FAMILY]:
        raise Refusal(f"It changes {others[0]}, which is not of the family of clamp.")
    return changed


def generate(directory, texts):
    """Returns the nodes and kernels of the family, with the functions of FunctionsManual.cpp that
    they call; refuses what torchgen does not take."""
    config, out = directory / "autograd", directory / "generated"
    native = directory / "native_functions.yaml"
    copytree(PACKAGED / "autograd", config)
    whole = {config / "derivatives.yaml": texts[YAML], native: of_the_wheel(NATIVE).read_text()}
    for path, text in whole.items():
        path.write_text("".join(e for s, e in entries(text).items() if stem(s) in FAMILY))
    try:
        gen_autograd(*map(str, (native, TAGS, out, config)), EVERY)
    except Exception as error:
        raise Refusal(f"torchgen does not take the patched derivatives.yaml:\n{error}") from None
    header, nodes, kernels = (
        (out / name).read_text().replace("#pragma once", "")
        for name in ("Functions.h", "Functions.cpp", "VariableTypeEverything.cpp")
    )
    manual = "\n".join(match[0] for match in MANUAL.finditer(texts[FUNCTIONS]))
    # The functions have `using namespace at`, which Functions.cpp does without.
    text = "\n".join([header, nodes, kernels, OPENED, manual, HELPER])
    text = re.sub(r"(namespace torch::autograd::)generated(?= \{|;)", r"\1proved", text)
    text = text.replace("autograd { namespace generated {", "autograd { namespace proved {")
    text = text.replace("autograd::generated::TypeAndSize", "autograd::proved::TypeAndSize")
    text = re.sub(r'\bunpack\((\w+), "\w+", \d+\)', r"\1", text)  # a check that is not exported
    return re.sub(r'(std::string name\(\) const override \{ return ")', r"\1Proved", text)


def build_library(directory, texts):
    """Compiles the family in a folder and returns the path of the library; refuses with the
    compiler's errors."""
    # It looks for a compiler and for CUDA when it is imported, and may complain.
    from torch.utils.cpp_extension import include_paths, library_paths

    source, compiled, library = (directory / f"proved.{end}" for end in ("cpp", "o", "so"))
    source.write_text(generate(directory, texts))
    flags = ["-std=c++20", "-w", "-O0", "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
    run_compiler(*flags, *(f"-I{p}" for p in include_paths()), "-c", source, "-o", compiled)
    # What libtorch does not export is named now, not when it is loaded.
    libraries = [*(f"-L{p}" for p in library_paths()), "-ltorch_cpu", "-lc10", "-ltorch"]
    run_compiler(compiled, "-shared", "-Wl,--no-undefined", "-o", library, *libraries)
    return library


def run_compiler(*arguments):
    command = [*shlex.split(os.environ.get("CXX", "c++")), *arguments]
    output_of(command, "The code does not compile", "error:|undefined reference")
