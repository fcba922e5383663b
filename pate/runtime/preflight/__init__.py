"""Checks before a start: what is found, how checks run, how they are shown, and those of any role."""

from pate.runtime.preflight.finding import Check, Finding, Status
from pate.runtime.preflight.runner import Once, Report, Result, run_checks
from pate.runtime.preflight.sheet import Sheet, present

__all__ = [
    "Check",
    "Finding",
    "Once",
    "Report",
    "Result",
    "Sheet",
    "Status",
    "present",
    "run_checks",
]
