"""What a campaign is: everything that is fixed before the first party is heard.

The specification is the first entry of the ledger. Nothing in it depends on anybody's data, and
nothing in it changes afterwards: a resume with other parameters is refused by name of the field.
"""

from __future__ import annotations

import math
import re
import secrets
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, cast

from pate.campaign.neighbour_terms import NeighbourTerms
from pate.errors import AccountingError, StateError, UsageError
from pate.masking.context import check_threshold
from pate.text_form import fraction_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.accounting.events import GatedBatch
    from pate.storage.hash_chain import Json

AGGREGATORS: Final = ("lnmax", "gnmax", "confident-gnmax", "interactive-gnmax", "neighbour")
#: How votes reach the server. ``plain``: each party's as they are. ``masked``: their sum alone.
AGGREGATIONS: Final = ("plain", "masked")

#: Who draws the noise. ``central``: the server. ``distributed``: the parties, a share each, so that
#: the server sees no exact sum.
NOISES: Final = ("central", "distributed")

#: The mechanisms that noise shares can serve: sums of them are as good as Gaussian.
DISTRIBUTED: Final = ("gnmax", "confident-gnmax", "interactive-gnmax", "neighbour")

#: How labels leave. ``capped``: as they are answered, under a cap that looks at no vote. ``gated``:
#: all of a batch, if a private test finds their data-dependent cost below a target.
PUBLISH: Final = ("capped", "gated")

#: The mechanisms whose data-dependent cost a gate can test.
GATED: Final = ("gnmax", "confident-gnmax")

#: What one neighbour differs by, the weakest promise first.
UNITS: Final = ("record", "patient", "party")

_MECHANISM_FIELDS: Final = (
    "threshold",
    "interactive_threshold",
    "sigma1",
    "sigma2",
    "scale",
    "confidence",
)
_GATE_FIELDS: Final = ("gate_order", "gate_target", "gate_test", "gate_failure")
_NEIGHBOUR_FIELDS: Final = ("representatives", "most_votes", "votes_per_patient")
_FRACTIONS: Final = ("first_round_share", *_MECHANISM_FIELDS, *_GATE_FIELDS)


@dataclass(frozen=True, kw_only=True)
class CampaignSpec:
    """The parameters of one campaign. Mechanism parameters left at None follow from the roster.

    Attributes:
        name: what people call it.
        id: 16 random bytes in hex, see :func:`new_campaign_id`.
        aggregator: one of :data:`AGGREGATORS`.
        parties: how many parties are awaited, or their names.
        min_parties: with fewer than that many the campaign does not go on. In a masked sum it is
            t: no fewer votes are ever summed.
        public_set: content hash of the public set, 32 bytes in hex.
        queries: size of the public set.
        schema: the line that describes its inputs.
        classes: class names, or None to take those of the parties, who must agree.
        epsilon: what the labels may cost in all.
        delta: see above; well below one over the number of records.
        unit: one of :data:`UNITS`.
        rounds: number of rounds of labels; at least 2 for ``interactive-gnmax``.
        first_round_share: share of the budget that round 1 may use if there are others.
        max_queries: most queries that are answered in all rounds together (a label or no
            answer), or None for no bound but the budget.
        threshold: T of Confident-GNMax, in votes.
        interactive_threshold: T of the later rounds of Interactive-GNMax, in votes by which the
            teachers exceed the student.
        sigma1: parameter of the threshold's noise, in votes.
        sigma2: parameter of the noise on each count, in votes.
        scale: parameter of LNMax's Laplace noise (1/gamma), in votes.
        confidence: least probability at which the student's own prediction is reinforced.
        aggregation: one of :data:`AGGREGATIONS`.
        noise: one of :data:`NOISES`.
        colluders: c, how many parties may collude with the server: they change nothing in what
            masks hide and what noise shares promise. 0 for plain aggregation.
        vote_proofs: whether each party proves that its masked votes are votes.
        publish: one of :data:`PUBLISH`.
        gate_order: Renyi order of the gate, see
            :class:`~pate.accounting.publishing.gate.GateParameters`; all of its parameters are
            set for ``gated`` and None otherwise.
        gate_target: largest cost of the labels with which it may open, nats.
        gate_test: what the test costs, nats.
        gate_failure: probability that it opens where it should not.
        class_quota: whether later rounds ask first for classes that have few labels so far, by the
            student's predictions.
        representatives: of ``neighbour``, as the next two: the queries at which records vote, rows of
            the public set.
        most_votes: most votes of one party on one count.
        votes_per_patient: most votes of one patient at one party.

    Raises:
        UsageError: for a value that makes no sense, by name of the field.
    """

    name: str
    id: str
    aggregator: str
    parties: int | tuple[str, ...]
    min_parties: int
    public_set: str
    queries: int
    schema: str
    epsilon: float
    delta: float
    classes: tuple[str, ...] | None = None
    unit: str = "record"
    rounds: int = 1
    first_round_share: Fraction = Fraction(1, 2)
    max_queries: int | None = None
    threshold: Fraction | None = None
    interactive_threshold: Fraction | None = None
    sigma1: Fraction | None = None
    sigma2: Fraction | None = None
    scale: Fraction | None = None
    confidence: Fraction | None = None
    aggregation: str = "plain"
    noise: str = "central"
    colluders: int = 0
    vote_proofs: bool = False
    publish: str = "capped"
    gate_order: Fraction | None = None
    gate_target: Fraction | None = None
    gate_test: Fraction | None = None
    gate_failure: Fraction | None = None
    class_quota: bool = False
    representatives: tuple[int, ...] | None = None
    most_votes: int | None = None
    votes_per_patient: int | None = None

    def __post_init__(self) -> None:
        self._check_names()
        self._check_sizes()
        self._check_budget()
        self._check_mechanism()
        self._check_gate()
        self._check_aggregation()
        self._check_neighbour()

    @property
    def masked(self) -> bool:
        """Whether the server sees sums of votes alone."""
        return self.aggregation == "masked"

    @property
    def matrix(self) -> bool:
        """Whether records vote themselves, in one matrix that is charged once."""
        return self.aggregator == "neighbour"

    @property
    def distributed(self) -> bool:
        """Whether the parties add the noise, so that the server sees noisy sums alone."""
        return self.noise == "distributed"

    @property
    def honest(self) -> int:
        """Parties in every sum that do not collude, at least: t - c."""
        return self.min_parties - self.colluders

    @property
    def wanted_parties(self) -> int:
        """How many parties are awaited."""
        return self.parties if isinstance(self.parties, int) else len(self.parties)

    @property
    def interactive(self) -> bool:
        """Whether rounds after the first need the student's predictions."""
        return self.aggregator == "interactive-gnmax"

    def to_dict(self) -> dict[str, Json]:
        """Return a JSON object from which :meth:`from_dict` makes an equal value."""
        made: dict[str, Json] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Fraction):
                value = str(value)
            made[field.name] = list(value) if isinstance(value, tuple) else value
        return made

    @classmethod
    def from_dict(cls, body: Mapping[str, Json]) -> CampaignSpec:
        """Read back what :meth:`to_dict` made.

        Raises:
            UsageError: for an unknown, missing or senseless field.
        """
        known = {field.name for field in fields(cls)}
        if odd := sorted(known ^ body.keys()):
            raise UsageError(
                f"these fields of the campaign are unknown or missing: {', '.join(odd)}"
            )
        values: dict[str, object] = {}
        for name, value in body.items():
            if name in _FRACTIONS and value is not None:
                values[name] = _fraction(name, value)
            else:
                values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**cast("dict[str, Any]", values))  # __post_init__ checks each type

    def require_same(self, other: CampaignSpec) -> None:
        """Check that a resume asks for what this campaign is; the random id is not asked about.

        Raises:
            StateError: naming the first field that differs, with both values.
        """
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if field.name != "id" and mine != theirs:
                raise StateError(
                    f"the campaign here has {field.name} = {_shown(mine)}, asked for is {_shown(theirs)}: "
                    "resume with the same parameters, or start a new one with another --campaign"
                )

    def _check_names(self) -> None:
        for field in ("name", "schema"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip() or not value.isprintable():
                raise UsageError(f"{field} must be a line of text, got {value!r}")
        for field, length in (("id", 32), ("public_set", 64)):
            value = getattr(self, field)
            if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{length}}}", value):
                raise UsageError(f"{field} must be {length} hexadecimal digits, got {value!r}")
        for field, allowed in (
            ("aggregator", AGGREGATORS),
            ("unit", UNITS),
            ("aggregation", AGGREGATIONS),
            ("noise", NOISES),
            ("publish", PUBLISH),
        ):
            if getattr(self, field) not in allowed:
                raise UsageError(
                    f"{field} is {getattr(self, field)!r}, possible are {', '.join(allowed)}"
                )

    def _check_sizes(self) -> None:
        if not isinstance(self.parties, int):
            _check_list("parties", self.parties)
        check_count("parties", self.wanted_parties, 1)
        check_count("min_parties", self.min_parties, 1)
        if self.min_parties > self.wanted_parties:
            raise UsageError(f"min_parties is {self.min_parties} of {self.wanted_parties} parties")
        check_count("queries", self.queries, 1)
        check_count("rounds", self.rounds, 1)
        if self.max_queries is not None:
            check_count("max_queries", self.max_queries, 1)
        if self.classes is not None:
            _check_list("classes", self.classes)
            check_count("number of classes", len(self.classes), 2)

    def _check_budget(self) -> None:
        for field in ("epsilon", "delta"):
            value = getattr(self, field)
            if not isinstance(value, float) or not math.isfinite(value) or value <= 0:
                raise UsageError(f"{field} must be a positive number with a point, got {value!r}")
        if self.delta >= 1:
            raise UsageError(f"delta is a probability below 1, got {self.delta}")

    def _check_mechanism(self) -> None:
        for field in _FRACTIONS:
            value = getattr(self, field)
            if value is None and field != "first_round_share":
                continue
            if not isinstance(value, Fraction) or value <= 0:
                raise UsageError(f"{field} must be a positive exact fraction, got {value!r}")
        if self.first_round_share > 1:
            raise UsageError(f"first_round_share is at most 1, got {self.first_round_share}")
        if self.confidence is not None and self.confidence >= 1:
            raise UsageError(f"confidence is below 1, got {self.confidence}")
        if type(self.class_quota) is not bool:
            raise UsageError(f"class_quota is yes or no, got {self.class_quota!r}")
        if self.class_quota and not self.interactive:
            raise UsageError(
                "class_quota goes by the student's predictions: only interactive-gnmax has them"
            )
        if self.interactive and self.rounds < 2:
            raise UsageError(
                "interactive-gnmax needs rounds >= 2: the first one trains the student"
            )
        used = PARAMETERS[self.aggregator]
        for field in _MECHANISM_FIELDS:
            if field not in used and getattr(self, field) is not None:
                raise UsageError(f"{field} has no meaning for {self.aggregator}: leave it out")

    @property
    def gated(self) -> GatedBatch | None:
        """The one batch of a gated campaign, None for a capped one."""
        from pate.accounting.events import GatedBatch

        given = [getattr(self, field) for field in _GATE_FIELDS]
        return GatedBatch(*given) if self.publish == "gated" else None  # checks them

    @property
    def neighbour(self) -> NeighbourTerms | None:
        """What only neighbour votes have, None of all others."""
        given = [getattr(self, field) for field in _NEIGHBOUR_FIELDS]
        return NeighbourTerms(*given) if self.matrix else None

    def _check_neighbour(self) -> None:
        if (terms := self.neighbour) is None:
            for field in _NEIGHBOUR_FIELDS:
                if getattr(self, field) is not None:
                    raise UsageError(f"{field} has no meaning for {self.aggregator}: leave it out")
            return
        terms.check(queries=self.queries, classes=len(self.classes or ("", "")), unit=self.unit)
        if self.rounds != 1 or self.max_queries is not None:
            raise UsageError(
                "neighbour votes have one round, over all representatives: leave rounds and max_queries "
                "out, and choose their number"
            )
        if self.publish != "capped":
            raise UsageError(
                "only the teachers' votes can be gated: neighbour votes cost what they cost"
            )
        if self.vote_proofs:
            raise UsageError(
                "vote proofs show that a row sums to a party's teachers; what neighbour votes sum to is "
                "private: leave them out"
            )

    def _check_aggregation(self) -> None:
        check_count("colluders", self.colluders, 0)
        if type(self.vote_proofs) is not bool:
            raise UsageError(f"vote_proofs is yes or no, got {self.vote_proofs!r}")
        if self.vote_proofs and not self.masked:
            raise UsageError("vote proofs are for masked sums: plain votes are looked at instead")
        if self.vote_proofs and self.distributed:
            raise UsageError(
                "vote proofs do not cover noise shares: a share may be any number, and so could votes"
            )
        if not self.masked:
            if self.distributed:
                raise UsageError(
                    "noise shares are for masked sums: a server that sees each party's votes learns "
                    "nothing less through them"
                )
            if self.colluders:
                raise UsageError("plain aggregation hides nothing from the server: no colluders")
            return
        check_threshold(self.wanted_parties, self.min_parties, self.colluders)
        if not self.distributed:
            return
        if self.aggregator not in DISTRIBUTED:
            raise UsageError(
                f"noise shares are for {', '.join(DISTRIBUTED)}: shares of Laplace noise do not add "
                "up to Laplace noise"
            )
        if self.publish != "capped":
            raise UsageError("a gate looks at exact votes, which noise shares leave nobody")
        if self.sigma1 is not None:
            raise UsageError(
                "with noise shares one noisy histogram serves the check and the label: "
                "leave sigma1 out, sigma2 is for both"
            )

    def _check_gate(self) -> None:
        given = [field for field in _GATE_FIELDS if getattr(self, field) is not None]
        if self.publish != "gated":
            if given:
                raise UsageError(f"{given[0]} is for publish = gated: leave it out")
            return
        if len(given) != len(_GATE_FIELDS):
            raise UsageError(f"a gated campaign needs {', '.join(_GATE_FIELDS)}")
        if self.aggregator not in GATED or self.rounds != 1:
            raise UsageError(
                f"only {' and '.join(GATED)} can be gated, in one round: the labels of a batch "
                "leave together or not at all"
            )
        _ = self.gated


#: The parameters that each aggregator has; others must stay None.
PARAMETERS: Final[dict[str, tuple[str, ...]]] = {
    "lnmax": ("scale",),
    "gnmax": ("sigma2",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
    "interactive-gnmax": (
        "threshold", "interactive_threshold", "sigma1", "sigma2", "confidence",
    ),
    "neighbour": ("threshold", "sigma2"),
}  # fmt: skip


def new_campaign_id() -> str:
    """Return 16 fresh random bytes in hex."""
    return secrets.token_hex(16)


def check_count(field: str, value: object, least: int) -> None:
    """Check that ``value`` is an integer of at least ``least``.

    Raises:
        UsageError: naming the field.
    """
    # bool is an int to Python, and True parties is not a number of parties.
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{field} must be an integer of at least {least}, got {value!r}")


def _check_list(field: str, value: object) -> None:
    if not isinstance(value, tuple) or not all(
        isinstance(v, str) and v.isprintable() for v in value
    ):
        raise UsageError(f"{field} must be a number or a list of names, got {value!r}")
    if not all(value) or len(set(value)) != len(value):
        raise UsageError(f"{field} has an empty or repeated name: {', '.join(value)}")


def _fraction(field: str, value: Json) -> Fraction:
    try:
        if not isinstance(value, str):
            raise TypeError(f"not text: {value!r}")
        made = fraction_from_text(value)
    except (TypeError, AccountingError) as error:
        raise UsageError(f"{field} must be a fraction as text, got {str(value)[:60]!r}") from error
    return made


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Fraction) else repr(value)
