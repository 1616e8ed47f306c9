"""Whether the extension can be loaded here; if not, an ImportError with the remedy."""

import torch

from clampgrad._built_for import TORCH

_here = torch.__version__.split("+")[0]
if _here != TORCH:
    raise ImportError(
        f"this clampgrad was built for torch {TORCH}, and here is torch {_here}: in its source tree, "
        "build it again with `pip install --force-reinstall --no-deps --no-build-isolation .`"
    )
if torch._C._dispatch_has_kernel("clampgrad::clamp"):
    raise ImportError(
        "another library, libclampgrad perhaps, has registered torch.ops.clampgrad in this process: "
        "use either that or this package"
    )
