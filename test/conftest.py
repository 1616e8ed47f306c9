import pytest
import torch

import clampgrad


def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", help="where the tests make their tensors")


def pytest_configure(config):
    # Before the tests are collected: some make tensors when they are imported.
    if config.getoption("device") != "cpu":
        torch.set_default_device(config.getoption("device"))


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("compiled")
    if marker and clampgrad.implementation != "compiled":
        pytest.skip(f"needs the compiled implementation: {marker.args[0]}")


@pytest.fixture(autouse=True)
def same_start():
    """Every test begins alike. One thread is quicker here; tests that need more say so."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
