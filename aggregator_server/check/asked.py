"""What ``pate-server check`` was asked about: the options of a campaign, none of them needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any

from aggregator_server.identities import Identities, told_port
from aggregator_server.settings import delta_of, make_gate, make_matrix, make_spec
from pate.data.read import read_inputs
from pate.errors import UsageError
from pate.runtime.preflight.meeting import utc_now

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aggregator_server.matrix import NeighbourTerms
    from aggregator_server.spec import CampaignSpec
    from pate.data.values import Inputs

#: Options that are exact numbers, typed as text.
_FRACTIONS = (
    "first_round_share", "threshold", "interactive_threshold", "sigma1", "sigma2", "scale",
    "confidence",
)  # fmt: skip
#: What `pate-party start` makes of each party's data unless it is told otherwise.
TEACHERS_EACH = 10


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to check; each field is the option of that name.

    Attributes:
        home: the server's.
        settings: all options of a campaign, by name.
        given: names of those that were typed, or stand in the configuration file.
        expected_teachers: about how many all parties have, None for ten each.
        clock: this machine's.
    """

    home: Path
    campaign: str = "campaign"
    ledger: str | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    student_port: int = 9093
    page: bool = False
    page_host: str = "127.0.0.1"
    page_port: int | None = None
    public: Path | None = None
    drop: tuple[str, ...] = ()
    window: tuple[int, int] | None = None
    parties: str = "3"
    settings: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    expected_teachers: int | None = None
    timeout: float = 5.0
    clock: Callable[[], dt.datetime] = utc_now

    @property
    def folder(self) -> Path:
        """Of the campaign."""
        return self.home / self.campaign


def identities_of(asked: Asked) -> Identities | None:
    """Return who this server is, None if it was never initialised.

    Raises:
        StateError: if it is damaged.
    """
    return Identities.open(asked.home)


def port_of(asked: Asked) -> int:
    """Return the port that the server would listen on for parties.

    Raises:
        StateError: if its identity is damaged.
    """
    return told_port(identities_of(asked)) if asked.port is None else asked.port


def read_public(asked: Asked) -> Inputs:
    """Read the public set.

    Raises:
        DataError: if it cannot be read.
        UsageError: if none is named.
    """
    if asked.public is None:
        raise UsageError("no public set is named: --public")
    return read_inputs(asked.public, drop=asked.drop, window=asked.window)


def spec_of(asked: Asked, inputs: Inputs) -> CampaignSpec:
    """Return the specification that a start would make of the options; nothing is kept of it.

    The representatives of neighbour votes are counted and not chosen, which would take long.

    Raises:
        UsageError: naming the option that makes no sense.
        BudgetError: if no noise is worth so little.
    """
    options = dict(asked.settings)
    options["delta"] = delta_of(options["publish"], options["delta"])
    taken = {name: options[name] for name in signature(make_spec).parameters if name in options}
    gate = make_gate(
        options["publish"],
        options["epsilon"],
        options["delta"],
        options["gate_order"],
        options["gate_share"],
    )
    return make_spec(
        inputs,
        **taken
        | {
            "name": asked.campaign,
            "fractions": {name: options[name] for name in _FRACTIONS},
            "gate": gate,
            "matrix": _matrix(options, inputs),
        },
    )


def _matrix(options: Mapping[str, Any], inputs: Inputs) -> NeighbourTerms | None:
    epsilon, delta = options["epsilon"], options["delta"]
    votes, most = options["votes_per_patient"], options["most_votes"]
    number, records = options["representatives"], options["expected_records"]
    if options["aggregator"] != "neighbour":
        return make_matrix(
            inputs,
            options["aggregator"],
            epsilon=epsilon,
            delta=delta,
            number=number,
            records=records,
            most_votes=most,
            votes_per_patient=votes,
        )
    from aggregator_server.matrix import MOST_VOTES, NeighbourTerms
    from aggregator_server.representatives import RECORDS, default_number

    number = number or default_number(records or RECORDS, len(inputs), epsilon, delta, votes or 1)
    return NeighbourTerms(tuple(range(min(number, len(inputs)))), most or MOST_VOTES, votes or 1)
