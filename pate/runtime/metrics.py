"""Common metrics of server and party: format, build, process, disk.

Each scrape makes its own registry, so nothing is kept between two scrapes, and metrics that libraries
register are not exported.
"""

from __future__ import annotations

import contextlib
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    StateSetMetricFamily,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from prometheus_client import Metric

#: The media type of :func:`exposition`.
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


#: Metrics of a name, what it is, and a value; None: it has none. The names get ``_total`` and ``_info``.
gauge, counter, info = GaugeMetricFamily, CounterMetricFamily, InfoMetricFamily


def by_label(name: str, what: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """Return a metric with one number per value of a label."""
    family = GaugeMetricFamily(name, what, labels=[label])
    for key, value in values.items():
        family.add_metric([key], float(value))
    return family


def state_set(name: str, what: str, states: Sequence[str], now: str) -> StateSetMetricFamily:
    """Return the state among ``states``: 1 for the current one, 0 for the others."""
    return StateSetMetricFamily(name, what, value={state: state == now for state in states})


def moment(name: str, what: str, at: datetime | None) -> GaugeMetricFamily:
    """Return a time, in seconds since 1970; None: there is none."""
    return gauge(name, what, None if at is None else at.timestamp())


def exposition(
    program: str, home: Path | None, families: Iterable[Metric], *, tell_cpu: bool = True
) -> bytes:
    """Return metrics in Prometheus' text form, preceded by those of every program.

    ``program``: that exports them, such as ``pate-party``; ``home``: its state directory, for the
    free bytes of its disk; None: omitted; ``tell_cpu``: whether to export the CPU time; not if that
    may depend on votes.
    """
    registry = CollectorRegistry(auto_describe=False)
    process = [
        metric
        for metric in ProcessCollector(registry=None).collect()
        if tell_cpu or metric.name != "process_cpu_seconds"
    ]
    registry.register(_Once([*_common(program, home), *families, *process]))
    return generate_latest(registry)


def _common(program: str, home: Path | None) -> list[Metric]:
    free: float | None = None
    if home is not None:
        with contextlib.suppress(OSError):  # it does not exist yet, or its disk is gone
            free = shutil.disk_usage(home).free
    build = {
        "program": program,
        "version": _version("federated-pate"),
        "flower": _version("flwr"),
        "python": platform.python_version(),
    }
    return [
        info("pate_build", "Which program this is, and its version", build),
        gauge("pate_disk_free_bytes", "Free bytes on the disk of the state directory", free),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


class _Once(Collector):
    """A collector of given metrics, for one scrape."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
