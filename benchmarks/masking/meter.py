"""CPU seconds and bytes of a masked sum, by phase, for each party and the server."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

PartyTable = dict[str, dict["Hashable", float]]


def _table() -> PartyTable:
    return defaultdict(lambda: defaultdict(float))


@dataclass
class Meter:
    """Counters. Seconds are CPU seconds of all threads; bytes are of message fields."""

    seconds: PartyTable = field(default_factory=_table)
    up: PartyTable = field(default_factory=_table)
    down: PartyTable = field(default_factory=_table)
    server: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def party(self, phase: str, who: Hashable) -> Iterator[None]:
        """Count the CPU time of the body as that party's."""
        began = time.process_time()
        yield
        self.seconds[phase][who] += time.process_time() - began

    @contextmanager
    def at_server(self, phase: str) -> Iterator[None]:
        """Count the CPU time of the body as the server's."""
        began = time.process_time()
        yield
        self.server[phase] += time.process_time() - began

    def sent(self, phase: str, who: Hashable, size: int) -> None:
        """Count bytes from a party to the server."""
        self.up[phase][who] += size

    def received(self, phase: str, who: Hashable, size: int) -> None:
        """Count bytes from the server to a party."""
        self.down[phase][who] += size

    def party_seconds(self) -> dict[str, float]:
        """Median over the parties of each phase's seconds, and of their sums as ``total``."""
        return _medians(self.seconds)

    def party_bytes(self) -> dict[str, dict[str, float]]:
        """Median bytes of a party by phase, each way."""
        return {"up": _medians(self.up), "down": _medians(self.down)}

    def server_seconds(self) -> dict[str, float]:
        """The server's seconds by phase, and their sum as ``total``."""
        return {**self.server, "total": sum(self.server.values())}

    def server_bytes(self) -> dict[str, float]:
        """All bytes in and out of the server."""
        return {
            way: sum(sum(each.values()) for each in table.values())
            for way, table in (("in", self.up), ("out", self.down))
        }


def _medians(table: PartyTable) -> dict[str, float]:
    totals: dict[Hashable, float] = defaultdict(float)
    for each in table.values():
        for who, value in each.items():
            totals[who] += value
    found = {phase: median(each.values()) for phase, each in table.items()}
    return {**found, "total": median(totals.values())} if totals else found
