"""The laboratory, which no user of the package needs: README.md lists it.

It runs on an installed clampgrad and uses the product's folders; none of these imports it
(test/package/test_layers.py).
"""

import sys
from pathlib import Path

# The one edit of the path: what the tests share, for the matrix. At the end,
# behind all that is installed.
sys.path.append(str(Path(__file__).resolve().parents[1] / "test"))
