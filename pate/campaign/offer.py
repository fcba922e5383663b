"""A campaign as its server signs it: what is announced, and once the roster is complete what is settled.

The server makes it, a party's policy judges it, both sides read it in every request, and a party's ledger
stores its text. Whatever a party's keys and masks are bound to is in its digest.
"""

from __future__ import annotations

import copy
import hashlib
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction  # noqa: TC003 — its reader looks it up
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pate.accounting.composition import Gate, Pure, composition_named
from pate.accounting.events import GatedBatch  # noqa: TC001 — its reader looks it up
from pate.campaign import choices
from pate.campaign.announced import LONGEST_TEXT, Announced
from pate.campaign.roster import MOST_PARTIES, MOST_TEACHERS, PARTY_NAME, Member
from pate.campaign.terms import check_mechanisms
from pate.errors import AccountingError, ProtocolError, RefusedError, UsageError
from pate.exact import in_text, parse, read, write
from pate.mechanisms import MECHANISMS, DistributedMechanism, Mechanism, rounds_cost, worst_cost
from pate.storage.hash_chain import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.accounting.composition import Composition
    from pate.noise.share_laws import Shares
    from pate.storage.hash_chain import Json

KEY_BYTES: Final = 32
_MOST: Final = 2**40
_WHAT: Final = "the terms of a campaign"


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a campaign comes to once its parties are known."""

    roster: tuple[Member, ...]
    # of the first round, and of all later ones if different
    mechanisms: tuple[Mechanism, ...] = field(metadata=in_text(kinds=MECHANISMS.values()))
    composition: choices.CompositionName
    cap: Fraction  # largest total cost of all answers, in that composition
    #: Omitted from the text if there is none.
    # of a gated campaign; None for any other
    gate: GatedBatch | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        names, keys = self.names, {each.identity for each in self.roster}
        choices.check_count("the size of the roster", len(names), 1, MOST_PARTIES)
        _require(
            list(names) == sorted(set(names)), "the roster is not sorted, or has a party twice"
        )
        _require(all(map(PARTY_NAME.fullmatch, names)), "the roster has a name of no party")
        _require(
            len(keys) == len(names)
            and all(re.fullmatch("[0-9a-f]{64}", each, re.ASCII) for each in keys),
            "identities must be distinct keys of 64 hexadecimal digits, one for each party of the roster",
        )
        for each in self.roster:
            choices.check_count("a party's number of teachers", each.teachers, 1, MOST_TEACHERS)
        choices.check_count("the number of mechanisms", len(self.mechanisms), 1, 2)
        choices.check_choice("composition", self.composition, choices.COMPOSITIONS)
        _require(self.cap > 0, "a campaign that may cost nothing")
        _require(
            (self.gate is not None) == (self.composition == Gate.name),
            "a gate is in the terms of a gated campaign, and only there",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all parties."""
        return tuple(each.name for each in self.roster)

    @property
    def identities(self) -> Mapping[str, str]:
        """Identity keys of all parties by their names, hex."""
        return {each.name: each.identity for each in self.roster}

    @property
    def teachers(self) -> int:
        """M, of the whole roster."""
        return sum(each.teachers for each in self.roster)

    @property
    def votes_per_unit(self) -> int:
        """Votes of one unit that are charged, at least."""
        return min(each.votes_per_unit for each in self.mechanisms)

    def shares(self, round_: int = 0) -> Shares | None:
        """Return the law of the noise that a party adds to each count; None: it adds none.

        ``round_``: of the votes, where records vote in rounds.
        """
        mechanism = self.mechanisms[-1 if round_ > 1 else 0]
        return mechanism.shares if isinstance(mechanism, DistributedMechanism) else None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A campaign that a server offers to a party."""

    key: bytes  # (32,) bytes, the campaign's Ed25519 signing key
    announced: Announced
    # what follows from its roster; None before that is complete
    settled: Settled | None = field(default=None, metadata=in_text(omitted=True))
    # number of queries of one request, 0 for joining; not in the text
    queries: int = field(default=0, metadata=in_text(absent=True))

    def __post_init__(self) -> None:
        try:
            _require(len(self.key) == KEY_BYTES, "a campaign's key is 32 bytes")
            choices.check_count("queries", self.queries, 0, _MOST)
            if self.settled is not None:
                self._check(self.settled)
        except (AccountingError, UsageError) as error:
            raise ProtocolError(str(error)) from error

    def _check(self, settled: Settled) -> None:
        """Check that what is settled is of what was announced."""
        announced = self.announced
        _require(announced.classes is not None, "terms without a class list")
        announced.sums.check_roster(len(settled.roster))
        _require(
            all(announced.most_votes in (None, each.teachers) for each in settled.roster),
            "a party that may put other votes on a count than the campaign says",
        )
        _require(
            not announced.in_rounds or len(settled.mechanisms) == 2,
            "records that vote in rounds have a mechanism for the first round, and one for the others",
        )
        check_mechanisms(
            settled.mechanisms,
            announced.sums,
            unit=announced.unit,
            records_vote=announced.records_vote,
            most_teachers=max(each.teachers for each in settled.roster),
            code=announced.code,
        )
        if settled.composition == Gate.name:
            _require(
                not announced.sums.distributed,
                "a gate needs exact votes, which noise shares never reveal",
            )
            _require(
                not announced.one_release,
                "votes of one release cannot be gated: their cost does not depend on the votes",
            )
            return
        made = composition_named(settled.composition)
        _require(
            (announced.delta == 0) == (made.name == Pure.name),
            f"costs in {made.name!r} are not for delta {announced.delta:g}",
        )
        _require(
            all(made.supports(event) for each in settled.mechanisms for event in each.worst),
            f"not every step of the mechanism has a cost in {made.name!r}",
        )
        # Otherwise the cap, on which the party's accountant relies, would not bound this cost.
        _require(
            not announced.one_release or self.whole_cost(made, 1) <= settled.cap,
            "one matrix, or all rounds, costs more than the campaign's cap: nothing could be released",
        )

    @property
    def campaign(self) -> str:
        """Its id, hex."""
        return self.announced.id

    def settle(self, classes: Sequence[str], settled: Settled) -> Offer:
        """Return the offer once the parties are known, with their class list if it had none."""
        announced = replace(self.announced, classes=tuple(classes))
        return replace(self, announced=announced, settled=settled)

    def asking(self, queries: int) -> Offer:
        """Return the same terms in a request of that many queries; they are not checked again."""
        choices.check_count("queries", queries, 0, _MOST)
        made = copy.copy(self)  # with its text, which has no queries
        object.__setattr__(made, "queries", queries)
        return made

    def require_settled(self) -> Settled:
        """Return what is settled."""
        if self.settled is None:
            raise ProtocolError(
                "the roster of the campaign is not complete: its terms are not known"
            )
        return self.settled

    def whole_cost(self, composition: Composition, answers: int) -> Fraction:
        """Return the largest cost of some answers; where records vote in rounds, of all rounds.

        ``answers``: number of queries that are answered.
        """
        mechanisms = self.require_settled().mechanisms
        if self.announced.in_rounds:
            rounds = self.announced.rounds
            return rounds_cost(composition, mechanisms, rounds) * min(answers, 1)
        return worst_cost(composition, mechanisms, answers)

    def continues(self, other: Offer) -> bool:
        """Return whether both are campaigns of one series, different ones.

        A series is known by its name and by the key that signs its campaigns: another coordinator's
        series of the same name is another series.
        """
        return (
            self.announced.series is not None
            and (self.announced.series, self.key) == (other.announced.series, other.key)
            and self.campaign != other.campaign
        )

    @property
    def worth(self) -> float | None:
        """The epsilon of its terms at its delta, in nats; None while they are incomplete."""
        settled, delta = self.settled, self.announced.delta
        if settled is None:
            return None
        if settled.gate is None:
            return composition_named(settled.composition).epsilon(settled.cap, delta)
        try:
            return Gate(settled.gate).epsilon(settled.cap, delta)
        except (ValueError, ArithmeticError) as error:  # numbers that fit no gate
            raise AccountingError(f"its gate has invalid parameters: {error}") from error

    def after(self, earlier: Offer) -> Offer:
        """Return the combined knowledge of both; ``queries`` are this one's.

        A class list and what is settled may be known to one of them only.
        """
        # A roster may have a thousand parties, and each request of a campaign comes by here.
        if (self.key, self.text) == (earlier.key, earlier.text):
            return self
        for name, now, was in self._differences(earlier):
            raise RefusedError(
                f"campaign {self.campaign[:8]} has changed its {name}: it was {_shown(was)}, "
                f"now it is {_shown(now)}"
            )
        classes = self.announced.classes or earlier.announced.classes
        if (classes, self.settled or earlier.settled) == (
            earlier.announced.classes, earlier.settled
        ):  # fmt: skip
            return earlier.asking(self.queries)
        return replace(
            self,
            announced=replace(self.announced, classes=classes),
            settled=self.settled or earlier.settled,
        )

    def _differences(self, earlier: Offer) -> list[tuple[str, object, object]]:
        """Return by name the values in which both differ: now, and earlier."""
        mine, theirs = write(self.announced), write(earlier.announced)
        if None in (mine["classes"], theirs["classes"]):
            del mine["classes"], theirs["classes"]
        if self.settled is not None and earlier.settled is not None:
            mine, theirs = mine | write(self.settled), theirs | write(earlier.settled)
        mine, theirs = mine | {"key": self.key.hex()}, theirs | {"key": earlier.key.hex()}
        both = [(name, mine.get(name), theirs.get(name)) for name in sorted(mine | theirs)]
        return [each for each in both if each[1] != each[2]]

    def to_dict(self) -> dict[str, Json]:
        """Return the JSON object that a ledger stores."""
        text: dict[str, Json] = write(self)
        return text

    @cached_property
    def text(self) -> str:
        """What is sent: canonical JSON of all but the key, which signs it."""
        return canonical({name: each for name, each in self.to_dict().items() if name != "key"})

    @cached_property
    def digest(self) -> bytes:
        """Of the text, 32 bytes: what every key and mask is bound to, and every request names."""
        return hashlib.sha256(b"pate/v2/terms\0" + self.text.encode()).digest()

    @classmethod
    def of_text(cls, key: bytes, text: bytes) -> Offer:
        """Read back a text, signed by ``key``."""
        found: dict[str, Any] = parse(text, most=LONGEST_TEXT, error=ProtocolError, what=_WHAT)
        if "key" in found:
            raise ProtocolError(f"{_WHAT}: has a key besides the one that signs it")
        made = read(cls, found | {"key": key.hex()}, error=ProtocolError, what=_WHAT)
        if made.text.encode() != text:
            raise ProtocolError(f"{_WHAT}: not the text of its values")
        return made


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UsageError(otherwise)


def _shown(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 80 else text[:79] + "…"
