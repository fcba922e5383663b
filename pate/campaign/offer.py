"""The terms that a campaign offers to a party, as judged by a policy and stored in a ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from pate.accounting.composition import Gate, Pure, composition_named
from pate.accounting.events import GatedBatch  # noqa: TC001 — its reader looks it up
from pate.answers import RESIDUAL
from pate.campaign import choices
from pate.campaign.sum_terms import SumTerms  # noqa: TC001 — its reader looks it up
from pate.campaign.terms import check_mechanisms
from pate.codes import NEAREST, code_of
from pate.errors import AccountingError, ProtocolError, RefusedError, UsageError
from pate.exact import in_text, read, write
from pate.mechanisms import MECHANISMS, Mechanism, rounds_cost, worst_cost

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from pate.accounting.composition import Composition
    from pate.storage.hash_chain import Json

KEY_BYTES: Final = 32
_MOST: Final = 2**40
_LONGEST_NAME: Final = 256

#: Fields that are unknown before the roster is complete.
_LATER: Final = ("roster", "teachers", "mechanisms", "composition", "cap")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A campaign as a checked, signed request describes it.

    Attributes:
        key: (32,) bytes, the campaign's Ed25519 signing key.
        campaign: its id, hex.
        aggregator: name of the mechanism, such as ``gnmax``.
        sums: how votes are summed, and from whom they are hidden.
        unit: of privacy.
        epsilon: announced budget, towards the public.
        delta: of that epsilon; 0 for neighbour votes with geometric noise.
        public_queries: size of the public set.
        rounds: how often a query may be put to a mechanism, or records vote.
        public_set: content hash of the public set, hex, or None if unknown; likewise for
            ``schema``.
        schema: one line that describes its inputs.
        classes: names, in the order of the vote columns; None before they are known.
        queries: number of queries of this request, 0 for joining.
        roster: names of all parties, or None before it is complete; likewise for the following.
        identities: their identity keys, hex, in the same order.
        teachers_each: k of each of them; for neighbour votes the most votes of each on one count.
        teachers: M, of the whole roster; the sum of these.
        mechanisms: of the first round, and of all later ones if different.
        composition: how costs add up.
        cap: largest total cost of all answers, in that composition.
        gate: of a gated campaign; None for any other.
        code: how votes are cast, the text of a :class:`~pate.codes.Code`; its default for teachers that
            vote for a class.
        series: name of the series of campaigns in which a unit votes once; None for none.
        wanted_teachers: k of a party whose owner states none; None: the campaign wants no number.

    Raises:
        ProtocolError: for impossible values.
    """

    key: bytes
    campaign: str
    aggregator: str
    sums: SumTerms = field(metadata=in_text(flat={"min_parties": "threshold"}))
    unit: choices.Unit
    epsilon: float
    delta: float
    public_queries: int
    rounds: int
    public_set: str | None = None
    schema: str | None = None
    classes: tuple[str, ...] | None = None
    queries: int = field(default=0, metadata=in_text(absent=True))
    roster: tuple[str, ...] | None = None
    identities: tuple[str, ...] | None = None
    teachers_each: tuple[int, ...] | None = None
    teachers: int | None = None
    mechanisms: tuple[Mechanism, ...] | None = field(
        default=None, metadata=in_text(kinds=MECHANISMS.values())
    )
    composition: choices.CompositionName | None = None
    cap: Fraction | None = None
    #: Omitted from the text at its default, as are the next three.
    gate: GatedBatch | None = field(default=None, metadata=in_text(omitted=True))
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))
    series: str | None = field(default=None, metadata=in_text(omitted=True))
    wanted_teachers: int | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        try:
            self._check()
        except (AccountingError, UsageError) as error:
            raise ProtocolError(str(error)) from error

    def _check(self) -> None:
        _require(len(self.key) == KEY_BYTES, "a campaign's key is 32 bytes")
        _require(
            re.fullmatch(r"([0-9a-f]{2}){1,64}", self.campaign, re.ASCII) is not None,
            "a campaign's id is hexadecimal",
        )
        _require(_is_line(self.aggregator), "the mechanism's name is not a line of text")
        choices.check_choice("unit", self.unit, choices.UNITS)
        choices.check_choice("composition", self.composition or "gdp", choices.COMPOSITIONS)
        choices.check_budget(self.epsilon, self.delta, records_vote=self.records_vote)
        choices.check_count("public_queries", self.public_queries, 1, _MOST)
        choices.check_count("rounds", self.rounds, 1, _MOST)
        choices.check_count("queries", self.queries, 0, _MOST)
        for name in ("teachers", "wanted_teachers"):
            if (number := getattr(self, name)) is not None:
                choices.check_count(name, number, 1, _MOST)
        _require(
            not self.sums.distributed or self.composition != Gate.name,
            "a gate needs exact votes, which noise shares never reveal",
        )
        self._check_roster()
        self._check_inputs()
        _require(
            self.series is None or (_is_line(self.series) and self.records_vote),
            "a series has a name, one line of text, and campaigns of neighbour votes",
        )
        self._check_terms()

    def _check_roster(self) -> None:
        size = 0
        if self.roster is not None:
            size = len(self.roster)
            _require(_are_names(self.roster, 1), "a roster must be a list of distinct names")
            _require(self.sums.min_parties <= size, "min_parties is larger than the roster")
        if self.identities is not None:
            _require(
                len(self.identities) == len(set(self.identities)) == size
                and all(re.fullmatch("[0-9a-f]{64}", each, re.ASCII) for each in self.identities),
                "identities must be distinct keys of 64 hexadecimal digits, one for each party of the roster",
            )
        if self.teachers_each is not None:
            _require(
                len(self.teachers_each) == size
                and all(1 <= each <= _MOST for each in self.teachers_each)
                and sum(self.teachers_each) == self.teachers,
                "each party of the roster must have a number of teachers, and they must sum to the total",
            )

    def _check_inputs(self) -> None:
        for name, text in (("schema", self.schema), ("public_set", self.public_set)):
            _require(
                text is None or (bool(text) and text.isprintable()), f"{name} is not a line of text"
            )
        _require(
            self.classes is None or _are_names(self.classes, 2),
            "a class list must have at least two distinct names",
        )

    def _check_terms(self) -> None:
        _require(self.cap is None or self.cap >= 0, "the cap is below 0")
        _require(
            not (self.records_vote and self.composition == Gate.name),
            "neighbour votes cannot be gated: their cost does not depend on the votes",
        )
        code = code_of(self.code)
        teachers = code == code_of(NEAREST) or (code.of_teachers and self.aggregator == "gnmax")
        _require(
            not code.of_teachers if self.records_vote else teachers,
            f"a campaign of {self.aggregator} with the code {code}",
        )
        _require(
            not code.of_teachers or self.composition != Gate.name,
            "votes for several labels cannot be gated: their cost does not depend on the votes",
        )
        _require(
            (self.gate is not None) == (self.composition == Gate.name),
            "a gate is in the terms of a gated campaign, and only there",
        )
        if self.mechanisms is None:
            return
        check_mechanisms(
            self.mechanisms,
            self.sums,
            unit=self.unit,
            records_vote=self.records_vote,
            most_teachers=max(self.teachers_each or (0,)),
            code=self.code,
        )
        if self.composition is None or self.composition == Gate.name:
            return
        made = composition_named(self.composition)
        _require(
            (self.delta == 0) == (made.name == Pure.name),
            f"costs in {self.composition!r} are not for delta {self.delta:g}",
        )
        _require(
            all(made.supports(event) for each in self.mechanisms for event in each.worst),
            f"not every step of the mechanism has a cost in {self.composition!r}",
        )
        if self.one_release and self.cap is not None:
            # Otherwise the cap, on which the party's accountant relies, would not bound this cost.
            _require(
                self.whole_cost(made, 1) <= self.cap,
                "one matrix, or all rounds, costs more than the campaign's cap: nothing could be released",
            )

    @property
    def records_vote(self) -> bool:
        """Whether records vote instead of teachers."""
        return self.aggregator == "neighbour"

    @property
    def one_release(self) -> bool:
        """Whether all votes, or those of a round, are one matrix: of records, or for several labels."""
        return self.records_vote or self.code != NEAREST

    @property
    def in_rounds(self) -> bool:
        """Whether records vote in rounds, each with a matrix of its own."""
        return code_of(self.code).answer.name == RESIDUAL

    def whole_cost(self, composition: Composition, answers: int) -> Fraction:
        """Return the largest cost of some answers; where records vote in rounds, of all rounds.

        Args:
            composition: in whose currency.
            answers: number of queries that are answered.

        Raises:
            AccountingError: if the mechanisms have no cost in it.
            ProtocolError: if they are not known.
        """
        _require(self.mechanisms is not None, "the campaign's mechanisms are not known")
        if self.in_rounds:
            return rounds_cost(composition, self.mechanisms or (), self.rounds) * min(answers, 1)
        return worst_cost(composition, self.mechanisms or (), answers)

    @property
    def votes_per_unit(self) -> int | None:
        """Votes of one unit that are charged; None while the mechanisms are not known."""
        return min((each.votes_per_unit for each in self.mechanisms or ()), default=None)

    def continues(self, other: Offer) -> bool:
        """Return whether both are campaigns of one series, different ones.

        A series is known by its name and by the key that signs its campaigns: another coordinator's
        series of the same name is another series.
        """
        return (
            self.series is not None
            and (self.series, self.key) == (other.series, other.key)
            and self.campaign != other.campaign
        )

    @property
    def settled(self) -> bool:
        """Whether the roster is complete, with all terms that follow from it."""
        return all(getattr(self, name) is not None for name in _LATER)

    @property
    def worth(self) -> float | None:
        """The epsilon of its terms at its delta, in nats; None while they are incomplete.

        Raises:
            AccountingError: for a gate with invalid parameters, or more than one batch.
        """
        if self.cap is None or self.composition is None:
            return None
        if self.gate is None:
            return composition_named(self.composition).epsilon(self.cap, self.delta)
        try:
            return Gate(self.gate).epsilon(self.cap, self.delta)
        except (ValueError, ArithmeticError) as error:  # numbers that fit no gate
            raise AccountingError(f"its gate has invalid parameters: {error}") from error

    def after(self, earlier: Offer) -> Offer:
        """Return the combined knowledge of both; ``queries`` are this one's.

        Raises:
            RefusedError: if they contradict each other: the terms of a campaign never change.
        """
        for name in ("series", "wanted_teachers"):  # None is a value of them, not unknown
            now, was = getattr(self, name), getattr(earlier, name)
            if now != was:
                raise RefusedError(
                    f"campaign {self.campaign[:8]} has changed its {name}: it was {was or 'none'}, "
                    f"now it is {now or 'none'}"
                )
        mine, theirs = ({"code": NEAREST, **each.to_dict()} for each in (self, earlier))
        for name, was in theirs.items():
            now = mine.get(name)
            if was is not None and now is not None and now != was:
                raise RefusedError(
                    f"campaign {self.campaign[:8]} has changed its {name}: it was {_shown(was)}, "
                    f"now it is {_shown(now)}"
                )
        unknown = [each.name for each in fields(self) if getattr(self, each.name) is None]
        return replace(self, **{name: getattr(earlier, name) for name in unknown})

    def to_dict(self) -> dict[str, Json]:
        """Return the terms as a JSON object, without ``queries``, which belong to one request."""
        text: dict[str, Json] = write(self)
        return text

    @classmethod
    def from_dict(cls, text: Mapping[str, Json]) -> Offer:
        """Read back what :meth:`to_dict` made.

        Raises:
            ProtocolError: for any other object.
        """
        return read(cls, text, error=ProtocolError, what="the terms of a campaign")


def _are_names(names: tuple[str, ...], least: int) -> bool:
    return len(names) >= least and len(set(names)) == len(names) and all(map(_is_line, names))


def _is_line(value: str) -> bool:
    return 0 < len(value) <= _LONGEST_NAME and value.isprintable()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(otherwise)


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:79] + "…"
