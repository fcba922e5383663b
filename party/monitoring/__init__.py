"""Monitoring of a running party: its state, as metrics and as health."""

from party.monitoring.http import watched
from party.monitoring.status import Status

__all__ = ["Status", "watched"]
