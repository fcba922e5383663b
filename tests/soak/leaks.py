"""Resources of long-lived processes over campaigns, and tests for growth."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Growth per campaign and process that counts as a leak if the confidence interval is above it.
BOUNDS: Final = {"rss_kib": 20.0, "handles": 0.02, "threads": 0.02, "children": 0.01}
#: Two-sided.
CONFIDENCE: Final = 0.99
#: Initial part of a series, in which caches fill; ignored.
_WARM_UP: Final = 0.25
#: Least number of points for a verdict: first use of memory looks like growth.
_LEAST_POINTS: Final = 40
_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass(frozen=True)
class Held:
    """Current resources of a process.

    Attributes:
        rss_kib: resident memory, KiB.
        handles: open files and sockets.
        threads: their number. children: its child processes, including ended ones that were not reaped.
    """

    rss_kib: int
    handles: int
    threads: int
    children: int

    @classmethod
    def by(cls, pid: int) -> Held:
        """Measure a process.

        Raises:
            OSError: if it does not exist.
        """
        place = Path(f"/proc/{pid}")
        tasks = list((place / "task").iterdir())
        below = sum(len((task / "children").read_text().split()) for task in tasks)
        resident = int((place / "statm").read_text().split()[1]) * _PAGE_KIB
        return cls(resident, len(list((place / "fd").iterdir())), len(tasks), below)


@dataclass(frozen=True)
class Slope:
    """Growth of a series.

    Attributes:
        each: growth per campaign, by Theil and Sen: the median of all slopes between two points, so
            that single outliers do not move it.
        low: lower end of its confidence interval.
        high: upper end.
        points: number of points used.
    """

    each: float
    low: float
    high: float
    points: int

    @classmethod
    def of(cls, campaigns: Sequence[int], values: Sequence[float]) -> Slope | None:
        """Return the slope of a series after its warm-up; None if it is too short."""
        from scipy import stats

        skip = int(len(values) * _WARM_UP)
        x, y = np.array(campaigns[skip:], dtype=float), np.array(values[skip:], dtype=float)
        if len(x) < _LEAST_POINTS:
            return None
        each, _, low, high = stats.theilslopes(y, x, alpha=CONFIDENCE)
        return cls(float(each), float(low), float(high), len(x))

    def leaks(self, bound: float) -> bool:
        """Return whether the growth is significantly above ``bound``."""
        return self.low > bound

    def verdict(self, bound: float) -> str:
        """Return the verdict in words: significantly above the bound, growing below it, or flat."""
        if self.leaks(bound):
            return "LEAKS"
        return "grows, within the bound" if self.low > 0 else "flat"
