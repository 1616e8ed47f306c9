"""The C++ that the installed torchgen makes of a derivatives.yaml, for some
operators, compiled and linked.

Loaded into a stock torch, the library registers its kernels over `aten::` at the alias key
Autograd. Its nodes are in a namespace of their own, so nothing of libtorch is interposed and the
library may be loaded late. It has the native operators that a patch adds too; those that
libtorch has must stay as they are.
"""

import os
import platform
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from shutil import copytree

from torchgen import gen
from torchgen.dest import compute_native_function_declaration
from torchgen.model import DispatchKey
from torchgen.packaged.autograd.gen_autograd import gen_autograd
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import Target

from ..series import FUNCTIONS, NATIVE, YAML, Refusal, output_of
from .upstream_files import COMPILED, KERNELS, MANUAL, PACKAGED, TAGS, entries

EVERY = SelectiveBuilder.get_nop_selector()
ADDED = "added.h"  # the declarations of all of them, included everywhere
BUILT = "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd"
CAPABILITIES = {"DEFAULT": []}
DEFINES = []
if platform.machine().lower() in ("x86_64", "amd64"):
    CAPABILITIES["AVX2"] = ["-mavx2", "-mfma", "-mf16c"]
    CAPABILITIES["AVX512"] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"]
    # The tables of kernels that libtorch has, so that ours have as many rows.
    DEFINES = ["-DHAVE_AVX2_CPU_DEFINITION", "-DHAVE_AVX512_CPU_DEFINITION"]
OPENED = """
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/native/TypeProperties.h>
#include <torch/csrc/autograd/functions/utils.h>
namespace torch::autograd::generated::details {
using namespace at;
"""
# What the generated code calls and libtorch does not export; 2.14 declares the first, 2.15 the
# second. The library without a patch must have stock's gradients with it.
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
    """clamp_min of _foreach_clamp_min_.Scalar(...) and of all that shares its formulas."""
    return re.match(r"(?:_foreach_)?(\w+?)_*\b", signature)[1]


def changed_entries(before, after):
    """The signatures of the formulas that are not the same."""
    old, new = entries(before[YAML]), entries(after[YAML])
    return sorted(s for s in old.keys() | new.keys() if old.get(s) != new.get(s))


def generated(directory, texts, stems):
    """Nodes and kernels of these operators, with the functions of
    FunctionsManual.cpp that they call."""
    config, out = directory / "autograd", directory / "generated"
    native = directory / "native_functions.yaml"
    copytree(PACKAGED / "autograd", config)
    copytree(directory / "tools/autograd", config, dirs_exist_ok=True)
    for path, name in ((config / "derivatives.yaml", YAML), (native, NATIVE)):
        found = entries(texts[name]).items()
        path.write_text("".join(block for s, block in found if stem(s) in stems))
    try:
        gen_autograd(*map(str, (native, TAGS, out, config)), EVERY)
    except Exception as error:
        raise Refusal(f"torchgen does not take the patched derivatives.yaml:\n{error}") from None
    header, nodes, kernels = (
        (out / name).read_text().replace("#pragma once", "")
        for name in ("Functions.h", "Functions.cpp", "VariableTypeEverything.cpp")
    )
    manual = "\n".join(found[0] for found in MANUAL.finditer(texts[FUNCTIONS]))
    # The functions have `using namespace at`, which Functions.cpp does without.
    text = "\n".join([header, nodes, kernels, OPENED, manual, HELPER])
    text = re.sub(r"(namespace torch::autograd::)generated(?= \{|;)", r"\1proved", text)
    text = text.replace("autograd { namespace generated {", "autograd { namespace proved {")
    text = text.replace("autograd::generated::TypeAndSize", "autograd::proved::TypeAndSize")
    text = re.sub(r'\bunpack\((\w+), "\w+", \d+\)', r"\1", text)  # a check that is not exported
    return re.sub(r'(std::string name\(\) const override \{ return ")', r"\1Proved", text)


def new_entries(before, after):
    """The entries that a patch adds; refuses one that changes others."""
    old, new = entries(before), entries(after)
    if changed := [s for s, entry in old.items() if new.get(s) != entry]:
        names = ", ".join(s.partition("(")[0] for s in changed[:3])
        raise Refusal(f"Only operators that are added can be proved here, {names} exists.")
    return {s: entry for s, entry in new.items() if s not in old}


def new_operators(directory, before, after):
    """What a patch adds, written under `directory`: the names of its operators, and
    sources with flags of their own."""
    new = new_entries(before[NATIVE], after[NATIVE])
    if not new:
        return set(), []
    path, defined = directory / "new.yaml", directory / "added.cpp"
    path.write_text("".join(new.values()))
    names, declarations, definitions = declared(gen.parse_native_yaml(str(path), str(TAGS)))
    (directory / ADDED).write_text(declarations)
    defined.write_text(definitions)
    sources = [(defined, ["-O0"])]
    for name in (n for n in after if COMPILED.match(n)):
        if name.startswith(KERNELS):
            for capability, flags in CAPABILITIES.items():
                defines = [f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]
                sources.append((directory / name, ["-O3", *flags, *defines]))  # as upstream's build
        else:
            sources.append((directory / name, ["-O1"]))
    return names, sources


def not_built(directory):
    """The kernels that entries name, and that nothing here compiles: whether a
    patch has them is not looked at."""
    if not (path := directory / "new.yaml").is_file():
        return
    parsed = gen.parse_native_yaml(str(path), str(TAGS))
    for f in (f for f in parsed.native_functions if "generated" not in f.tags):
        named = {key: index.get_kernel(f) for key, index in parsed.backend_indices.items()}
        kernels = {str(key): k.kernel for key, k in named.items() if k and str(key) not in BUILT}
        yield from (f"{f.func.name}: its kernel for {k}, {n}" for k, n in sorted(kernels.items()))


def declared(parsed):
    """The names of operators, and C++ that declares, calls, defines and registers them."""
    functions, kernels, registered = parsed.native_functions, [], []
    for key in BUILT:
        index = parsed.backend_indices[getattr(DispatchKey, key)]
        registered.append(f"TORCH_LIBRARY_IMPL(aten, {key}, m) {{")
        for f in functions:
            if (kernel := index.get_kernel(f)) and "generated" not in f.tags:
                kernels += compute_native_function_declaration(f, index)
                function = f"TORCH_FN(at::native::{kernel.kernel})"
                registered.append(f'm.impl("{f.func.name}", {function});')
        registered.append("}")

    def within(opening, make):
        return "\n".join([opening + " {", *(make(f) or "" for f in functions), "}"])

    declarations = [
        "#pragma once\n#include <ATen/ATen.h>",
        within("namespace at::_ops", gen.ComputeOperators(Target.DECLARATION, [])),
        within("namespace at", gen.ComputeFunction()),
        within("namespace at::redispatch", gen.ComputeRedispatchFunction()),
        *("namespace at::native {", *dict.fromkeys(kernels), "}"),
    ]
    definitions = [
        "#include <ATen/core/dispatch/Dispatcher.h>\n#include <torch/library.h>",
        within("namespace at::_ops", gen.ComputeOperators(Target.DEFINITION, [])),
        within("TORCH_LIBRARY_FRAGMENT(aten, m)", gen.RegisterSchema(EVERY)),
        *registered,
    ]
    names = {str(f.func.name.name) for f in functions if "generated" not in f.tags}
    return names, "\n".join(declarations), "\n".join(definitions)


def libraries(folders, texts, stems):
    """Compiled without the patch and with it, where `patched` wrote the texts; and the names of
    the operators that it adds."""
    codes = [generated(*of_side, stems) for of_side in zip(folders, texts)]
    operators, sources = new_operators(folders[1], *texts)
    with ThreadPoolExecutor(2) as both:
        return [*both.map(compiled, folders, codes, [[], sources])], operators


def compiled(directory, code, sources):
    """The library; refuses with the compiler's errors."""
    # It looks for a compiler and for CUDA when it is imported, and may complain.
    from torch.utils.cpp_extension import include_paths, library_paths

    path = directory / "proved.cpp"
    path.write_text(code)
    flags = ["-std=c++20", "-w", "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
    flags += [f"-I{p}" for p in (directory, directory / "aten/src", *include_paths())]
    flags += [*DEFINES, f"-include{directory / ADDED}"] if sources else []
    objects = []
    for file, own in [(path, ["-O0"]), *sources]:
        objects.append(directory / f"{len(objects)}.o")
        compiler(*flags, *own, "-c", file, "-o", objects[-1])
    library = directory / "libproved.so"
    # What libtorch does not export is named now, not when it is loaded.
    linked = [*(f"-L{p}" for p in library_paths()), "-ltorch_cpu", "-lc10", "-ltorch"]
    compiler(*objects, "-shared", "-Wl,--no-undefined", "-o", library, *linked)
    return library


def compiler(*arguments):
    command = [*shlex.split(os.environ.get("CXX", "c++")), *arguments]
    output_of(command, "The code does not compile", "error:|undefined reference")
