"""Generate the C++ of every operator from native_functions.yaml and derivatives.yaml, and the
contract from conventions.yaml.

It writes these files:

    Operators.h, .cpp         how C++ calls an operator: clampgrad::_ops::*, clampgrad::*,
                              clampgrad::redispatch::*
    Kernels.h                 declarations of the kernels named in native_functions.yaml
    Register.cpp              schemas, kernels per dispatch key, front doors
    FrontDoors.cpp, include/  who calls the front doors: functions for C++, kernels of operators
                              (front_doors.py)
    python/                   what the functions of Python are called with (front_doors.py)
    Functions.h, .cpp         the autograd nodes, with saved variables and compiled autograd
    VariableType.cpp          the autograd kernels, reverse and forward mode
    Contract.h                conventions.yaml for the compiler (contract.py)
    python_functions.cpp      Python types of the nodes: grad_fn._saved_min and its like

torchgen is written for ATen itself, so text is edited. These edits are what a new torchgen may
break; `insert_after`, `check_output` and `check_complete` end the build where they notice it.

    in formulas, before torchgen reads them
        qualify                      at::NAME of our operators, which auto_linear writes
        record_differentiated        the word `differentiated`
    in what torchgen prints
        rename_namespaces            ATen's namespaces and TORCH_API
        operators                    `inline` of redispatch functions is [[maybe_unused]]
        call_kernel_below_autograd   a first line in the redispatch functions
        enter_front_door             first lines in the autograd kernels of `X_mingrad`
        check_shape                  a first line in the nodes that read bits
        autograd                     the nodes that Python types name are exported
        prototype, signature         arguments in the functions of C++ and Python (front_doors.py)
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch
import torchgen
from torchgen import gen
from torchgen.api.autograd import (
    DifferentiabilityInfo,
    SavedAttribute,
    match_differentiability_info,
)
from torchgen.api.types import BaseCType, NamedCType, NativeSignature, longT
from torchgen.code_template import CodeTemplate
from torchgen.context import native_function_manager
from torchgen.model import (
    BackendIndex,
    BackendMetadata,
    DispatchKey,
    NativeFunction,
    OperatorName,
    SchemaKind,
)
from torchgen.packaged.autograd import gen_autograd_functions as nodes
from torchgen.packaged.autograd import gen_variable_type as variable_type
from torchgen.packaged.autograd.load_derivatives import load_derivatives
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import Target

from .check import CodegenError, check_derivatives, load_entries
from .contract import render_contract
from .front_doors import NAMESPACE, call_door, convention_of, front_doors

TEMPLATES = Path(__file__).parent / "templates"
YAMLS = ("conventions.yaml", "csrc/native_functions.yaml", "derivatives.yaml")
EVERYTHING = SelectiveBuilder.get_nop_selector()
# A front door decomposes under vmap as it does elsewhere, instead of falling back to a loop.
FRONT_DOOR_KEYS = ("CompositeImplicitAutograd", "FuncTorchBatchedDecomposition")


def generate(root: Path, out: Path, cuda: bool = False) -> list[Path]:
    """Write the generated files of the source tree `root` to `out`; return the .cpp files.

    Without `cuda` no kernel is registered for that key. A file whose content does not change is not
    touched, so that nothing is compiled again.
    """
    conventions, native, derivatives = (root / name for name in YAMLS)
    files = render(conventions, native, derivatives, cuda)
    for name, text in files.items():
        path = out / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return sorted(out / name for name in files if name.endswith(".cpp"))


def render(
    conventions_yaml: Path, native_yaml: Path, derivatives_yaml: Path, cuda: bool = False
) -> dict[str, str]:
    """File name -> content."""
    functions, backends = parse(native_yaml)
    if not cuda:
        backends = {k: v for k, v in backends.items() if k is not DispatchKey.CUDA}
    check_derivatives(derivatives_yaml, functions)
    tags = Path(torchgen.__file__).parent / "packaged/ATen/native/tags.yaml"
    infos, _ = load_derivatives(str(derivatives_yaml), str(native_yaml), str(tags))
    infos = {f: {k: rewrite_formulas(i, functions) for k, i in d.items()} for f, d in infos.items()}

    node_infos = nodes.get_infos_with_derivatives_list(infos)
    functions = [f for f in functions if not is_node_alone(f, backends)]
    differentiated = [f for f in functions if not f.has_composite_implicit_autograd_kernel]
    pairs = match_differentiability_info(differentiated, infos)

    values = {
        **render_contract(conventions_yaml),
        **operators(functions, backends),
        **registrations(functions, backends),
        **front_doors(functions),
        **autograd(pairs, node_infos, backends),
    }
    files = {}
    for template in sorted(p for p in TEMPLATES.rglob("*") if p.suffix in (".h", ".cpp")):
        text = CodeTemplate.from_file(str(template)).substitute(values)
        files[template.relative_to(TEMPLATES).as_posix()] = rename_namespaces(text)
    for name, text in files.items():
        check_output(name, text)
    check_complete(files, functions)
    return files


def parse(path: Path) -> tuple[list[NativeFunction], dict[DispatchKey, BackendIndex]]:
    for entry in load_entries(path):
        if "func" not in entry:
            raise CodegenError(path, entry["__line__"], "an entry without `func:`")
    tags = Path(torchgen.__file__).parent / "packaged/ATen/native/tags.yaml"
    # No generated variants: what is not in the file does not exist. The parsed file is cached by
    # torchgen, so load_derivatives sees the same operators.
    parsed = gen.parse_native_yaml(str(path), str(tags), skip_native_fns_gen=True)
    for f in parsed.native_functions:
        if not f.has_composite_implicit_autograd_kernel and f.func.kind() is SchemaKind.out:
            raise CodegenError(path, f.loc.line, f"{f.func.name} has out=: it must be a front door")
        # torchgen's own local variables would shadow these, or it would save them by mistake.
        for a in f.func.arguments.flat_all:
            if a.name in ("op", "grad", "result", "dispatchKeySet"):
                raise CodegenError(
                    path, f.loc.line, f"{f.func.name} cannot call an argument {a.name!r}"
                )
    return list(parsed.native_functions), parsed.backend_indices


def rewrite_formulas(
    info: DifferentiabilityInfo, functions: list[NativeFunction]
) -> DifferentiabilityInfo:
    """Rewrites two things in formulas that torchgen does not know."""
    return record_differentiated(qualify(info, functions))


def qualify(info: DifferentiabilityInfo, functions: list[NativeFunction]) -> DifferentiabilityInfo:
    """auto_linear writes at::NAME(...); our operators live elsewhere."""
    ours = "|".join(sorted({re.escape(str(f.func.name.name)) for f in functions}))
    derivatives = [
        replace(d, formula=re.sub(rf"\bat::({ours})\(", rf"{NAMESPACE}::\1(", d.formula))
        for d in info.forward_derivatives
    ]
    return replace(info, forward_derivatives=derivatives)


def record_differentiated(info: DifferentiabilityInfo) -> DifferentiabilityInfo:
    """`differentiated` in a formula: the inputs being differentiated when the operator runs, a bit
    each. The node saves it as it saves a number; forward mode computes it on the spot."""
    word = re.compile(r"\bdifferentiated\b")
    if not any(word.search(d.formula) for d in info.derivatives):
        return info
    call = f"differentiated_mask_of({', '.join(a.name for a in info.args_with_derivatives)})"
    saved = SavedAttribute(nctype=NamedCType("differentiated", BaseCType(longT)), expr=call)
    return replace(
        info,
        derivatives=[replace(d, saved_inputs=(*d.saved_inputs, saved)) for d in info.derivatives],
        all_saved_inputs=[*info.all_saved_inputs, saved],
        forward_derivatives=[  # in place, self requires grad by then if another argument does
            replace(d, formula=word.sub(f"(grad_fn ? grad_fn->differentiated : {call})", d.formula))
            for d in info.forward_derivatives
        ],
    )


def rename_namespaces(text: str) -> str:
    for ours, theirs in (
        (f"{NAMESPACE}::redispatch::", "at::redispatch::"),
        (f"{NAMESPACE}::_ops::", "at::_ops::"),
        (f'"{NAMESPACE}::', '"aten::'),
        ("", "TORCH_API "),
    ):
        text = text.replace(theirs, ours)
    return text


def operators(
    functions: list[NativeFunction], backends: dict[DispatchKey, BackendIndex]
) -> dict[str, object]:
    def redispatch(f: NativeFunction) -> str:
        text = gen.ComputeRedispatchFunction()(f)
        assert text is not None
        # torchgen prints this for a header, where an unused function causes no warning.
        text = text.replace("inline ", "[[maybe_unused]] inline ")
        kernel = backends[DispatchKey.CompositeExplicitAutograd].get_kernel(f)
        return text if kernel is None else call_kernel_below_autograd(f, kernel, text)

    return {
        "operator_declarations": [
            gen.ComputeOperators(Target.DECLARATION, [])(f) for f in functions
        ],
        "operator_definitions": [gen.ComputeOperators(Target.DEFINITION, [])(f) for f in functions],
        "operator_functions": [gen.ComputeFunction()(f) for f in functions],
        "redispatch_functions": [
            redispatch(f) for f in functions if not f.has_composite_implicit_autograd_kernel
        ],
    }


def is_node_alone(f: NativeFunction, backends: dict[DispatchKey, BackendIndex]) -> bool:
    """Whether it is no operator, but a node that is made by hand."""
    kernel = backends[DispatchKey.CompositeExplicitAutograd].get_kernel(f)
    return kernel is not None and kernel.kernel == "node_alone"


def call_kernel_below_autograd(f: NativeFunction, kernel: BackendMetadata, text: str) -> str:
    """An operator without kernels of its own is, below its autograd kernel, the ATen operators it
    is made of: compilers, exporters, subclasses and DTensor see those. Only inside a torch.func
    transform must the operator itself go on to the next level, which differentiates it again."""
    args = ", ".join(arguments_of(kernel, f))
    shortcut = f"    if (!has_functorch_level()) return {qualified(kernel)}({args});\n"
    if f.func.kind() is SchemaKind.inplace:
        shortcut += "    torch::autograd::increment_version(self);\n"  # as ATen's own kernel does
    return insert_after(shortcut, "{\n", text)


def insert_after(lines: str, entry: str, text: str, count: int = -1) -> str:
    """Puts lines after the entry to each function of a text, or to the first `count`."""
    if entry not in text:
        raise RuntimeError(f"no {entry!r} in {text!r} (torch {torch.__version__})")
    return text.replace(entry, entry + lines, count)


def is_aten(kernel: BackendMetadata) -> bool:
    return kernel.cpp_namespace.startswith("aten::")


def qualified(kernel: BackendMetadata) -> str:
    """The function that `dispatch` names: ATen's own if it says aten::NAME."""
    space = "at" if is_aten(kernel) else f"{NAMESPACE}::native"
    return f"{space}::{kernel.kernel.removesuffix('_symint')}"


def arguments_of(kernel: BackendMetadata, f: NativeFunction) -> list[str]:
    """The arguments for the kernel; ATen's take no convention."""
    names = [a.name for a in f.func.arguments.flat_all]
    return [n for n in names if not (is_aten(kernel) and n in ("gradient", "maximize"))]


def as_pointer(kernel: BackendMetadata, f: NativeFunction, sig: NativeSignature) -> str:
    """A pointer to the kernel, of the type that the schema implies."""
    if len(given := arguments_of(kernel, f)) == len(f.func.arguments.flat_all):
        # Overloads share a name: the cast says which one.
        return f"static_cast<{sig.ptr_type()}>({qualified(kernel)})"
    parameters = ", ".join(a.decl() for a in sig.arguments())
    returned = sig.returns_type().cpp_type()
    call = f"{qualified(kernel)}({', '.join(given)})"
    return f"[]({parameters}) -> {returned} {{ return {call}; }}"


def level_rules(f: NativeFunction) -> list[tuple[str, str]]:
    """The rules for levels of torch.func other than grad."""

    def rule(template: str, *names: OperatorName) -> str:
        calls = (f"{NAMESPACE}::_ops::{name.unambiguous_name()}::call" for name in names)
        return f"{NAMESPACE}::level_rules::{template}<{', '.join(calls)}>"

    rules = [("FuncTorchBatched", rule("Batched", f.func.name))]
    if f.func.kind() is SchemaKind.inplace:
        functional = replace(f.func.name, name=replace(f.func.name.name, inplace=False))
        rules.append(("Functionalize", rule("Functionalized", f.func.name, functional)))
    return rules


def registrations(
    functions: list[NativeFunction], backends: dict[DispatchKey, BackendIndex]
) -> dict[str, object]:
    declarations: dict[str, None] = {}  # ordered, without duplicates
    by_key: dict[str, list[str]] = {key: [] for key in FRONT_DOOR_KEYS}
    for f in functions:
        with native_function_manager(f):
            sig = NativeSignature(f.func, symint=f.func.has_symint())
            for key, index in backends.items():
                metadata = index.get_kernel(f)
                if metadata is None:
                    continue
                if not is_aten(metadata):
                    name = qualified(metadata).split("::")[-1]
                    declarations[sig.decl(name=name) + ";"] = None
                line = f'm.impl("{f.func.name}", {as_pointer(metadata, f, sig)});'
                keys: tuple[str, ...] = (str(key),)
                if key is DispatchKey.CompositeImplicitAutograd:
                    keys = FRONT_DOOR_KEYS
                    if f.func.kind() is not SchemaKind.functional:
                        keys += ("Functionalize",)
                for k in keys:
                    by_key.setdefault(k, []).append(line)
                if key is DispatchKey.CompositeExplicitAutograd:
                    for k, rule in level_rules(f):
                        by_key.setdefault(k, []).append(f'm.impl("{f.func.name}", {rule}::call);')
    blocks = [
        f"TORCH_LIBRARY_IMPL({NAMESPACE}, {key}, m) {{\n  " + "\n  ".join(lines) + "\n}\n"
        for key, lines in by_key.items()
        if lines
    ]
    schema = gen.RegisterSchema(EVERYTHING)
    return {
        "kernel_declarations": list(declarations),
        "schema_registrations": [schema(f) for f in functions],
        "kernel_registrations": blocks,
    }


def autograd(pairs, node_infos, backends) -> dict[str, object]:  # type: ignore[no-untyped-def]
    derived = [p for p in pairs if variable_type.use_derived(p)]
    kernels = [variable_type.gen_variable_type_func(p) for p in derived]

    def per_node(template: CodeTemplate) -> list[str]:
        return [nodes.process_function(i, template) for i in node_infos]

    def definition(info: DifferentiabilityInfo) -> str:
        text = nodes.process_function(info, nodes.FUNCTION_DEFINITION)
        return check_shape(text) if is_node_alone(info.func, backends) else text

    return {
        "make_node": [
            template.substitute(op="Node", op_ctor="", args_with_derivatives=["inputs..."])
            for template in (variable_type.DECLARE_GRAD_FN, variable_type.ASSIGN_GRAD_FN)
        ],
        # Exported, because their Python types, in the module, name the class.
        "node_declarations": [
            text.replace("TORCH_API ", "CLAMPGRAD_FOR_PYTHON ")
            for text in per_node(nodes.FUNCTION_DECLARATION)
        ],
        "node_definitions": [definition(i) for i in node_infos],
        "autograd_definitions": [
            enter_front_door(p.func, text)
            for p, k in zip(derived, kernels)
            for text in k["type_derived_method_definitions_Default"]
        ],
        "autograd_registrations": [
            text for k in kernels for text in k["wrapper_registrations_Default"]
        ],
        "python_getters": per_node(nodes.PY_FUNCTION_PROPS_AND_GETTERS),
        "python_types": per_node(nodes.PY_FUNCTION_DEFINITION),
    }


def check_shape(text: str) -> str:
    """Makes the node check the shape, which bits do not know, before it reads them."""
    return insert_after(
        "  check_shape(*this, grads);\n", "::apply(variable_list&& grads) {\n", text
    )


def enter_front_door(f: NativeFunction, text: str) -> str:
    """Makes the kernel of `X_mingrad` call the front door X where codegen/README.md says so."""
    if not str(f.func.name.name).endswith("_mingrad"):
        return text
    args = ", ".join(a.name for a in f.func.arguments.flat_all)
    door = call_door(f, *convention_of(f), args)
    shortcut = f"  if (is_functionalizing() || all_tensors(is_fusable, {args})) return {door};\n"
    numbers = [a.name for a in f.func.arguments.flat_all if "Scalar" in str(a.type)]
    if numbers:
        changing = " || ".join(f"depends_on_dynamic_float({n})" for n in numbers)
        again = ", ".join(["ks", "self", *(f"guard_dynamic_floats({n})" for n in numbers)])
        kernel = f.func.name.unambiguous_name()
        shortcut += f"  if ({changing}) return {kernel}({again});\n"
    return insert_after(shortcut, "{\n", text, 1)


def check_output(name: str, text: str) -> None:
    """Nothing may be left in ATen's namespace, and no template variable unfilled."""
    for spelling in ("at::redispatch::", "at::_ops::", '"aten::', "TORCH_API", "${"):
        position = text.find(spelling)
        if position >= 0:
            line = text.count("\n", 0, position) + 1
            source = text.splitlines()[line - 1].strip()
            raise RuntimeError(
                f"generated {name}:{line} still says {spelling!r}: {source} (torch {torch.__version__})"
            )


def check_complete(files: dict[str, str], functions: list[NativeFunction]) -> None:
    """Every operator is registered, and every one with a node has its autograd kernel."""
    for f in functions:
        if f'm.impl("{f.func.name}"' not in files["Register.cpp"]:
            raise RuntimeError(f"{f.func.name} got no kernel (torch {torch.__version__})")
        if (
            not f.has_composite_implicit_autograd_kernel
            and f'm.impl("{f.func.name}"' not in files["VariableType.cpp"]
        ):
            raise RuntimeError(f"{f.func.name} got no autograd kernel (torch {torch.__version__})")
