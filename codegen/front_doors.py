"""What follows from the schema of a front door: its body, and the function for C++ in front of it."""

from __future__ import annotations

import re
from pathlib import Path

from torchgen.api import cpp
from torchgen.api.types import CppSignatureGroup, NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, SchemaKind

from .check import CodegenError

# An operator without the argument `gradient` says its convention in its name.
NAMED_AFTER = {"_mingrad": "min_norm", "_with_grad": "with_grad"}


def front_doors(functions: list[NativeFunction]) -> dict[str, object]:
    doors = [f for f in functions if f.has_composite_implicit_autograd_kernel]
    by_name: dict[str, list[NativeFunction]] = {}
    for f in doors:
        if "gradient" in names_of(f.func.arguments.flat_all):
            by_name.setdefault(cpp.name(f.func), []).append(f)
    firsts = [overloads[0] for overloads in by_name.values()]
    return {
        "front_doors": "\n\n".join(map(front_door, doors)),
        "api_declarations": [f"CLAMPGRAD_API {prototype(f, defaults=True)};" for f in firsts],
        "api_definitions": "\n\n".join(map(api, firsts)),
        "python_operators": [
            python_operator(overloads)
            for overloads in by_name.values()
            if overloads[0].func.kind() is not SchemaKind.out
        ],
    }


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


def front_door(f: NativeFunction) -> str:
    with native_function_manager(f):
        signature = NativeSignature(f.func, symint=False).defn(name=cpp.name(f.func))
    return "\n  ".join([f"{signature} {{", *body(f)]) + "\n}"


def body(f: NativeFunction) -> list[str]:
    """Checks the names, then does what is recorded, or what ATen does."""
    name, given = cpp.name(f.func), ", ".join(operands(f))  # clamp_out; self, min, max
    keywords = names_of(f.func.arguments.pre_tensor_options_kwarg_only)
    is_out = f.func.kind() is SchemaKind.out

    if "gradient" not in keywords:
        suffix = next((s for s in NAMED_AFTER if s in name), None)
        if suffix is None:
            message = f"{f.func.name} says its convention neither in an argument nor in its name"
            raise CodegenError(Path(f.loc.file), f.loc.line, message)
        maximize = "maximize" if "maximize" in keywords else "false"
        values = f'{given}, "{NAMED_AFTER[suffix]}", {maximize}' + (", out" if is_out else "")
        return [f"return {name.replace(suffix, '')}({values});"]

    parse, recorded = "parse_convention(gradient, maximize)", f"recorded_{name}({given}, c)"
    test = f"is_recorded({given})"
    if is_extremum(f):
        parse = f'parse_exact(gradient, maximize, "{f.func.name.name}")'
        recorded = f"recorded_extremum({given}, Extremum::{f.func.name.name}, c)"
        test = f"any_may_need_gradient({given})"
    if is_out:
        return [f"{parse};", f"return {'mixed' if is_mixed(f) else 'at'}::{name}(out, {given});"]
    if is_mixed(f):
        return [f"return mixed::{name}({given}, {parse});"]
    return [f"const auto c = {parse};", f"return {test} ? {recorded} : at::{name}({given});"]


def prototype(f: NativeFunction, defaults: bool) -> str:
    """Of the one function for all overloads of `f`, the first of them: a Bound is a number or a Tensor."""
    with native_function_manager(f):
        signature = CppSignatureGroup.from_native_function(f, method=False).signature
        text = signature.decl() if defaults else signature.defn()
    text = re.sub(r"(::std::optional<)?at::Scalar>?", "Bound", text)
    text = re.sub(r"\S*string_view gradient", "Gradient gradient", text)
    if is_extremum(f):
        text = re.sub(r", bool maximize(=false)?", "", text)
    text = text.replace('"min_norm"', "Gradient::min_norm").replace(" & ", "& ").replace("=", " = ")
    return text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")


def api(f: NativeFunction) -> str:
    name, kind = cpp.name(f.func), f.func.kind()
    values = f"self, bounds..., name, {'false' if is_extremum(f) else 'maximize'}"
    call = f"clampgrad::{name}({'out, ' if kind is SchemaKind.out else ''}{values})"
    if kind is SchemaKind.functional:
        is_plain = "all_tensors(is_plain, self, bounds...)"
        call = f"{is_plain} ? native::{name}({values})\n        : {call}"
    return f"""\
{prototype(f, defaults=False)} {{
  const auto name = checked_name_of(gradient); // before the bounds are looked at
  const auto call = [&](const auto&... bounds) -> decltype(auto) {{
    return {call};
  }};
  return with_overload(call, {", ".join(operands(f)[1:])});
}}"""


def python_operator(overloads: list[NativeFunction]) -> str:
    f = overloads[0]
    name, bounds = cpp.name(f.func), operands(f)[1:]
    is_inplace = f.func.kind() is SchemaKind.inplace
    values = [f"c.bounds[{i}]" for i in range(len(bounds))] + ["c.gradient", "c.maximize"]
    if is_extremum(f):
        values = ["*c.bounds[0].tensor", "c.gradient"]
    call = f"{name}(c.self, {', '.join(values)})"
    if not is_inplace:
        call = f"c.out.defined() ? {name}_out(c.out, c.self, {', '.join(values)})\n       : {call}"
    signatures = ",\n  ".join(f'R"({signature(f)})"' for f in overloads)
    parameters = ["input", *bounds, *[None] * (2 - len(bounds)), "gradient"]
    parameters += [None if is_extremum(f) else "maximize", None if is_inplace else "out"]
    return f"""\
{{"{name}",
 {{{", ".join(f'"{p}"' if p else "nullptr" for p in parameters)}}},
 [](Call& c) -> at::Tensor {{
   return {call};
 }},
 {{{signatures}}}}},"""


def signature(f: NativeFunction) -> str:
    """In the language of torch's parser, for the public function."""
    arguments = str(f.func.arguments).replace("(a!)", "").replace("str ", "std::string_view ")
    if is_extremum(f):
        arguments = arguments.replace(", bool maximize=False", "")
    if f.func.kind() is SchemaKind.functional:
        arguments += ", Tensor out=None"
    return f"{cpp.name(f.func)}({arguments.replace('Tensor self', 'Tensor input', 1)})"
