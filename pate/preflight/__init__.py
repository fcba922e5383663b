"""Checks before a start: what is found, how checks run, how they are shown, and those of any role."""

from pate.preflight.finding import Finding, Skipped, Status
from pate.preflight.output import present
from pate.preflight.runner import Check, begin, needed, run_checks

__all__ = ["Check", "Finding", "Skipped", "Status", "begin", "needed", "present", "run_checks"]
