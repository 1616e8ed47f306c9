"""Finds out whether the convention matters to a program, and whether its bounds are sound.

mode, observer               the audit itself, and how kernels announce calls to it
calls, callers               what is looked at, and where it is
examination                  how: the elements before a call, and the gradient that arrives
positions, responses, sites  what is counted
suspects                     other calls that a release changed
consumers, lint              what it means
finding, report, text        what is reported, and how it is shown
"""

from clampgrad._tools.audit.finding import Finding
from clampgrad._tools.audit.lint import WARNINGS, Diagnostic
from clampgrad._tools.audit.mode import audit
from clampgrad._tools.audit.report import Report
from clampgrad._tools.audit.suspects import Suspect

__all__ = ["WARNINGS", "Diagnostic", "Finding", "Report", "Suspect", "audit"]
