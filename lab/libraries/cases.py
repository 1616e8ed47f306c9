"""What other people's libraries do with a model: a function a case, in the order of the table.

A case makes its model, gives it and an input to `change` at the place that its name
says, and returns what the library made of it: tensors, numbers and texts. `change`
converts the model, or leaves it as it is. A case of `gradients` returns gradients that
depend on each ReLU, ReLU6 and Hardtanh.
"""

import contextlib
import copy
import io
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)) * 3
ROWS = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)) * 3


class Case(NamedTuple):
    library: str  # as pip calls it, or where in torch it is
    function: Callable
    gradients: bool
    words: str
    error: str | None  # what the error of a converted model says, where it must be one


CASES: dict[str, Case] = {}


def case(library, words, gradients=False, error=None):
    def register(function):
        CASES[function.__name__] = Case(library, function, gradients, words, error)
        return function

    return register


def is_a_part(library):
    """Of torch or of Python."""
    return library.startswith("torch.") or library in sys.stdlib_module_names


# ---- Models --------------------------------------------------------------------------------------


def chain(inplace=False):
    """One ReLU6, whose input nothing else keeps; one ReLU, whose result
    nothing else keeps; one Hardtanh."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(inplace)),
        *(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace), nn.Upsample(scale_factor=2)),
        *(nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(16, 8), nn.Hardtanh(-1.0, 1.0, inplace)),
        nn.Linear(8, 2),
    )
    return scaled(model)


def rows(*activations):
    """A model of rows, for libraries that know few layers."""
    torch.manual_seed(0)
    activations = activations or (nn.ReLU(), nn.ReLU6(), nn.Hardtanh())
    layers = [layer for a in activations for layer in (nn.Linear(6, 6), a, nn.Dropout(0.25))]
    return scaled(nn.Sequential(*layers, nn.Linear(6, 2)))


def scaled(model):
    """Every activation meets values beyond its bounds."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d | nn.Linear):
                module.weight.mul_(4)
    return model


def trained(model, x=X):
    """The result and all gradients of one step."""
    model.zero_grad()
    torch.manual_seed(3)
    result = model(x)
    result.square().sum().backward()
    return [result, *(p.grad for p in model.parameters())]


def types(model):
    """The classes of all modules, those of clampgrad by the names of torch's."""
    names = (f"{type(module).__module__}.{type(module).__name__}" for module in model.modules())
    return " ".join(
        re.sub(r"^(clampgrad|torch)\.nn\.(modules\.(\w+\.)*)?", "", name) for name in names
    )


# ---- torch.ao ------------------------------------------------------------------------------------


def stubbed():
    from torch.ao import quantization as ao

    return nn.Sequential(ao.QuantStub(), *chain(), ao.DeQuantStub())


def eager_config(model, qat):
    from torch.ao import quantization as ao

    backend = torch.backends.quantized.engine = "fbgemm"
    get = ao.get_default_qat_qconfig if qat else ao.get_default_qconfig
    model.qconfig = get(backend)
    return model


@case("torch.ao", "eager PTQ")
def eager_ptq(change):
    from torch.ao import quantization as ao

    model = ao.prepare(eager_config(change(stubbed(), X).eval(), qat=False))
    model(X)
    integers = ao.convert(model)
    return integers(X), types(integers)


@case("torch.ao", "eager QAT, converted first", gradients=True)
def eager_qat(change):
    from torch.ao import quantization as ao

    model = ao.prepare_qat(eager_config(change(stubbed(), X).train(), qat=True))
    gradients = trained(model)
    integers = ao.convert(model.eval())
    return gradients, integers(X), types(integers)


@case("torch.ao", "eager QAT, prepared first", gradients=True)
def eager_qat_prepared_first(change):
    from torch.ao import quantization as ao

    model = change(ao.prepare_qat(eager_config(stubbed().train(), qat=True)), X)
    gradients = trained(model)
    integers = ao.convert(model.eval())
    return gradients, integers(X), types(integers)


def fx_configs(qat):
    from torch.ao import quantization as ao

    backend = torch.backends.quantized.engine = "fbgemm"
    get = ao.get_default_qat_qconfig_mapping if qat else ao.get_default_qconfig_mapping
    return get(backend)


@case("torch.ao", "FX PTQ")
def fx_ptq(change):
    from torch.ao.quantization import quantize_fx

    model = quantize_fx.prepare_fx(change(chain(), X).eval(), fx_configs(qat=False), (X,))
    model(X)
    integers = quantize_fx.convert_fx(model)
    return integers(X), types(integers), integers.code


@case("torch.ao", "FX QAT, converted first", gradients=True)
def fx_qat(change):
    from torch.ao.quantization import quantize_fx

    model = quantize_fx.prepare_qat_fx(change(chain(), X).train(), fx_configs(qat=True), (X,))
    gradients = trained(model)
    integers = quantize_fx.convert_fx(model.eval())
    return gradients, integers(X), types(integers), integers.code


@case("torch.ao", "FX QAT, prepared first", gradients=True)
def fx_qat_prepared_first(change):
    from torch.ao.quantization import quantize_fx

    model = quantize_fx.prepare_qat_fx(chain().train(), fx_configs(qat=True), (X,))
    gradients = trained(change(model, X))
    integers = quantize_fx.convert_fx(model.eval())
    return gradients, integers(X), types(integers), integers.code


@case("torch.ao", "fuse_modules")
def fuse_modules(change):
    from torch.ao import quantization as ao

    fused = ao.fuse_modules(change(chain(), X).eval(), [["3", "4", "5"]])
    return fused(X), types(fused)


@case("torch.ao", "fuse_modules_qat", gradients=True)
def fuse_modules_qat(change):
    from torch.ao import quantization as ao

    fused = ao.fuse_modules_qat(change(chain(), X).train(), [["3", "4", "5"]])
    return trained(fused), types(fused)


@case("torch.ao", "fuse_modules_qat, converted afterwards", gradients=True)
def fuse_modules_qat_first(change):
    from torch.ao import quantization as ao

    return trained(change(ao.fuse_modules_qat(chain().train(), [["3", "4", "5"]]), X))


@case("torch.ao", "fuse_modules_qat and eager QAT, converted in between", gradients=True)
def fuse_modules_qat_in_between(change):
    from torch.ao import quantization as ao

    fused = change(ao.fuse_modules_qat(stubbed().train(), [["4", "5", "6"]]), X)
    return trained(ao.prepare_qat(eager_config(fused, qat=True)))


@case("torch.ao", "quantize_dynamic")
def quantize_dynamic(change):
    from torch.ao import quantization as ao

    model = ao.quantize_dynamic(change(chain(), X).eval(), {nn.Linear})
    return model(X), types(model)


@case("torch.ao", "structured pruning", gradients=True)
def structured_pruning(change):
    from torch.ao.pruning._experimental.pruner.saliency_pruner import SaliencyPruner

    torch.manual_seed(0)
    activations = nn.ReLU6(), nn.ReLU(), nn.Hardtanh()
    layers = [layer for a in activations for layer in (nn.Linear(6, 6), a)]
    model = change(nn.Sequential(*layers, nn.Linear(6, 2)), ROWS)
    pruner = SaliencyPruner({"sparsity_level": 0.5})
    pruner.prepare(model, [{"tensor_fqn": f"{number}.weight"} for number in (0, 2, 4)])
    pruner.enable_mask_update = True
    pruner.step()
    pruned = pruner.prune()
    return trained(pruned, ROWS), types(pruned)


# ---- torchao -------------------------------------------------------------------------------------


def pt2e(change, qat):
    from torchao.quantization.pt2e import move_exported_model_to_eval, quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    model = change(chain(), X).train(qat)
    exported = torch.export.export(model, (X,), strict=True).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=qat))
    prepare = quantize_pt2e.prepare_qat_pt2e if qat else quantize_pt2e.prepare_pt2e
    prepared = prepare(exported, quantizer)
    made = trained(prepared) if qat else [prepared(X)]
    if qat:
        move_exported_model_to_eval(prepared)
    integers = quantize_pt2e.convert_pt2e(prepared)
    return made, integers(X), [str(node.target) for node in integers.graph.nodes]


@case("torchao", "PT2E PTQ, x86")
def pt2e_ptq(change):
    return pt2e(change, qat=False)


@case("torchao", "PT2E QAT, x86", gradients=True)
def pt2e_qat(change):
    return pt2e(change, qat=True)


@case("torchao", "quantize_, int8 weights")
def quantize_(change):
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = change(chain(), X).eval()
    quantize_(model, Int8WeightOnlyConfig())
    return model(X), types(model)


@case("torchao", "quantize_, QAT", gradients=True)
def quantize_qat(change):
    from torchao.quantization import quantize_
    from torchao.quantization.qat import IntxFakeQuantizeConfig, QATConfig

    model = change(rows(), ROWS)
    levels = IntxFakeQuantizeConfig(torch.int4, group_size=3)
    quantize_(model, QATConfig(weight_config=levels, step="prepare"))
    return trained(model, ROWS), types(model)


# ---- Attributions: most methods have rules of their own in the place of gradients ----------------


def attributed(method, change, *arguments, **keywords):
    import captum.attr

    model = change(rows(), ROWS).eval()
    arguments = [argument(model) if callable(argument) else argument for argument in arguments]
    return getattr(captum.attr, method)(model, *arguments).attribute(ROWS, target=1, **keywords)


@case("captum", "DeepLift")
def deep_lift(change):
    return attributed("DeepLift", change, baselines=ROWS * 0, return_convergence_delta=True)


@case("captum", "DeepLiftShap")
def deep_lift_shap(change):
    return attributed("DeepLiftShap", change, baselines=ROWS.flip(0))


@case("captum", "LayerDeepLift")
def layer_deep_lift(change):
    return attributed("LayerDeepLift", change, lambda model: model[3], baselines=ROWS * 0)


@case("captum", "LRP")
def lrp(change):
    import captum.attr

    model = change(rows(nn.ReLU(), nn.ReLU()), ROWS).eval()
    return captum.attr.LRP(model).attribute(ROWS, target=1, return_convergence_delta=True)


@case("captum", "GuidedBackprop")
def guided_backprop(change):
    return attributed("GuidedBackprop", change)


@case("captum", "IntegratedGradients", gradients=True)
def integrated_gradients(change):
    return attributed("IntegratedGradients", change, baselines=ROWS * 0)


@case("zennit", "EpsilonPlus")
def epsilon_plus(change):
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlus

    with Gradient(change(rows(), ROWS).eval(), EpsilonPlus()) as attributor:
        return attributor(ROWS, torch.eye(2)[[0, 1, 0, 1]])


@case("shap", "DeepExplainer")
def shap_deep(change):
    import shap

    explainer = shap.DeepExplainer(change(rows(), ROWS).eval(), ROWS.flip(0))
    return torch.from_numpy(explainer.shap_values(ROWS, check_additivity=False))


# ---- Gradients in another way --------------------------------------------------------------------


def extended(change, activations, **extensions):
    """BackPACK's quantities of each parameter, by names."""
    from backpack import backpack, extend
    from backpack import extensions as known

    torch.manual_seed(4)
    model = extend(change(rows(*activations), ROWS).eval())
    loss = extend(nn.CrossEntropyLoss())(model(ROWS), torch.tensor([0, 1, 0, 1]))
    with backpack(*(getattr(known, name)() for name in extensions.values())):
        loss.backward()
    return [getattr(p, name) for p in model.parameters() for name in extensions]


@case("backpack-for-pytorch", "BatchGrad", gradients=True)
def batch_grad(change):
    return extended(change, (), grad_batch="BatchGrad")


@case("backpack-for-pytorch", "DiagGGN")
def diag_ggn(change):
    return extended(change, [nn.ReLU()], diag_ggn_exact="DiagGGNExact")


@case("backpack-for-pytorch", "KFLR")
def kflr(change):
    return extended(change, [nn.ReLU()], kflr="KFLR")


@case("backpack-for-pytorch", "DiagHessian")
def diag_hessian(change):
    return extended(change, [nn.ReLU()], diag_h="DiagHessian")


@case("opacus", "GradSampleModule", gradients=True)
def grad_sample(change):
    from opacus import GradSampleModule

    model = GradSampleModule(change(rows(), ROWS))
    trained(model, ROWS)
    return [p.grad_sample for p in model.parameters()]


@case("torch.func", "functional_call", gradients=True)
def functional_call(change):
    model = change(chain(), X).eval()

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (X,)).square().sum()

    return torch.func.grad(loss)(dict(model.named_parameters()))


@case("torch.func", "stack_module_state and vmap", gradients=True)
def stacked(change):
    models = [change(rows(), ROWS).eval() for _ in range(2)]
    stacked, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def loss(parameters, buffers):
        return torch.func.functional_call(base, (parameters, buffers), (ROWS,)).square().sum()

    return torch.func.vmap(torch.func.grad(loss))(stacked, buffers)


# ---- Counting and pruning ------------------------------------------------------------------------


@case("ptflops", "counts of modules")
def ptflops_modules(change):
    return ptflops(change, "pytorch")


@case("ptflops", "counts of operators")
def ptflops_operators(change):
    return ptflops(change, "aten")


def ptflops(change, backend):
    from ptflops import get_model_complexity_info

    keywords = {"as_strings": False, "print_per_layer_stat": False, "backend": backend}
    return get_model_complexity_info(change(chain(), X).eval(), (3, 6, 6), **keywords)


@case("fvcore", "FlopCountAnalysis")
def fvcore(change):
    import fvcore.nn

    model = change(chain(), X).eval()
    flops, activations = (
        count(model, X)
        for count in (fvcore.nn.FlopCountAnalysis, fvcore.nn.ActivationCountAnalysis)
    )
    return flops.by_module(), dict(flops.unsupported_ops()), activations.by_module()


@case("thop", "profile")
def thop(change):
    from thop import profile

    return profile(change(chain(), X).eval(), (X,), verbose=False)


@case("torchinfo", "summary")
def torchinfo(change):
    from torchinfo import summary

    found = summary(change(chain(), X).eval(), input_data=X, verbose=0)
    return (
        found.total_mult_adds,
        found.total_params,
        [layer.class_name for layer in found.summary_list],
    )


@case("torch.utils", "FlopCounterMode")
def flop_counter(change):
    from torch.utils.flop_counter import FlopCounterMode

    model = change(chain(), X)
    with FlopCounterMode(display=False) as counter:
        model(X).sum().backward()
    return counter.get_total_flops()


@case("torch-pruning", "DependencyGraph", gradients=True)
def pruned(change):
    import torch_pruning

    model = change(chain(), X)
    graph = torch_pruning.DependencyGraph().build_dependency(model, example_inputs=X)
    group = graph.get_pruning_group(model[0], torch_pruning.prune_conv_out_channels, idxs=[1, 3])
    group.prune()
    return trained(model), torch_pruning.utils.count_ops_and_params(model, X)


# ---- Models of libraries, and passes over them ---------------------------------------------------


@case("timm", "mobilenetv2, trained", gradients=True)
def timm_trained(change):
    import timm

    torch.manual_seed(0)
    x = torch.randn(4, 3, 32, 32)
    model = timm.create_model("mobilenetv2_035", num_classes=6)
    bounded = nn.BatchNorm1d(6), nn.Hardtanh(-0.5, 0.5), nn.BatchNorm1d(6), nn.ReLU()
    return trained(change(nn.Sequential(model, *bounded, nn.Linear(6, 2)), x), x)


@case("timm", "reparameterize_model")
def timm_reparameterized(change):
    import timm
    from timm.utils.model import reparameterize_model

    torch.manual_seed(0)
    x = torch.randn(2, 3, 32, 32)
    model = reparameterize_model(change(timm.create_model("repvgg_a0", num_classes=3), x).eval())
    return model(x), types(model)


@case("timm", "create_feature_extractor", gradients=True)
def timm_features(change):
    from timm.models._features_fx import create_feature_extractor

    model = create_feature_extractor(change(chain(), X), {"5": "relu", "11": "last"})
    return trained(lambda_of(model), X)


class lambda_of(nn.Module):
    """One result of several."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)["last"]


@case("torch.fx", "fuse, optimize_for_inference")
def fx_optimized(change):
    from torch.fx.experimental import optimization

    model = change(chain(), X).eval()
    fused, optimized = optimization.fuse(model), optimization.optimize_for_inference(model)
    return fused(X), types(fused), optimized(X), optimized.code


@case("torch.fx", "symbolic_trace", gradients=True)
def symbolic_trace(change):
    traced = torch.fx.symbolic_trace(change(chain(), X))
    return trained(traced)


@case("torch.fx", "modules that are leaves")
def leaves(change):
    traced = torch.fx.symbolic_trace(change(chain(), X))
    return [f"{node.op} {node.target}" for node in traced.graph.nodes]


@case("sinabs", "from_model")
def sinabs(change):
    from sinabs.from_torch import from_model

    network = from_model(change(rows(nn.ReLU()), ROWS).eval(), batch_size=4)
    return types(network.spiking_model)


@case("spikingjelly", "ann2snn")
def spikingjelly(change):
    from spikingjelly.activation_based import ann2snn

    model = change(rows(nn.ReLU()), ROWS).eval()
    spiking = ann2snn.FXConverter(ann2snn.RateCodingRecipe([(ROWS, 0)])).convert(model)
    return types(spiking)


@case("brevitas", "preprocess_for_quantize")
def brevitas(change):
    from brevitas.graph.quantize import preprocess_for_quantize

    model = preprocess_for_quantize(change(chain(), X).eval(), trace_model=True)
    return model(X), types(model)


# ---- Hooks and shards ----------------------------------------------------------------------------


def hooked(model):
    from accelerate.hooks import ModelHook, add_hook_to_module

    class Counts(ModelHook):
        calls = 0

        def pre_forward(self, module, *args, **kwargs):
            Counts.calls += 1
            return args, kwargs

    for module in model.children():
        add_hook_to_module(module, Counts())
    return model, Counts


@case("accelerate", "hooks before", gradients=True)
def hooks_before(change):
    model, counts = hooked(chain())
    change(model, X)
    counts.calls = 0
    return trained(model), counts.calls


@case("accelerate", "hooks after", gradients=True)
def hooks_after(change):
    model, counts = hooked(change(chain(), X))
    return trained(model), counts.calls


@case("accelerate", "cpu_offload after")
def cpu_offload(change):
    import accelerate

    model = change(chain(), X).eval()
    return accelerate.cpu_offload(model, execution_device=torch.device("cpu"))(X)


@case("accelerate", "cpu_offload before", gradients=True)
def cpu_offload_before(change):
    import accelerate

    model = chain().eval()
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    x = X.clone().requires_grad_()
    change(model, X)(x).sum().backward()
    return x.grad


@contextlib.contextmanager
def group_of_one():
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/f", rank=0, world_size=1)
        try:
            yield dist
        finally:
            dist.destroy_process_group()


@case("torch.distributed", "DDP", gradients=True)
def ddp(change):
    with group_of_one():
        return trained(nn.parallel.DistributedDataParallel(change(chain(), X)))


def sharded(change, after):
    from torch.distributed.fsdp import fully_shard

    with group_of_one() as dist:
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        model = chain()
        for module in [model[2], model[5], model[10], model] if not after else []:
            fully_shard(module, mesh=mesh)
        change(model, X)
        for module in [model[2], model[5], model[10], model] if after else []:
            fully_shard(module, mesh=mesh)
        result, *gradients = trained(model)
        return result, [gradient.full_tensor() for gradient in gradients]


@case("torch.distributed", "fully_shard before", gradients=True)
def fsdp_before(change):
    return sharded(change, after=False)


@case("torch.distributed", "fully_shard after", gradients=True)
def fsdp_after(change):
    return sharded(change, after=True)


# ---- Graphs --------------------------------------------------------------------------------------


def run_onnx(path):
    import onnx
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    operators = [node.op_type for node in onnx.load(path).graph.node]
    return torch.from_numpy(result), operators


@case("torch.onnx", "the exporter")
def onnx_dynamo(change):
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = f"{folder}/model.onnx"
        torch.onnx.export(change(chain(), X).eval(), (X,), path, dynamo=True, verbose=False)
        return run_onnx(path)


@case("torch.onnx", "the older exporter")
def onnx_older(change):
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        torch.onnx.export(change(chain(), X).eval(), (X,), path, dynamo=False)
        return run_onnx(path)


@case("torch.jit", "trace", gradients=True)
def jit_trace(change):
    return trained(torch.jit.trace(change(chain(), X), X, check_trace=False))


@case("torch.jit", "script", gradients=True)
def jit_script(change):
    return trained(torch.jit.script(change(chain(), X)))


@case("torch.jit", "freeze, optimize_for_inference")
def jit_frozen(change):
    traced = torch.jit.trace(change(chain(), X).eval(), X)
    return torch.jit.optimize_for_inference(torch.jit.freeze(traced))(X)


@case("torch.export", "strict")
def export_strict(change):
    return exported(change, strict=True)


@case("torch.export", "not strict")
def export_loose(change):
    return exported(change, strict=False)


def exported(change, strict):
    program = torch.export.export(change(chain(), X).eval(), (X,), strict=strict)
    graph = [str(node.target) for node in program.run_decompositions().graph.nodes]
    return program.module()(X), graph


@case("torch.export", "trained", gradients=True)
def export_trained(change):
    program = torch.export.export(change(chain(), X), (X,), strict=False)
    return trained(program.module())


@case("torch.compile", "converted first", gradients=True)
def compiled_after(change):
    return trained(torch.compile(change(chain(), X), backend="aot_eager", fullgraph=True))


@case("torch.compile", "compiled first", gradients=True)
def compiled_before(change):
    model = chain()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    trained(compiled)
    change(model, X)
    return trained(compiled)


@case("torch.compile", "converted first, compiled autograd", gradients=True)
def compiled_autograd(change):
    with torch._dynamo.config.patch(compiled_autograd=True):
        return trained(torch.compile(change(chain(), X), backend="aot_eager"))


# ---- Copies and processes ------------------------------------------------------------------------


@case("copy", "deepcopy", gradients=True)
def deepcopied(change):
    return trained(copy.deepcopy(change(chain(), X)))


@case("pickle", "in place, in the same process", gradients=True)
def pickled(change):
    return trained(pickle.loads(pickle.dumps(change(chain(inplace=True), X))))


LOADS = """
import sys, torch
{before}
model, x = torch.load(sys.argv[1], weights_only=False)
model.zero_grad()
torch.manual_seed(3)
result = model(x)
result.square().sum().backward()
torch.save([result.detach(), *(p.grad for p in model.parameters())], sys.argv[2])
"""


def loaded_elsewhere(change, before="", **variables):
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "given.pt"), Path(folder, "made.pt")
        torch.save((change(chain(), X), X), given)
        env = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD")}
        command = [sys.executable, "-c", LOADS.format(before=before), given, made]
        ended = subprocess.run(command, env=env | variables, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stderr.strip().splitlines()[-1])
        return torch.load(made)


@case("torch.save", "loaded in another process", gradients=True)
def saved(change):
    return loaded_elsewhere(change)


@case("torch.save", "loaded where clampgrad is missing", gradients=True, error="clampgrad")
def saved_for_others(change):
    return loaded_elsewhere(change, "sys.modules['clampgrad'] = None")


@case("torch.nn", "state_dict, loaded by a stock twin")
def state_dict(change):
    """The twin has torch's gradient."""
    model, twin = change(chain(), X), chain()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    twin.load_state_dict(model.state_dict())
    return trained(twin)


def send(queue, model, x):
    result, *gradients = trained(model, x)
    queue.put([tensor.detach().numpy() for tensor in (result, *gradients)])


@case("multiprocessing", "spawn", gradients=True)
def spawned(change):
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=send, args=(queue, change(chain(), X), X))
    process.start()
    try:
        return [torch.from_numpy(array) for array in queue.get(timeout=120)]
    finally:
        process.join()
