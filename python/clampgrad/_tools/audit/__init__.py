"""Finds out whether the convention matters to a program, and whether its bounds are sound.

mode                         the audit itself, which sees the calls
calls, callers               what is looked at, and where it is
positions, answers, sites    what is counted
consumers, lint              what it means
finding, report, text        what is reported, and how it is shown
"""

from clampgrad._tools.audit.finding import Finding
from clampgrad._tools.audit.lint import WARNINGS, Diagnostic
from clampgrad._tools.audit.mode import audit
from clampgrad._tools.audit.report import Report

__all__ = ["WARNINGS", "Diagnostic", "Finding", "Report", "audit"]
