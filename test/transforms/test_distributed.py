"""More than one process: DTensor, FSDP2 and DDP in real gloo groups give what one process gives."""

import pytest
import torch

if not torch.distributed.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

from testing import distributed_checks

pytestmark = pytest.mark.thorough

WORLDS = [2, pytest.param(4, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=WORLDS, ids=lambda n: f"{n} processes")
def reports(request, tmp_path_factory):
    """One group runs all the checks: starting it is what takes time."""
    folder, world = tmp_path_factory.mktemp("group"), request.param
    torch.multiprocessing.spawn(distributed_checks.run, args=(world, folder), nprocs=world)
    return {
        name: [(folder / f"{name}.{rank}").read_text() for rank in range(world)]
        for name in distributed_checks.CHECKS
    }


@pytest.mark.parametrize("name", distributed_checks.CHECKS)
def test_on_every_rank(reports, name):
    assert reports[name] == [""] * len(reports[name]), "\n".join(reports[name])
