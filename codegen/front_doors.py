"""Generates code from the schema of a front door: the function for C++, the kernel of
the operator, and the signature for Python. The front doors themselves are written by
hand: csrc/ops/front_doors.h."""

from __future__ import annotations

import re
from pathlib import Path

from torchgen.api import cpp
from torchgen.api.types import CppSignatureGroup, NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind

from .check import CodegenError

NAMESPACE = "clampgrad"
# An operator without the argument `gradient` says its convention in its name.
NAMED_AFTER = {"_mingrad": "min_norm", "_with_grad": "with_grad"}


def front_doors(functions: list[NativeFunction]) -> dict[str, object]:
    doors = [f for f in functions if f.has_composite_implicit_autograd_kernel]
    by_name: dict[str, list[NativeFunction]] = {}
    for f in doors:
        if "gradient" in names_of(f.func.arguments.flat_all):
            by_name.setdefault(cpp.name(f.func), []).append(f)
    firsts = [overloads[0] for overloads in by_name.values()]
    public = [o for o in by_name.values() if o[0].func.kind() is not SchemaKind.out]
    return {
        "operator_kernels": "\n\n".join(map(operator_kernel, doors)),
        "api_declarations": [f"CLAMPGRAD_API {prototype(f, defaults=True)};" for f in firsts],
        "api_definitions": "\n\n".join(map(api, firsts)),
        "python_signatures": [python_signature(overloads) for overloads in public],
        "python_functions": " ".join(map(python_function, (first for first, *_ in public))),
        "aten_headers": [f"#include <ATen/ops/{name}.h>" for name in sorted(aten_names(functions))],
    }


def aten_names(functions: list[NativeFunction]) -> set[str]:
    """The operators of ATen that kernels call: those of the front doors, by name, and `where`."""
    doors = [f for f in functions if "gradient" in names_of(f.func.arguments.flat_all)]
    public = {f.func.name.name.base for f in doors if not f.func.name.name.base.startswith("_")}
    return public | {"where"}


def names_of(arguments) -> list[str]:  # type: ignore[no-untyped-def]
    return [a.name for a in arguments]


def operands(f: NativeFunction) -> list[str]:
    """self and the bounds, or self and other."""
    return names_of(a for a in f.func.arguments.flat_positional)


def is_extremum(f: NativeFunction) -> bool:
    return "other" in operands(f)


def is_mixed(f: NativeFunction) -> bool:
    """Between a number and a Tensor: ATen has no such operator."""
    return f.func.name.overload_name.startswith(("Tensor_Scalar", "Scalar_Tensor"))


def call_door(f: NativeFunction, name: str, convention: str, arguments: str) -> str:
    """The front door called `name`, which is one for extrema."""
    if is_extremum(f):
        return f"front_door::extremum(PairOperator::{name}, {arguments}, {convention})"
    return f"front_door::{name}({arguments}, {convention})"


def convention_of(f: NativeFunction) -> tuple[str, str]:
    """The name of the front door, and the convention of an operator
    without the argument `gradient`."""
    name = cpp.name(f.func)
    suffix = next((s for s in NAMED_AFTER if s in name), None)
    if suffix is None:
        message = f"{f.func.name} says its convention neither in an argument nor in its name"
        raise CodegenError(Path(f.loc.file), f.loc.line, message)
    gradient = f"Gradient::{NAMED_AFTER[suffix]}"
    maximize = "maximize" if "maximize" in names_of(f.func.arguments.flat_all) else "false"
    return name.replace(suffix, ""), gradient if is_extremum(f) else f"{{{gradient}, {maximize}}}"


def operator_kernel(f: NativeFunction) -> str:
    """Reads the name of the convention; with out=, where nothing is recorded, it only checks it."""
    with native_function_manager(f):
        signature = NativeSignature(f.func, symint=False).defn(name=cpp.name(f.func))
    name = cpp.name(f.func)  # clamp_out
    self, *bounds = operands(f)
    operands_text = ", ".join([self, *(f"guard_dynamic_floats({bound})" for bound in bounds)])
    lines = []
    if "gradient" in names_of(f.func.arguments.flat_all):
        convention = "parse_convention(gradient, maximize)"
        if is_extremum(f):
            convention = f'parse_exact_gradient(gradient, "{f.func.name.name}")'
        if f.func.kind() is SchemaKind.out:
            lines = [f"{convention};"]
    else:
        name, convention = convention_of(f)
    if f.func.kind() is SchemaKind.out:
        door = f"{name}(out, {operands_text})"
        if is_extremum(f):
            door = f"extremum_out(PairOperator::{name.removesuffix('_out')}, out, {operands_text})"
        lines += [f"return front_door::{door};"]
    else:
        lines = [f"return {call_door(f, name, convention, operands_text)};"]
    return "\n  ".join([f"{signature} {{", *lines]) + "\n}"


def prototype(f: NativeFunction, defaults: bool) -> str:
    """The one function for all overloads of `f`, the first of them: a
    Bound is a number or a Tensor."""
    with native_function_manager(f):
        signature = CppSignatureGroup.from_native_function(f, method=False).signature
        text = signature.decl() if defaults else signature.defn()
    text = re.sub(r"(::std::optional<)?at::Scalar>?", "Bound", text)
    text = re.sub(r"\S*string_view gradient", "Gradient gradient", text)
    text = text.replace('"min_norm"', "Gradient::min_norm").replace(" & ", "& ").replace("=", " = ")
    return text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")


def api(f: NativeFunction) -> str:
    name, is_out = cpp.name(f.func), f.func.kind() is SchemaKind.out
    if is_extremum(f):
        parsed = f'const auto exact = check_exact_gradient(gradient, "{f.func.name.name}");'
        bounds, door, keywords = "other", "exact", "name_of(exact)"
    else:
        parsed = "const auto c = check_convention(gradient, maximize); // before the bounds"
        bounds, door, keywords = "bounds...", "c", "name_of(c.gradient), c.maximize"
    lines = [f"return clampgrad::{name}({'out, ' if is_out else ''}self, {bounds}, {keywords});"]
    if not is_out:
        lines = [
            f"if (!all_tensors(is_plain, self, {bounds})) {{",
            "  std::optional<c10::impl::ExcludeDispatchKeyGuard> traced;",
            "  if (at::tracer::impl::is_dispatch_enabled()) {",
            "    traced.emplace(kJitTraceKey);",
            "  }",
            f"  {lines[0]}",
            "}",
            f'const Profiled profiled("{NAMESPACE}::{name}", self, {bounds}, {keywords});',
            f"return {call_door(f, name, door, f'self, {bounds}')};",
        ]
    if not is_extremum(f):
        lines = [
            "return with_overload(",
            "    [&](const auto&... bounds) -> decltype(auto) {",
            *(f"      {line}" for line in lines),
            "    },",
            f"    {', '.join(operands(f)[1:])});",
        ]
    return "\n  ".join([f"{prototype(f, defaults=False)} {{", parsed, *lines]) + "\n}"


def python_signature(overloads: list[NativeFunction]) -> str:
    f = overloads[0]
    bounds = operands(f)[1:]
    parameters = ["input", *bounds, *[None] * (2 - len(bounds)), "gradient"]
    parameters += [None if is_extremum(f) else "maximize"]
    parameters += [None if f.func.kind() is SchemaKind.inplace else "out"]
    names = ", ".join(f'"{p}"' if p else "nullptr" for p in parameters)
    signatures = ",\n  ".join(f'R"({signature(f)})"' for f in overloads)
    name = cpp.name(f.func)
    return f'constexpr Signature {name} = {{"{name}",\n {{{names}}},\n {{{signatures}}}}};'


def python_function(f: NativeFunction) -> str:
    kind = "in_place" if f.func.kind() is SchemaKind.inplace else "with_out"
    return f"{kind}({cpp.name(f.func)})"


def signature(f: NativeFunction) -> str:
    """The signature of the public function, in the language of torch's parser."""
    arguments = str(f.func.arguments).replace("(a!)", "").replace("str ", "std::string_view ")
    if f.func.kind() is SchemaKind.functional:
        arguments += ", Tensor out=None"
    return f"{cpp.name(f.func)}({arguments.replace('Tensor self', 'Tensor input', 1)})"
