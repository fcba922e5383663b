"""Preflight checks: findings, runner, output, and the checks common to all roles."""

from pate.preflight.finding import Finding, Skipped, Status
from pate.preflight.output import present
from pate.preflight.runner import Check, begin, needed, run_checks

__all__ = ["Check", "Finding", "Skipped", "Status", "begin", "needed", "present", "run_checks"]
