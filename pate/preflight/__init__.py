"""Preflight: the checks of all roles, and those of the machine."""

from pate.preflight.checks import (
    Check,
    Finding,
    Skipped,
    Status,
    begin,
    needed,
    present,
    run_checks,
)

__all__ = ["Check", "Finding", "Skipped", "Status", "begin", "needed", "present", "run_checks"]
