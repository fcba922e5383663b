"""A party's own bundles as its ledger lists them: a number is one bundle, and a bundle is in one round.

The file of the bundles follows both rules by itself. The list is for a home whose file was put back
to an earlier state and whose ledger was not: what the file forgot, the ledger has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pate.errors import LedgerError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Kinds of entries: bundles that leave, and the round that one of them masks in.
MADE: Final = "bundles"
USED: Final = "bundle"
_DIGEST_BYTES: Final = 32
_MOST_NUMBER: Final = 2**32


@dataclass(frozen=True, slots=True)
class ListedBundle:
    """A bundle of this party that left.

    Attributes:
        roster: digest of the parties that it was made for, hex.
        number: of the bundle, for that roster.
        digest: of the bundle, hex.
        round: digest of the round that it masks in, hex; empty before that.
        at: when it was listed, UTC.
    """

    roster: str
    number: int
    digest: str
    round: str
    at: str


class Listing:
    """The bundles that left, by entry of the ledger."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], str] = {}
        self._listed: dict[str, ListedBundle] = {}

    def bundles(self) -> tuple[ListedBundle, ...]:
        """Return all bundles, in the order in which they were listed."""
        return tuple(self._listed.values())

    def new(self, roster: str, first: int, bundles: Sequence[str]) -> range:
        """Return which of these bundles are not listed, from the first such to the last; empty: none.

        Args:
            roster: digest, hex.
            first: number of the first.
            bundles: their digests, hex, by number.

        Raises:
            RefusedError: if another bundle of one of these numbers is listed.
        """
        known = [self._made.get((roster, first + at)) for at in range(len(bundles))]
        for at, (each, made) in enumerate(zip(known, bundles, strict=True)):
            if each not in (None, made):
                raise RefusedError(
                    f"another bundle {first + at} for these parties left before: its secrets are "
                    "lost, and no other one takes its number"
                )
        new = [at for at, each in enumerate(known) if each is None]
        return range(new[0], new[-1] + 1) if new else range(0)

    def has_used(self, bundle: str, round_: str) -> bool:
        """Return whether a bundle is listed with this round.

        Raises:
            RefusedError: if it is not listed, or with another round.
        """
        found = self._listed.get(bundle)
        if found is None:
            raise RefusedError(
                "a bundle that is not in our ledger: the ledger is older than the bundles"
            )
        if found.round not in ("", round_):
            raise RefusedError(
                f"bundle {found.number} masked in another round, by our ledger: a bundle is used once"
            )
        return found.round == round_

    def follow(self, kind: str, fields: dict[str, Any], at: str) -> None:
        """Apply an entry of one of these kinds; nothing changes if it raises.

        Raises:
            RefusedError: see :meth:`new`, :meth:`has_used`.
            LedgerError: for an entry of another form.
        """
        if kind == USED:
            bundle, round_ = _digest(fields.pop("bundle")), _digest(fields.pop("round"))
            _require_empty(fields)
            if not self.has_used(bundle, round_):
                self._listed[bundle] = replace(self._listed[bundle], round=round_)
            return
        roster, first, made = _digest(fields.pop("roster")), fields.pop("first"), fields.pop("made")
        _require_empty(fields)
        if type(first) is not int or type(made) is not list or not made:
            raise LedgerError("an entry of bundles without numbers")
        if not 0 <= first <= _MOST_NUMBER - len(made):
            raise LedgerError(f"a bundle with the number {first!r:.40}")
        digests = [_digest(each) for each in made]
        self.new(roster, first, digests)
        for number, digest in enumerate(digests, first):
            self._made[roster, number] = digest
            self._listed.setdefault(digest, ListedBundle(roster, number, digest, "", at))


def _digest(text: object) -> str:
    try:
        whole = isinstance(text, str) and len(bytes.fromhex(text)) == _DIGEST_BYTES
    except ValueError:
        whole = False
    if not isinstance(text, str) or not whole:
        raise LedgerError("an entry of bundles with a digest that is not 32 bytes")
    return text


def _require_empty(fields: dict[str, Any]) -> None:
    if fields:
        raise LedgerError(f"an entry of bundles with unknown fields: {', '.join(sorted(fields))}")
