"""The installed release of torch, and the convention of its gradients."""

import torch

from oracle import TABLE

RELEASE = tuple(int(n) for n in torch.__version__.split(".")[:2])  # as text, 2.9 is beyond 2.14
# By the last release so far that has a convention, as the aliases say
# (torch_2_13); and that of this release.
LAST = {tuple(map(int, a.split("_")[1:])): c for a, c in TABLE["aliases"].items() if "torch" in a}
RELEASED = LAST[min((last for last in LAST if last >= RELEASE), default=max(LAST))]
# fmax and fmin of 2.14 pass both gradients at a NaN; v2.14.0/fmax mends it.
OF_NO_CONVENTION = RELEASE == (2, 14)
