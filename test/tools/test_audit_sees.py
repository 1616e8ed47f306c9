"""An audit sees the clamp family wherever a pin reaches it, and puts each call to the line of the
program and to the function of torch that the line calls. What it cannot examine, it names."""

import re
import threading
import time
from contextlib import suppress
from functools import partial

import pytest
import torch
import torch.autograd.forward_ad as fwad
import torch.nn.functional as F
from functorch.compile import aot_function, nop
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils.checkpoint import checkpoint

import clampgrad
from clampgrad._tools.audit import observer

X = (0.0, 0.5, 1.0, 2.0)


def leaf(*values):
    return torch.tensor(values or X, requires_grad=True)


def clamp(x):
    return x.clamp(0, 1)


def seen(program, *args):
    """The report of a program that runs once, and that nothing went unseen."""
    with clampgrad.audit() as report:
        program(*args)
    assert not report.skipped, report.skipped
    return report


def backward(f, *tensors):
    return lambda: f(*tensors).sum().backward()


# ---- What C++, and Python inside of torch, call --------------------------------------------------

ONE, ZERO = torch.ones(1), torch.zeros(1)
CALLS = {  # a call at its margin or at a bound: the operator that it calls
    "margin_ranking_loss": (lambda: F.margin_ranking_loss(leaf(1.0), ZERO, ONE, 1.0), "clamp_min"),
    "hinge_embedding_loss": (lambda: F.hinge_embedding_loss(leaf(1.0), -ONE), "clamp_min"),
    "cosine_embedding_loss": (
        lambda: F.cosine_embedding_loss(leaf(1.0, 0.0)[None], torch.tensor([[0.0, 1.0]]), -ONE),
        "clamp_min",
    ),
    "triplet_margin_loss": (
        lambda: F.triplet_margin_loss(
            leaf(1.0, 0.0)[None], torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), eps=0
        ),
        "clamp_min",
    ),
    "normalize": (lambda: F.normalize(leaf(1.0, 0.0), dim=0, eps=1.0), "clamp_min"),
    "Uniform.cdf": (lambda: torch.distributions.Uniform(0.0, 1.0).cdf(leaf(0.0, 0.5)), "clamp"),
    "corrcoef": (
        lambda: torch.corrcoef(torch.stack([leaf(0.0, 1.0), torch.tensor([0.0, 1.0])])),
        "clamp",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_function_of_torch_calls(name):
    f, through = CALLS[name]
    report = seen(backward(f))
    (finding,) = (x for x in report if x.recorded)
    assert (finding.function, finding.through, finding.file) == (name, through, __file__)
    assert finding.at_bound and finding.by_release[0]
    assert re.match(
        rf"Between 2.11 and 2.15 the gradient of 1 call changed: {name} at \S+, through {through}; "
        r"a pin restores it\.",
        report.summary(),
    )


def test_the_module_of_a_loss():
    loss = nn.TripletMarginLoss(eps=0.0)
    report = seen(
        backward(loss, leaf(1.0, 0.0)[None], torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]))
    )
    (finding,) = report
    assert (finding.function, finding.module) == ("triplet_margin_loss", "TripletMarginLoss")
    assert "around the call of triplet_margin_loss" in finding.remedy


# ---- Where Python does not look ------------------------------------------------------------------


class Tagged(torch.Tensor):
    """A subclass without a dispatch of its own."""


def in_a_thread(f):
    def program():
        thread = threading.Thread(target=f)
        thread.start()
        thread.join()

    return program


def on_a_view():
    y = leaf() * 1
    y[1:].clamp_(0, 1)
    (y * torch.arange(4.0)).sum().backward()


def on_a_column():
    y = (leaf()[:, None] * torch.ones(4, 3)).t()
    y[1].clamp_(0, 1)
    y[1].sum().backward()


PROGRAMS = {  # what runs: how many elements, and how many of them are at a bound
    "a script": (lambda: torch.jit.script(clamp)(leaf()).sum().backward(), 4, 2),
    "grad": (partial(torch.func.grad(lambda x: clamp(x).sum()), torch.tensor(X)), 4, 2),
    "vjp": (
        lambda: torch.func.vjp(clamp, torch.tensor(X))[1](torch.ones(4)),
        4,
        2,
    ),
    "grad of grad": (
        partial(
            torch.func.grad(lambda x: torch.func.grad(lambda x: clamp(x).square().sum())(x).sum()),
            torch.tensor(X),
        ),
        4,
        2,
    ),
    "per sample": (
        partial(torch.vmap(torch.func.grad(lambda x: clamp(x).sum())), torch.tensor(X)[:, None]),
        4,
        2,
    ),
    "vmap": (backward(torch.vmap(clamp), leaf()), 4, 2),
    "vmap, Tensors": (
        backward(lambda x: torch.vmap(torch.clamp)(x, x * 0, x * 0 + 1), leaf()),
        4,
        2,
    ),
    "jacrev": (lambda: torch.func.jacrev(clamp)(torch.tensor(X)), 4, 2),
    "a subclass": (lambda: clamp(leaf().as_subclass(Tagged)).sum().backward(), 4, 2),
    "a thread": (in_a_thread(backward(clamp, leaf())), 4, 2),
    "a view, in place": (on_a_view, 3, 1),
    "a column, in place": (on_a_column, 4, 2),
    "a checkpoint": (
        lambda: checkpoint(clamp, leaf(), use_reentrant=False).sum().backward(),
        4,
        2,
    ),
    "a checkpoint of the old kind": (
        lambda: checkpoint(clamp, leaf(), use_reentrant=True).sum().backward(),
        4,
        2,
    ),
    "aten": (backward(lambda x: torch.ops.aten.clamp(x, 0, 1), leaf()), 4, 2),
    "a list": (lambda: torch._foreach_clamp_min([leaf()], 0.5)[0].sum().backward(), 4, 1),
    "traced": (backward(torch.jit.trace(clamp, torch.tensor(X)), leaf()), 4, 2),
    "compiled": (backward(torch.compile(clamp, backend="eager"), leaf()), 4, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_call_is_examined(name):
    program, elements, at_bound = PROGRAMS[name]
    (finding,) = seen(program)
    assert (finding.elements, finding.at_bound) == (elements, at_bound)
    assert finding.by_release[0] and finding.file == __file__


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("a thread", "a list")])
def test_a_pin_holds_where_a_call_is_examined(name):
    """But for threads, which a block does not pin, and lists, which no pin reaches."""
    (finding,) = seen(PROGRAMS[name][0])
    with clampgrad.pin("min_norm"):
        (pinned,) = seen(PROGRAMS[name][0])
    assert pinned.gradient == "min_norm" and pinned.by_release == (0.0, "")
    assert pinned.moved["min_norm"] == 0 and (pinned.moved["inclusive"] or 1) > 0
    assert finding.gradient == "torch"


def test_no_pin_is_promised_for_a_list():
    report = seen(PROGRAMS["a list"][0])
    assert "; no pin reaches a list of Tensors. " in report.summary()
    (finding,) = report
    assert finding.remedy.startswith(
        "No pin reaches a list: for each Tensor, call clampgrad.clamp_min("
    )


def test_a_gradient_of_a_view_is_that_of_what_was_written():
    """Elements beside the view have their own gradient, which does not count."""
    (finding,) = seen(on_a_view)  # of 0.5, 1 and 2 with gradients 1, 2 and 3
    inclusive, joint = (1, 2, 0), (1, 0, 0)
    norm = torch.tensor(inclusive if finding.by_release[1] == "joint" else joint).float().norm()
    assert finding.by_release[0] == pytest.approx(2 / norm.item())


PARTS = {
    "view_as_real": (lambda z: torch.view_as_real(z)[1:, 1], 8, 9),
    "real": (lambda z: z[1:].real, 8, 9),
    "imag": (lambda z: z[1:].imag, 8, 9),
    "negated lazily": (lambda z: z[1:].conj().imag, -6, -5),
}


@pytest.mark.parametrize("part, at_bound, inside", PARTS.values(), ids=PARTS)
def test_a_gradient_of_a_part_of_complex_numbers(part, at_bound, inside):
    """The rest of the numbers has other gradients, which do not count."""

    def program():
        z = torch.tensor([9 + 9j, 1 + 1j, 0.5 + 0.5j], requires_grad=True) * 1
        written = part(z)
        written.clamp_(-1, 1)
        ((written * torch.tensor([1.0, 2.0])).sum() + 7 * torch.view_as_real(z).sum()).backward()

    (finding,) = seen(program)
    inclusive, joint = (at_bound, inside), (0, inside)
    norm = torch.tensor(inclusive if finding.by_release[1] == "joint" else joint).float().norm()
    assert finding.by_release[0] == pytest.approx(abs(at_bound) / norm.item())


def test_audits_of_two_threads_take_turns_at_what_they_share(monkeypatch):
    """The second waits until the first has put its hooks in place."""
    first_is_there, second_may_end = threading.Event(), threading.Event()
    observe, order = observer._implementation.pin_observe, []

    def slowly(function):
        order.append("begins" if function else "ends")
        first_is_there.set()
        time.sleep(0.05)
        order.append("done")
        return observe(function)

    def other():
        first_is_there.wait()
        with clampgrad.audit():
            order.append("second")
            second_may_end.wait()

    monkeypatch.setattr(observer._implementation, "pin_observe", slowly)
    thread = threading.Thread(target=other)
    thread.start()
    with clampgrad.audit():
        second_may_end.set()
        thread.join()
    assert order == ["begins", "done", "second", "ends", "done"]


def test_a_signal_handler_opens_an_audit_inside_another_ones_lock(monkeypatch):
    setprofile = threading.setprofile

    def interrupted(function):
        monkeypatch.setattr(threading, "setprofile", setprofile)
        with clampgrad.audit():
            pass
        setprofile(function)

    monkeypatch.setattr(threading, "setprofile", interrupted)
    report = seen(lambda: F.relu6(leaf()))
    assert len(report) == 1 and not observer._open and threading.getprofile() is None


def test_an_interrupt_while_an_audit_opens(monkeypatch):
    def interrupted(function):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading, "setprofile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clampgrad.audit().__enter__()
    assert not observer._open and observer._stance is None
    assert len(seen(lambda: F.relu6(leaf()))) == 1


def test_a_thread_that_runs_already():
    """Kernels tell of its calls, too."""
    go, done = threading.Event(), threading.Event()

    def work():
        go.wait()
        backward(lambda x: F.normalize(x, dim=0, eps=1.0), leaf(1.0, 0.0))()
        done.set()

    threading.Thread(target=work).start()
    with clampgrad.audit() as report:
        go.set()
        done.wait()
    (finding,) = (x for x in report if x.recorded)
    assert (finding.function, finding.through) == ("normalize", "clamp_min")


def test_threads_see_relu_and_keep_their_profile_function():
    seen_by, before = [], threading.getprofile()
    profile = lambda frame, event, arg: seen_by.append(event)  # noqa: E731
    threading.setprofile(profile)
    try:
        (finding,) = seen(in_a_thread(backward(F.relu, leaf())))
        assert threading.getprofile() is profile
    finally:
        threading.setprofile(before)
    assert finding.function == "relu" and "return" in seen_by


def test_two_audits_see_the_same():
    with clampgrad.audit() as outer, clampgrad.audit() as inner:
        clamp(leaf()).sum().backward()
    assert [f.elements for f in outer] == [f.elements for f in inner] == [4]
    with clampgrad.audit() as later:
        pass
    clamp(leaf())
    assert not len(later)


def test_a_call_that_fails_is_the_last_of_its_kind():
    """What comes after it is seen."""
    with clampgrad.audit() as report:
        with pytest.raises(RuntimeError):
            torch.clamp(leaf(), torch.zeros(3), torch.ones(3))
        clamp(leaf()).sum().backward()
    assert sum(f.elements for f in report if f.moved) == 4


# ---- Bounds of every kind ------------------------------------------------------------------------

NUMBERS = {  # lower bounds, and an input at each
    "an integer": 1,
    "one beyond int64": 2**63,
    "a boolean": True,
    "a float": 0.5,
}


@pytest.mark.parametrize("bound", NUMBERS.values(), ids=NUMBERS)
def test_a_bound_of_every_kind_of_number(bound):
    """By itself, beside another one, from Python and in a list."""
    calls = (
        lambda x: x.clamp(min=bound),
        lambda x: torch.clamp_min(x, bound),
        lambda x: torch.clamp(x, bound, bound),
        lambda x: torch._foreach_clamp_min([x], bound)[0],
        lambda x: torch._foreach_clamp_max([x], [bound])[0],
        lambda x: F.hardtanh(x, bound, 2.0**64),
    )
    for f in calls:
        (finding,) = seen(backward(f, leaf(float(bound))))
        assert finding.at_bound == 1 and f"{bound:g}" in finding.bounds[0]


@pytest.mark.parametrize("function", [torch.clamp, F.hardtanh], ids=["clamp", "hardtanh"])
def test_a_symbolic_bound_of_a_graph(function):
    """The export of a program is no call."""

    class Model(nn.Module):
        def forward(self, x):
            return function(x * 1, 0, x.shape[0])

    shapes = ({0: torch.export.Dim("n")},)
    with clampgrad.audit() as report:
        torch.export.export(Model(), (torch.ones(3),), dynamic_shapes=shapes)
    assert not report.skipped and not len(report)


def test_a_symbolic_bound_of_a_call():
    """A size of a fake Tensor is a symbol, whose value the audit must not fix."""
    dim = StatelessSymbolicContext([DimDynamic.DYNAMIC])
    fakes = FakeTensorMode(shape_env=ShapeEnv())
    size = fakes.from_tensor(torch.ones(3, device="cpu"), symbolic_context=dim).shape[0]
    calls = (
        lambda x: x.clamp(0, size),
        lambda x: x.clamp_min(size * 0.5),
        lambda x: x.clamp(0, size > 1),
        lambda x: F.hardtanh(x, 0, size),
    )
    with clampgrad.audit() as report:
        for f in calls:
            f(leaf()).sum().backward()
    assert report.skipped == {"symbolic bounds": len(calls)} and not len(report)
    assert (
        "3 calls went unexamined (symbolic bounds 3)" in report.summary()
    )  # no release changed hardtanh


# ---- What backward runs again --------------------------------------------------------------------


class Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return clamp(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(clamp(x), x, g)[0]


def in_a_hook(x, hook=clamp):
    y = x * 1
    y.register_hook(hook)
    (g,) = torch.autograd.grad(y.square().sum() / 2, x, create_graph=True)
    return g


AGAIN = {
    "a checkpoint": lambda x: checkpoint(clamp, x, use_reentrant=False),
    "a checkpoint of the old kind": lambda x: checkpoint(clamp, x, use_reentrant=True),
    "a function of one's own": Recomputed.apply,
    "a hook": in_a_hook,
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_gradient_of_what_runs_again_at_a_site_of_forward(name):
    """Before, the site has gradients at no bound."""
    with clampgrad.audit() as report:
        clamp(leaf(0.5)).sum().backward()
        AGAIN[name](leaf(1.0)).sum().backward()
    (finding,) = report
    assert finding.by_release[0] and "the gradient of 1 call changed" in report.summary()


# ---- What is not examined is said ----------------------------------------------------------------


def forward_mode(lo=0):
    with fwad.dual_level():
        torch.clamp(fwad.make_dual(torch.tensor(X), torch.ones(4)), lo, torch.tensor(1.0))


def batched():
    x = leaf()
    torch.autograd.grad(clamp(x), x, torch.eye(4), is_grads_batched=True)


def twice(x):
    return (x.clamp(0, 1) * 2).clamp(0, 1)


def differentiated_by_torchscript():
    f = torch.jit.script(twice)
    for _ in range(3):
        f(leaf()).sum().backward()


def differentiated_beforehand():
    """By AOTAutograd, before the audit or in it."""
    aot_function(clamp, fw_compiler=nop, bw_compiler=nop)(leaf()).sum().backward()


def compiled_under_a_stance():
    torch.compiler.reset()
    with torch.compiler.set_stance("default"):
        torch.compile(clamp, backend="aot_eager")(leaf()).sum().backward()


UNSEEN = {
    "differentiated beforehand": differentiated_beforehand,
    "forward mode": forward_mode,
    "batched gradients": batched,
    "sparse_coo tensors": lambda: torch.ops.aten.clamp(torch.eye(3).to_sparse(), 0, 1),
    "TorchScript differentiates it": differentiated_by_torchscript,
}


@pytest.mark.parametrize("reason", UNSEEN)
def test_the_first_sentence_names_what_was_not_examined(reason):
    with clampgrad.audit() as report:
        try:
            UNSEEN[reason]()
        except NotImplementedError:
            pytest.skip("torch has no such kernel")
    assert set(report.skipped) == {reason}
    first = report.summary().partition(". ")[0]
    assert reason in first and "went unexamined" in first
    assert "did not change" not in first or "may have changed" in first


def test_a_compiled_function_that_a_stance_of_the_program_runs():
    with clampgrad.audit() as report:
        compiled_under_a_stance()
    assert report.skipped == {"differentiated beforehand": 1}


@pytest.mark.of_cpus("the mock device has no sparse Tensors")
def test_nothing_is_named_that_cannot_have_changed():
    """No release changed relu; and meta tensors have no gradient."""
    with clampgrad.audit() as report:
        torch.relu(torch.eye(3).to_sparse())
        clamp(torch.empty(3, device="meta", requires_grad=True))
    assert report.skipped == {"sparse_coo tensors": 1, "meta tensors": 1}
    assert report.summary() == "No call of the clamp family was seen."


def log(x):
    """Of a library, whose calls a mode handles like torch's."""
    if torch.overrides.has_torch_function_unary(x):
        return torch.overrides.handle_torch_function(log, (x,), x)
    return x.clamp(min=0.1).log()


def test_what_the_audit_calls_to_follow_a_bound_is_not_named():
    with clampgrad.audit() as report:
        log(clamp(leaf()))
    assert [finding.calls for finding in report] == [1, 1] and not report.skipped


def test_what_the_audit_computes_with_is_not_named():
    """The dtype of the result is that of Tensors without values."""
    with clampgrad.audit() as report:
        clampgrad.clamp(torch.zeros(2), torch.tensor(0.0), torch.tensor(1))
        clampgrad.maximum(torch.zeros(2), torch.tensor(1.0, dtype=torch.float64))
    assert not report.skipped and len(report) == 2


def test_the_first_sentence_names_what_every_leaves_out():
    with clampgrad.audit(every=3) as report:
        for value in (0.5, 1.0, 1.0):
            clamp(leaf(value)).sum().backward()
            leaf(value).detach().clamp(0, 1)  # without a gradient
            F.relu(leaf(value))  # which no release changed
    first = report.summary().partition(". ")[0]
    assert first.endswith("; 2 calls went unexamined (left out by every=3 2), and may have changed")
    with clampgrad.audit(every=3) as report:
        clamp(leaf(0.5)).sum().backward()
    assert "unexamined" not in report.summary()


def step_of_muon():
    """Of those that a release changed."""
    weight = nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))
    torch.optim.Muon([weight], nesterov=False).step(lambda: leaf().clamp_(0, 1))


FAIL = {
    "no bound": lambda: leaf().clamp(),
    "shapes": lambda: torch.clamp(leaf(), torch.zeros(3), torch.ones(3)),
    "a sparse Tensor": lambda: torch.clamp(torch.eye(3).to_sparse_csr(), 0, 1),
    "forward mode": lambda: forward_mode(torch.zeros(3)),
    "a leaf, in place": lambda: leaf().clamp_(0, 1),
    "a leaf, in place, of a function": lambda: F.relu_(leaf()),
    "a dtype, in place": lambda: torch.zeros(4).clamp_(torch.ones(4, dtype=torch.complex64)),
    "a list": lambda: torch._foreach_clamp_min_([leaf(), leaf()], 0),
    "of clampgrad": lambda: clampgrad.clamp_(leaf(), 0, 1),
    "a dtype of fmax": lambda: torch.fmax(leaf(torch.nan), torch.ones(1, dtype=torch.complex64)),
    "an out of another dtype": lambda: torch.fmax(
        torch.ones(1), torch.ones(1), out=torch.ones(1, dtype=torch.int64)
    ),
    "an unsigned dtype": lambda: torch.zeros(1, dtype=torch.uint8).clamp_(-1, 0.5),
    "an optimizer": step_of_muon,
    "a branch of cond": lambda: torch.cond(ONE > 0, lambda: leaf() + torch.ones(3), leaf, ()),
    "a traced function": lambda: torch.jit.trace(F.relu_, leaf()),
}


@pytest.mark.parametrize("name", FAIL)
def test_a_call_that_raises_is_none(name):
    with clampgrad.audit() as report:
        with pytest.raises((RuntimeError, TypeError)):
            FAIL[name]()
        clamp(leaf(0.5)).sum().backward()
    assert not report.skipped and not report.suspects
    (finding,) = report
    assert (len(report), finding.function, finding.calls) == (1, "clamp", 1)
    assert "did not change at" in report.summary() and "may have" not in report.summary()


def clamp_in_place(x, hi=1):
    return x.clamp_(0, hi)


def test_a_call_that_raises_leaves_no_bound_beside_one_that_returns():
    with clampgrad.audit() as report:
        with pytest.raises(RuntimeError):
            clamp_in_place(leaf(0.5), 2)
        clamp_in_place(leaf(0.5) * 1, 1)
    (finding,) = report
    assert finding.bounds == [["0", "1"]]


def test_a_site_is_reported_whose_only_calls_that_count_were_left_out():
    """Its call of forward raises, and what runs again in backward is counted only if left out."""
    with clampgrad.audit(every=2) as report:
        with pytest.raises(RuntimeError):
            clamp_in_place(leaf(0.5))
        for _ in range(2):
            in_a_hook(leaf(0.5), lambda g: clamp_in_place(g * 1))
    (finding,) = report
    assert (finding.calls, finding.missed) == (0, 1)
    assert "(left out by every=2 1)" in report.summary()


def test_a_call_that_raises_is_not_left_out():
    """By `every`, which counts calls that returned."""
    with clampgrad.audit(every=2) as report:
        for _ in range(3):
            x = leaf(0.5)
            with pytest.raises(RuntimeError):
                x.clamp_(0, 1)
    assert not len(report) and not report.skipped and "went unexamined" not in report.summary()


def test_the_first_call_that_returns_is_examined():
    """Though the first call raised an error, or every second does."""
    with clampgrad.audit(every=4) as report:
        for _ in range(5):
            for x in (leaf(0.5), leaf(0.5) * 1):
                with suppress(RuntimeError):  # of the leaf
                    x.clamp_(0, 1)
    (finding,) = report
    assert (finding.calls, finding.missed) == (2, 3)


def test_a_call_that_raises_hides_no_other_of_its_line():
    with clampgrad.audit() as report:
        for dtype in (torch.complex64, torch.float32):
            with suppress(TypeError, RuntimeError):  # which of them depends on the release
                torch.minimum(leaf(0.5), torch.ones(1, dtype=dtype)).sum().backward()
    (finding,) = report
    assert (finding.calls, finding.recorded, finding.elements) == (1, 1, 1)
    assert not report.skipped


def test_variants_are_read_while_another_is_added():
    """By another thread, which this one stands for."""
    with clampgrad.audit() as report:
        clamp(leaf(0.5))
        (site,) = report._called_sites()
        for _ in site.variants:
            clamp(leaf(0.5).double())
    assert len(site.variants) == 2


def test_a_site_that_fails_takes_no_other_with_it(monkeypatch):
    made = clampgrad._tools.audit.report.make_finding
    with clampgrad.audit() as report:
        clamp(leaf(1.0)).sum().backward()
        leaf(1.0).clamp_min(0)
    monkeypatch.setattr(
        "clampgrad._tools.audit.report.make_finding",
        lambda site, compared: 1 / 0 if site.key.function == "clamp_min" else made(site, compared),
    )
    for text in (report.summary(), str(report)):
        text = " ".join(text.split())
        assert "of 1 call changed: clamp" in text and "(ZeroDivisionError in the audit 1)" in text
    assert report.skipped.total() == 1
