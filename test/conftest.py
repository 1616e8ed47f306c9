import pytest
import torch


@pytest.fixture(autouse=True)
def same_start():
    """Every test begins alike. One thread is quicker here; tests that need more say so."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
