"""The texts of errors that both implementations raise, by their names in csrc/base/messages.h.

{} stands for an argument: `MESSAGES["kForClampsOnly"].format(gradient, name)`.
"""

import json
from pathlib import Path

MESSAGES: dict[str, str] = json.loads(Path(__file__).with_name("messages.json").read_text())
