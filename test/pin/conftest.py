import pytest

import clampgrad
from testing.processes import script_runner
from testing.slopes import STOCK_SLOPES, slope


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Blocks end by themselves, and the pin of the process here."""
    yield
    clampgrad.set_pin(None)
    assert (slope(), clampgrad.pin.current()) == (STOCK_SLOPES, None)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Where compilers are imported, and this package is not yet."""
    compilers = "torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor.compile_fx"
    with script_runner(tmp_path_factory.mktemp("script"), "torch", *compilers) as run:
        yield run
