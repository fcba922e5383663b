"""A campaign's metrics, in Prometheus' text form.

They are computed from an :class:`~aggregator_server.monitoring.overview.Overview`, so they reveal
no more than the page. Parties are counted and not named: a series for each would record when it
connected, answered and left. ``docs/operator.md`` justifies the publication of each metric.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aggregator_server.monitoring.overview import PHASES
from pate.runtime.metrics import (
    CONTENT_TYPE,
    by_label,
    counter,
    exposition,
    gauge,
    info,
    moment,
    state_set,
)

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

    from aggregator_server.monitoring.overview import Overview

__all__ = ["CONTENT_TYPE", "render"]


def render(
    overview: Overview,  # the campaign at the time of the scrape
    *,
    home: Path | None = None,  # its folder; free bytes are those of its disk
    certificate_ends: datetime | None = None,  # earliest expiry of the server's certificates
    students: int | None = None,
    streams: int | None = None,  # number of browsers that follow the campaign
) -> bytes:
    """Return the metrics of a campaign.

    Metrics of a None are omitted.
    """
    now = datetime.fromisoformat(overview.made)
    families = [
        *_of_campaign(overview, now),
        *_of_queries(overview),
        *_of_budget(overview),
        moment(
            "pate_certificate_expiry_timestamp_seconds",
            "When the first of the server's certificates expires",
            certificate_ends,
        ),
        gauge("pate_students_connected", "Connections of students now", students),
        gauge("pate_page_streams", "Pages that follow the campaign live now", streams),
    ]
    # The duration of a gate's computation may depend on the votes.
    return exposition("pate-server", home, families, tell_cpu=overview.publish != "gated")


def _of_campaign(overview: Overview, now: datetime) -> list[Metric]:
    facts = {
        name: getattr(overview, name)
        for name in ("campaign", "id", "mechanism", "aggregation", "noise", "publish")
    }
    checks = {check.name: float(check.ok) for check in overview.checks}
    return [
        info("pate_campaign", "What this campaign is", facts),
        state_set("pate_campaign_phase", "Where it stands", PHASES, overview.phase),
        gauge("pate_campaign_round", "The present round, from 1", overview.round),
        gauge("pate_campaign_rounds", "Rounds there are at most", overview.rounds),
        gauge("pate_parties_wanted", "Parties that the campaign waits for", overview.wanted),
        gauge("pate_parties_least", "With fewer the campaign stops", overview.min_parties),
        gauge("pate_parties_connected", "Parties that are connected now", overview.connected),
        gauge("pate_teachers", "Teachers of the whole roster", overview.teachers),
        by_label("pate_check_ok", "1 if a part of the server is well", "check", checks),
        gauge("pate_ready", "1 if parties and students can do their part", overview.ready),
        counter("pate_ledger_entries_total", "Entries of the ledger", overview.ledger_entries),
        gauge("pate_idle_seconds", "Since the ledger's last entry", _idle(overview, now)),
    ]


def _idle(overview: Overview, now: datetime) -> float | None:
    """Return whole seconds since the last entry, at the precision of the page."""
    if not overview.ledger:
        return None
    last = datetime.fromisoformat(overview.ledger[0].time).astimezone(UTC)
    return max(0, round((now - last).total_seconds()))


def _of_queries(overview: Overview) -> list[Metric]:
    queries = overview.queries
    states = {
        "public": queries.public_set,
        "voted_on": queries.voted_on,
        "votes_in": queries.votes_in,
        "answered": queries.asked,
        "labelled": queries.labels,
    }
    # Two series of one name would make the scrape invalid: classes with one displayed name are added.
    labels: dict[str, float] = {}
    for each in overview.labels:
        labels[each.name] = labels.get(each.name, 0) + each.labels
    return [
        by_label("pate_queries", "Public queries that have come so far", "state", states),
        by_label("pate_labels", "Labels released, by class", "class", labels),
    ]


def _of_budget(overview: Overview) -> list[Metric]:
    budget = overview.budget
    if budget is None:
        return []
    return [
        gauge(
            "pate_epsilon",
            "The guarantee towards the public: what the whole budget is worth, of the unit and between the "
            "neighbours of the privacy statement",
            budget.epsilon,
        ),
        gauge("pate_delta", "At which it holds", budget.delta),
        gauge(
            "pate_epsilon_server",
            "The same towards the server; absent: nothing is promised",
            budget.epsilon_server,
        ),
        gauge("pate_budget_charged_ratio", "Share of the budget that is charged", budget.spent),
    ]
