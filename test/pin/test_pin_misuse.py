"""Code that looks like a pin but does not pin is an error or a warning;
set_pin may be called again, and be a block."""

import gc
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch

from clampgrad import pin, set_pin
from testing.slopes import HALF_SLOPES, STOCK_SLOPES, STRAIGHT_THROUGH_SLOPES, slope

# ---- A pin of what is no function ----------------------------------------------------------------


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.clamp(x, 0, 1)


NO_FUNCTIONS = {
    "a class": Net,
    "a module": Net(),
    "a script": torch.jit.script(torch.nn.ReLU()),
    "a classmethod": classmethod(slope),
    "a staticmethod": staticmethod(slope),
    "a property": property(slope),
    "a name": "slope",
}


@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_decorating_what_is_no_function(name):
    thing = NO_FUNCTIONS[name]
    with pytest.raises(TypeError, match=re.escape(f"not {thing!r}: decorate the function or")):
        pin("half")(thing)


@pytest.mark.parametrize("thing", [slope, Net, Net()])
def test_pin_of_no_string_raises(thing):
    with pytest.raises(TypeError, match="gradient must be a str, not "):
        pin(thing)


def test_what_one_may_decorate():
    class Model(Net):
        @pin("half")
        def forward(self, x):
            return super().forward(x)

    assert slope(Model()) == HALF_SLOPES


def clamped(x: torch.Tensor):
    return x.clamp(0.0, 1.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_decorated_function_is_not_scripted():
    """TorchScript would read the source of the function, which has no pin."""
    with pytest.raises(RuntimeError, match="script the function, and pin the call"):
        torch.jit.script(pin("half")(clamped))
    scripted = torch.jit.script(clamped)
    assert slope(pin("half")(scripted)) == HALF_SLOPES


# ---- A pin that is dropped -----------------------------------------------------------------------


def test_a_pin_that_is_made_and_dropped(program, tmp_path):
    """The warning is shown by default, with the line that made it."""
    (tmp_path / "script.py").write_text('import clampgrad\n\nclampgrad.pin("half")\n')
    done = program("script.py", PYTHONWARNINGS="")
    assert done.returncode == 0 and "clampgrad.set_pin pins the process" in done.stderr
    assert "script.py:3: UserWarning: <clampgrad.pin: half> was made and not used" in done.stderr


def test_what_a_notebook_shows():
    """A cell that ends with a pin shows it, and keeps it: no warning comes."""
    made = pin("half")
    expected = "<clampgrad.pin: half, not active: write `with` before it, or clampgrad.set_pin "
    assert repr(made) == f"{expected}to pin the process>"
    with made:
        assert repr(made) == "<clampgrad.pin: half>"
    assert repr(set_pin("half")) == "<clampgrad.set_pin: half>"


def enter():
    with pin("half"):
        assert slope() == HALF_SLOPES


def wrong():
    for name in (None, "half"):
        with pytest.raises(ValueError, match="maximize"):
            pin(name, maximize=True)


USES = [
    enter,
    lambda: pin("half")(slope)(),
    lambda: pin("half")(slope) and None,  # never called
    wrong,
    lambda: set_pin("half"),
]


def test_pins_that_are_used_warn_of_nothing():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for use in USES:
            use()
        gc.collect()
    assert caught == []


# ---- set_pin -------------------------------------------------------------------------------------


def test_it_may_be_called_again():
    for _ in range(2):
        set_pin("half")
        assert (slope(), pin.current()) == (HALF_SLOPES, "half")
    set_pin("straight_through")
    assert (slope(), pin.current()) == (STRAIGHT_THROUGH_SLOPES, "straight_through")
    set_pin("with_grad", maximize=True)
    assert pin.current() == "with_grad, maximize"
    for _ in range(2):
        set_pin(None)
        assert (slope(), pin.current()) == (STOCK_SLOPES, None)


@pytest.mark.parametrize("before", [None, "straight_through"])
def test_it_is_a_block_too(before):
    """What was set before it is set again, also after an error, and for every thread."""
    set_pin(before)
    with pytest.raises(ZeroDivisionError), set_pin("half"):
        thread = threading.Thread(target=lambda: seen.append(pin.current()))
        seen = [pin.current()]
        thread.start()
        thread.join()
        assert (slope(), seen) == (HALF_SLOPES, ["half", "half"])
        with set_pin(None):
            assert (slope(), pin.current()) == (STOCK_SLOPES, None)
        assert pin.current() == "half"
        1 / 0  # noqa: B018
    assert pin.current() == before


def test_a_block_of_the_thread_takes_precedence():
    with pin("half"), set_pin("straight_through"):
        assert slope() == HALF_SLOPES
    assert pin.current() is None


def test_a_block_that_is_kept():
    kept = set_pin("half")
    set_pin(None)
    for _ in range(2):
        with kept:
            assert slope() == HALF_SLOPES
        assert pin.current() is None


def test_a_block_inside_a_block_of_the_same_object():
    kept = set_pin("half")
    with kept, kept:
        with kept:
            set_pin("straight_through")
        assert pin.current() == "half"
    assert pin.current() is None


def test_a_block_that_another_object_has_entered():
    """Of which nothing is left but the block, so that this one may have its address."""

    def leave():
        pin("half").__enter__()
        for _ in range(10):
            with pytest.raises(RuntimeError, match="is not entered here"):
                pin("joint").__exit__(None, None, None)
        return pin.current()

    with ThreadPoolExecutor(1) as thread:  # which takes the block with it
        assert thread.submit(leave).result() == "half"


def test_a_block_that_is_left_and_was_not_entered():
    """A call pins already, and an ExitStack that is given it ends that."""
    with ExitStack() as stack:
        stack.push(set_pin("half"))
        assert pin.current() == "half"
    assert pin.current() is None


@pytest.mark.parametrize("is_entered", [False, True])
def test_a_block_that_is_left_twice(is_entered):
    """The second time changes nothing, so that a later set_pin stays."""
    half_pin = set_pin("half")
    if is_entered:
        half_pin.__enter__()
    half_pin.__exit__()
    assert pin.current() is None
    set_pin("straight_through")
    half_pin.__exit__()
    with pytest.raises(TypeError, match="decorates nothing"):
        half_pin(slope)
    assert (slope(), pin.current()) == (STRAIGHT_THROUGH_SLOPES, "straight_through")


def test_a_block_that_is_kept_sets_what_was_set_before_it_was_entered():
    with set_pin("half") as half_pin:
        pass
    set_pin("straight_through")
    with half_pin:
        assert slope() == HALF_SLOPES
    assert pin.current() == "straight_through"


def test_a_block_that_was_left_before_it_was_entered():
    half_pin = set_pin("half")
    half_pin.__exit__()
    set_pin("joint")
    with half_pin:
        assert slope() == HALF_SLOPES
    assert pin.current() == "joint"


def test_a_block_of_the_process_inside_a_compiled_function():
    """It breaks the graph, as a call does."""

    def clamped(x):
        with set_pin("half"):
            return x.clamp(0, 1)

    torch._dynamo.reset()
    assert slope(torch.compile(clamped, backend="eager")) == HALF_SLOPES
    assert pin.current() is None


def test_it_decorates_nothing():
    with pytest.raises(TypeError, match="decorate with clampgrad.pin"):
        set_pin("half")(slope)
    assert pin.current() is None


@pytest.mark.parametrize("wrong", [{"gradient": "nope"}, {"gradient": None, "maximize": True}])
def test_a_wrong_name_changes_nothing(wrong):
    set_pin("half")
    with pytest.raises(ValueError, match="unknown gradient 'nope'|maximize"):
        set_pin(**wrong)
    assert slope() == HALF_SLOPES


def test_a_wrong_switch_changes_nothing(monkeypatch):
    """The variable is read before anything is pinned."""
    monkeypatch.setenv("CLAMPGRAD_VERBOSE", "yes")
    with pytest.raises(ValueError, match="CLAMPGRAD_VERBOSE='yes': it is 1 or"):
        set_pin("half")
    assert pin.current() is None
