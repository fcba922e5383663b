"""Votes of units in a series of campaigns: each is cast in one of them, and never again.

An answer to a campaign of a series states whose votes it has, as
keyed hashes of the units, one for each vote. The hashes are in a table of the ledger, in which none
can be twice; the chain commits to their number and digest. All campaigns of a series know units in
the same way, have one unit of privacy, charge it for the same number of votes, and add up costs in one
composition: otherwise its votes in all of them would not be those that the accountant counts, or no
campaign would be the most expensive one.

Proof: docs/proofs/composition.md, sections 8 and 9.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Self

from pate.accounting.composition import Gdp, Pure, Zcdp
from pate.errors import ProtocolError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pate.campaign.offer import Offer

UNIT_BYTES: Final = 16
#: Most votes of one answer.
_MOST_UNITS: Final = 10**8
_DIGEST: Final = 64
#: What a coordinator states to stay in a composition. Gaussian DP is of noise that is wide enough.
_KEEPS: Final = {
    Pure.name: "--noise-law geometric",
    Gdp.name: "--noise-law gaussian, at an epsilon that is no larger",
    Zcdp.name: "--noise-law gaussian, at an epsilon that is no smaller",
}


@dataclass(frozen=True, slots=True)
class UnitVotes:
    """The units that vote in an answer, as its entry has them: how many, and a digest of their hashes.

    ``known_by``: what these depend on besides the units; see
    :class:`~party.voting.voters.SeriesVoters`.
    """

    known_by: str
    number: int
    digest: str

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number <= _MOST_UNITS:
            raise ProtocolError(f"an answer with votes of {self.number!r:.40} units")
        for text in (self.known_by, self.digest):
            if type(text) is not str or len(text) != _DIGEST or set(text) - set("0123456789abcdef"):
                raise ProtocolError(f"not a digest of units: {text!r:.80}")

    @classmethod
    def of(cls, known_by: str, units: Sequence[bytes]) -> Self:
        """Return the description of units by their hashes."""
        if any(len(each) != UNIT_BYTES for each in units):
            raise ProtocolError(f"the hash of a unit is {UNIT_BYTES} bytes")
        if any(one >= other for one, other in pairwise(units)):
            raise ProtocolError("the hashes of units must ascend, and differ")
        whole = hashlib.sha256(b"pate party units v1\0" + b"".join(units))
        return cls(known_by, len(units), whole.hexdigest())


def check_series(
    offer: Offer,
    units: UnitVotes | None,
    before: UnitVotes | None,
    others: Iterable[tuple[Offer, UnitVotes | None, bool]],
) -> None:
    """Check an answer against the other campaigns of its series; for its votes see ``LedgerState.voted``."""
    announced = offer.announced
    if (announced.series is None) != (units is None):
        raise ProtocolError("the units that vote are stated in a series, and only there")
    if units is None:
        return
    if before not in (None, units):
        raise RefusedError(
            f"other units of ours would vote in campaign {offer.campaign[:8]} than when it was "
            "first answered"
        )
    for earlier, voted, forgotten in others:
        if voted is None or not offer.continues(earlier):
            continue
        if forgotten:
            raise RefusedError(
                f"entries of our ledger were lost after we had voted in series {announced.series!r}: who "
                "voted then could vote again. Take part in a new series, whose cost adds up"
            )
        before_votes, votes = _charged(earlier), _charged(offer)
        if (earlier.announced.unit, before_votes) != (announced.unit, votes):
            raise RefusedError(
                f"series {announced.series!r} protects each {earlier.announced.unit} with "
                f"{before_votes} of its votes, campaign {offer.campaign[:8]} each "
                f"{announced.unit} with {votes}: it needs a series of its own"
            )
        was, now = _composition(earlier), _composition(offer)
        if was != now:
            raise RefusedError(
                f"series {announced.series!r} adds up its costs in {was!r}, campaign "
                f"{offer.campaign[:8]} in {now!r}, and no epsilon of either covers both: it "
                f"needs {_KEEPS.get(was or '', 'the same noise')}, or a series of its own"
            )
        if voted.known_by != units.known_by:
            raise RefusedError(
                f"in series {announced.series!r} our {announced.unit}s were known in another way: the "
                "columns of the campaign, --label, --group, --decimal, --thousands or --missing have "
                "changed, or shard.key was lost; who has voted could vote again. Restore what it was, or "
                "take part in a new series, whose cost adds up"
            )


def _charged(offer: Offer) -> int | None:
    return None if offer.settled is None else offer.settled.votes_per_unit


def _composition(offer: Offer) -> str | None:
    return None if offer.settled is None else offer.settled.composition
