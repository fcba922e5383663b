"""A party's metrics, in Prometheus' text form.

None is derived from a record: metrics are scraped, stored and copied by systems that are not
protected like patients' data. ``docs/operator.md`` says for each why it may be published.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from party.monitoring.status import STATES
from pate.runtime.metrics import CONTENT_TYPE, counter, exposition, gauge, moment, state_set

if TYPE_CHECKING:
    from prometheus_client import Metric

    from party.monitoring.status import Standing

__all__ = ["CONTENT_TYPE", "render"]

#: Linux has one file here for each NVIDIA GPU that a process may use.
_DEVICES: Final = Path("/dev")


def render(standing: Standing, home: Path) -> bytes:
    """Return the metrics of a party."""
    return exposition("pate-party", home, [*_of_run(standing), *_of_ledger(standing)])


def _of_run(standing: Standing) -> list[Metric]:
    return [
        state_set("pate_party_state", "What the party does", STATES, standing.state),
        gauge("pate_party_teachers", "Teachers the party is to have", standing.teachers),
        gauge("pate_party_teachers_trained", "Teachers that are ready", standing.trained),
        gauge("pate_party_gpus", "NVIDIA GPUs that this machine offers", _gpus()),
        moment(
            "pate_party_certificate_expiry_timestamp_seconds",
            "When the server's authority expires, as far as the party knows",
            standing.ends,
        ),
    ]


def _of_ledger(standing: Standing) -> list[Metric]:
    if standing.ledger is None or standing.delta is None:
        return []
    campaigns = standing.ledger.campaigns()
    figure = standing.ledger.cumulative_epsilon(standing.delta)
    return [
        counter("pate_party_campaigns_total", "Campaigns joined", len(campaigns)),
        gauge(
            "pate_party_campaigns_open",
            "Campaigns joined whose end is not known",
            sum(each.ending is None for each in campaigns),
        ),
        counter(
            "pate_party_queries_total",
            "Public queries voted on, each once for every campaign",
            sum(each.queries for each in campaigns),
        ),
        counter(
            "pate_party_batches_total",
            "Batches of queries voted on",
            sum(len(each.batches) for each in campaigns),
        ),
        gauge(
            "pate_party_epsilon",
            "What all answers and synthetic rows come to by the party's own accountant, whatever its "
            "records are",
            figure.epsilon,
        ),
        gauge(
            "pate_party_epsilon_limit",
            "Where the party's own accountant stops; absent: nowhere",
            standing.largest_epsilon,
        ),
        gauge("pate_party_delta", "Delta of both", standing.delta.whole),
    ]


def _gpus() -> int:
    return sum(path.name[len("nvidia") :].isdecimal() for path in _DEVICES.glob("nvidia*"))
