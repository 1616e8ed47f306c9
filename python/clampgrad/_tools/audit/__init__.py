"""Does the convention matter to a program, and are its bounds sound?
Every clamp-like call, looked at.

By subject: calls and callers (what is looked at, and where it is), positions, answers and
sites (what is counted), consumers and lint (what it means), finding and report
(what is told), text (how it is shown).
"""

from clampgrad._tools.audit.finding import Finding
from clampgrad._tools.audit.lint import WARNINGS, Diagnostic
from clampgrad._tools.audit.mode import audit
from clampgrad._tools.audit.report import Report

__all__ = ["WARNINGS", "Diagnostic", "Finding", "Report", "audit"]
