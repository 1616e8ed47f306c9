"""What follows from the schema of a front door: its body, and the function for C++ in front of it."""

from __future__ import annotations

from torchgen.api import cpp
from torchgen.api.types import NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import BaseTy, BaseType, NativeFunction, SchemaKind

# An operator without the argument `gradient` says its convention in its name.
NAMED_AFTER = {"_mingrad": "min_norm", "_with_grad": "with_grad"}


def front_doors(functions: list[NativeFunction]) -> dict[str, object]:
    doors = [f for f in functions if f.has_composite_implicit_autograd_kernel]
    by_name: dict[str, list[NativeFunction]] = {}
    for f in doors:
        if "gradient" in names_of(f.func.arguments.flat_all):
            by_name.setdefault(cpp.name(f.func), []).append(f)
    return {
        "front_doors": "\n\n".join(map(front_door, doors)),
        "api_declarations": [
            f"CLAMPGRAD_API {declaration(overloads, defaults=True)};"
            for overloads in by_name.values()
        ],
        "api_definitions": "\n\n".join(map(api, by_name.values())),
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
        suffix = next(s for s in NAMED_AFTER if s in name)
        maximize = "maximize" if "maximize" in keywords else "false"
        values = f'{given}, "{NAMED_AFTER[suffix]}", {maximize}' + (", out" if is_out else "")
        return [f"return {name.replace(suffix, '')}({values});"]

    parse, atens = "parse_convention(gradient, maximize)", "at"
    recorded = f"is_recorded({given}) ? recorded_{name}({given}, c)"
    if is_extremum(f):
        base = f.func.name.name
        parse = f'parse_exact(gradient, maximize, "{base}")'
        recorded = (
            f"any_may_need_gradient({given}) ? recorded_extremum({given}, Extremum::{base}, c)"
        )
    if is_mixed(f):
        atens = "mixed"
    if is_out:
        return [f"{parse};", f"return {atens}::{name}(out, {given});"]
    if is_mixed(f):
        return [f"return mixed::{name}({given}, {parse});"]
    return [f"const auto c = {parse};", f"return {recorded} : at::{name}({given});"]


def declaration(overloads: list[NativeFunction], defaults: bool) -> str:
    """Of the one function for all overloads: a bound is a number in one of them, a Tensor in another."""
    arguments = overloads[0].func.arguments

    def default(value: str) -> str:
        return f" = {value}" if defaults else ""

    parameters = ["at::Tensor& out"] * len(arguments.out)
    self, *others = arguments.flat_positional
    parameters.append(f"{'' if self.is_write else 'const '}at::Tensor& self")
    for a in others:
        if a.type == BaseType(BaseTy.Tensor):
            parameters.append(f"const at::Tensor& {a.name}")
        else:
            parameters.append(f"const Bound& {a.name}{default('{}') if a.default else ''}")
    parameters.append(f"Gradient gradient{default('Gradient::min_norm')}")
    if not is_extremum(overloads[0]):
        parameters.append(f"bool maximize{default('false')}")
    separator = ",\n    "
    result = "at::Tensor&" if self.is_write or arguments.out else "at::Tensor"
    return f"{result} {cpp.name(overloads[0].func)}(\n    {separator.join(parameters)})"


def api(overloads: list[NativeFunction]) -> str:
    f = overloads[0]
    name = cpp.name(f.func)
    maximize = "false" if is_extremum(f) else "maximize"
    values = f"self, bounds..., name_of(gradient), {maximize}"
    if f.func.kind() is SchemaKind.functional:
        call = f"are_plain(self, bounds...) ? native::{name}({values})\n        : clampgrad::{name}({values})"
    elif f.func.kind() is SchemaKind.out:
        call = f"clampgrad::{name}(out, {values})"
    else:
        call = f"clampgrad::{name}({values})"
    return f"""\
{declaration(overloads, defaults=False)} {{
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
    return f"""\
{{"{name}",
 Takes::{"_and_".join(bounds)},
 /*inplace=*/{str(is_inplace).lower()},
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
