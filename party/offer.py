"""What a campaign asks of a party: the one value that a policy judges and a ledger keeps."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from pate.accounting.composition import Gate, composition_named
from pate.accounting.events import GatedBatch, NoisyHistogram, event_from_dict
from pate.errors import AccountingError, ProtocolError, RefusedError, UsageError
from pate.mechanisms import MatrixMechanism, mechanism_from_dict, worst_cost
from pate.text_form import fraction_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.mechanisms import Mechanism
    from pate.storage.hash_chain import Json

AGGREGATIONS: Final = ("plain", "masked")
NOISES: Final = ("central", "distributed")
#: What one neighbour differs by, the weakest promise first.
UNITS: Final = ("record", "patient", "party")
COMPOSITIONS: Final = ("gdp", "zcdp", Gate.name)

KEY_BYTES: Final = 32
_MOST: Final = 2**40
_LONGEST_NAME: Final = 256

#: What nobody knows before the roster is complete.
_LATER: Final = ("roster", "teachers", "mechanisms", "composition", "cap")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A campaign as a checked, signed request describes it.

    Attributes:
        key: (32,) bytes, the campaign's Ed25519 signing key.
        campaign: its id, hex.
        aggregator: name of the mechanism, such as ``gnmax``.
        aggregation: ``plain`` or ``masked``.
        noise: ``central`` (the server draws it) or ``distributed`` (each party adds a share).
        unit: what the promise protects: ``record``, ``patient`` or ``party``.
        epsilon: announced budget, towards the public.
        delta: at which it holds.
        public_queries: size of the public set.
        rounds: how often a query may be put to a mechanism.
        public_set: content hash of the public set, hex, or None where it is not known; so for the
            next one.
        schema: the line that describes its inputs.
        classes: names, in the order of the vote columns; None before they are known.
        queries: how many this request asks votes on, 0 when it only asks to join.
        roster: names of all parties, or None before it is complete; so for the next ones.
        identities: their identity keys, hex, in the same order.
        teachers_each: k of each of them; of neighbour votes the most that each puts on one count.
        teachers: M, of the whole roster; the sum of these.
        threshold: t, least number of parties whose votes are summed.
        colluders: c, parties that may be in league with the server.
        mechanisms: of the first round, and of all later ones if that is another.
        composition: how costs add up: ``gdp``, ``zcdp`` or ``gate``.
        cap: most that all answers may cost in it.
        gate: of a gated campaign, as far as its server says; None for any other.

    Raises:
        ProtocolError: for values that no campaign has.
    """

    key: bytes
    campaign: str
    aggregator: str
    aggregation: str
    noise: str
    unit: str
    epsilon: float
    delta: float
    public_queries: int
    rounds: int
    public_set: str | None = None
    schema: str | None = None
    classes: tuple[str, ...] | None = None
    queries: int = 0
    roster: tuple[str, ...] | None = None
    identities: tuple[str, ...] | None = None
    teachers_each: tuple[int, ...] | None = None
    teachers: int | None = None
    threshold: int | None = None
    colluders: int = 0
    mechanisms: tuple[Mechanism, ...] | None = None
    composition: str | None = None
    cap: Fraction | None = None
    gate: GatedBatch | None = None

    def __post_init__(self) -> None:
        _require(
            isinstance(self.key, bytes) and len(self.key) == KEY_BYTES,
            "a campaign's key is 32 bytes",
        )
        _require(
            isinstance(self.campaign, str)
            and re.fullmatch(r"([0-9a-f]{2}){1,64}", self.campaign, re.ASCII) is not None,
            "a campaign's id is hexadecimal",
        )
        _require(_is_line(self.aggregator), "the mechanism's name is not a line of text")
        for name, value, known in (
            ("aggregation", self.aggregation, AGGREGATIONS),
            ("noise", self.noise, NOISES),
            ("unit", self.unit, UNITS),
            ("composition", self.composition or "gdp", COMPOSITIONS),
        ):
            _require(value in known, f"{name} {str(value)[:40]!r} is none of {', '.join(known)}")
        _require(
            self.noise == "central" or self.aggregation == "masked",
            "noise shares need masked votes: with plain ones the server sees them as they are",
        )
        _require(
            self.noise == "central" or self.composition != Gate.name,
            "a gate looks at exact votes, which noise shares leave nobody",
        )
        _require(
            type(self.epsilon) is float and 0 < self.epsilon < math.inf,
            "epsilon is a number above 0",
        )
        _require(type(self.delta) is float and 0 < self.delta < 1, "delta lies between 0 and 1")
        self._check_counts()
        self._check_terms()

    def _check_counts(self) -> None:
        for name, least in (
            ("public_queries", 1),
            ("rounds", 1),
            ("queries", 0),
            ("colluders", 0),
            ("teachers", 1),
            ("threshold", 1),
        ):
            value = getattr(self, name)
            if value is None and name in ("teachers", "threshold"):
                continue
            _require(
                type(value) is int and least <= value <= _MOST,
                f"{name} is a whole number from {least} on",
            )
        if self.roster is not None:
            _require(
                bool(self.roster)
                and all(map(_is_line, self.roster))
                and len(set(self.roster)) == len(self.roster),
                "a roster is a list of different names",
            )
            _require(
                self.threshold is None or self.threshold <= len(self.roster),
                "more parties are needed than the roster has",
            )

        if self.identities is not None:
            _require(
                len(self.identities) == len(self.roster or ())
                and len(set(self.identities)) == len(self.identities)
                and all(re.fullmatch("[0-9a-f]{64}", each, re.ASCII) for each in self.identities),
                "identities are a different key of 64 hexadecimal digits for each of the roster",
            )

        if self.teachers_each is not None:
            _require(
                len(self.teachers_each) == len(self.roster or ())
                and all(type(each) is int and 1 <= each <= _MOST for each in self.teachers_each)
                and sum(self.teachers_each) == self.teachers,
                "each of the roster has a number of teachers, and they sum to the whole",
            )
        for name in ("schema", "public_set"):
            text = getattr(self, name)
            _require(
                text is None or (isinstance(text, str) and bool(text) and text.isprintable()),
                f"{name} is not a line of text",
            )
        if self.classes is not None:
            _require(
                len(self.classes) > 1
                and all(map(_is_line, self.classes))
                and len(set(self.classes)) == len(self.classes),
                "a class list has two different names or more",
            )

    def _check_terms(self) -> None:
        if self.cap is not None:
            _require(type(self.cap) is Fraction and self.cap >= 0, "the cap is an exact number")
        _require(
            self.gate is None or isinstance(self.gate, GatedBatch), "a gate is of no known kind"
        )
        _require(
            not (self.records_vote and self.composition == Gate.name),
            "neighbour votes cost what they cost: there is nothing to gate",
        )
        _require(
            self.gate is None or self.composition == Gate.name,
            "a gate in a campaign that is not gated",
        )
        if self.mechanisms is None:
            return
        _require(bool(self.mechanisms), "a campaign has a mechanism")
        if self.unit == "party" and self.teachers_each is not None:
            # One party's data reach all its teachers, and each of their votes is charged.
            fewest = min(event.votes_per_unit for each in self.mechanisms for event in each.worst)
            _require(
                fewest >= max(self.teachers_each),
                f"a party has up to {max(self.teachers_each)} teachers, charged are {fewest} votes",
            )
        for each in self.mechanisms:
            _require(
                isinstance(each, MatrixMechanism) == self.records_vote,
                f"the mechanism {each.name} is not one of {self.aggregator}",
            )
            _require(
                each.noise_inside == (self.noise == "distributed"),
                f"the mechanism {each.name} is not one of {self.noise} noise",
            )
            for event in each.worst:
                if isinstance(event, NoisyHistogram) and self.threshold is not None:
                    _require(
                        event.honest <= self.threshold - self.colluders,
                        f"noise is counted of {event.honest} honest parties, certain are "
                        f"{self.threshold - self.colluders}",
                    )
        if self.composition is None or self.composition == Gate.name:
            return
        made = composition_named(self.composition)
        _require(
            all(made.supports(event) for each in self.mechanisms for event in each.worst),
            f"not every step of the mechanism has a cost in {self.composition!r}",
        )
        if self.records_vote and self.cap is not None:
            # Else the cap, which our own figure trusts a server to keep, would be no bound of this.
            _require(
                worst_cost(made, self.mechanisms, 1) <= self.cap,
                "one matrix costs more than the campaign's cap: nothing could be released",
            )

    @property
    def records_vote(self) -> bool:
        """Whether records vote themselves, once, and not teachers."""
        return self.aggregator == "neighbour"

    @property
    def settled(self) -> bool:
        """Whether the roster is complete and all that follows from it is known."""
        return all(getattr(self, name) is not None for name in _LATER)

    @property
    def worth(self) -> float | None:
        """What its terms are worth at its delta, in nats; None while they do not say.

        Raises:
            AccountingError: for a gate that no number can be made of, or more than one batch.
        """
        if self.cap is None or self.composition is None:
            return None
        if self.composition != Gate.name:
            return composition_named(self.composition).epsilon(self.cap, self.delta)
        if self.gate is None:
            return None
        try:
            return Gate(self.gate).epsilon(self.cap, self.delta)
        except (ValueError, ArithmeticError) as error:  # numbers that fit no gate
            raise AccountingError(f"no gate can be made of its parameters: {error}") from error

    def after(self, earlier: Offer) -> Offer:
        """Return what is known once both were seen; ``queries`` are this one's.

        Raises:
            RefusedError: if they contradict each other: the terms of a campaign never change.
        """
        known: dict[str, Any] = {}
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(earlier, field.name)
            if field.name == "queries" or mine == theirs or theirs is None:
                continue
            if mine is not None:
                raise RefusedError(
                    f"campaign {self.campaign[:8]} has changed its {field.name}: it was "
                    f"{_shown(theirs)}, now it is {_shown(mine)}"
                )
            known[field.name] = theirs
        return replace(self, **known)

    def to_dict(self) -> dict[str, Json]:
        """Return the terms as a JSON object; ``queries`` are of one request and no term."""
        made: dict[str, Json] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            match field.name:
                case "queries":
                    continue
                case "key":
                    value = value.hex()
                case "roster" | "identities" | "teachers_each" | "classes":
                    value = None if value is None else list(value)
                case "mechanisms":
                    value = None if value is None else [each.to_dict() for each in value]
                case "cap":
                    value = None if value is None else str(value)
                case "gate":
                    if value is None:
                        continue  # as ledgers have it that were begun before there was one
                    value = value.to_dict()
            made[field.name] = value
        return made

    @classmethod
    def from_dict(cls, body: Mapping[str, Json]) -> Offer:
        """Read back what :meth:`to_dict` made.

        Raises:
            ProtocolError: for any other object.
        """
        values: dict[str, Any] = {"gate": None, **body}
        if set(values) != {field.name for field in fields(cls)} - {"queries"}:
            raise ProtocolError("not the terms of a campaign: fields are missing or unknown")
        try:
            values["key"] = bytes.fromhex(values["key"])
            for name in ("roster", "identities", "teachers_each", "classes"):
                if values[name] is not None:
                    values[name] = tuple(values[name])
            if values["mechanisms"] is not None:
                values["mechanisms"] = tuple(map(mechanism_from_dict, values["mechanisms"]))
            if values["cap"] is not None:
                values["cap"] = fraction_from_text(values["cap"])
            if "gate" in body:
                values["gate"] = event_from_dict(values["gate"])
            return cls(**values)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ProtocolError(f"not the terms of a campaign: {error}") from error
        except (UsageError, AccountingError) as error:
            raise ProtocolError(f"not the terms of a campaign: {error}") from error


def _is_line(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(otherwise)


def _shown(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"
