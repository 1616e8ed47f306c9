import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
