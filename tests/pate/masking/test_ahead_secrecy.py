"""What a lying server and its colluders see of rounds with bundles: shown by enumeration.

First by counting: for every list that a server can show each honest party, which sum comes of it, with
the rules of docs/proofs/envelopes.md written down once more. Then with the real parties, whose mask
stream is ideal: each mask runs through all of a tiny ring, and the adversary's views are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import PateError
from pate.masking.ahead.bundle import takes_consent
from pate.masking.ahead.party import PartyAhead
from pate.masking.announced import survivors_to_sign
from pate.masking.ring import Ring
from pate.masking.shamir import UnmaskingShares
from tests.pate.masking.test_secrecy import Ideal, Stream, secret, views_of
from tests.support.masking.ahead import Field, MemoryStore
from tests.support.masking.attempts import identity_of

Names = frozenset[str]

# --- by counting ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted:
    """n parties, of which the last k work with the server, and threshold t."""

    parties: int
    threshold: int
    accomplices: int

    def stories(self) -> Iterator[tuple[frozenset[int] | str | None, ...]]:
        """What each honest party does: its list; None: it masked, and unmasks nothing; or elsewhere.

        ``elsewhere`` is one that has not masked in this round. It may have been shown any of its
        bundles in other rounds, one each, and have revealed a share of any mask key there.
        """
        everyone = range(self.parties)
        honest = self.parties - self.accomplices
        sizes = range(self.threshold, self.parties + 1)
        lists = [
            frozenset(each) for size in sizes for each in itertools.combinations(everyone, size)
        ]
        choices = [
            [*(each for each in lists if at in each), None, "elsewhere"] for at in range(honest)
        ]
        for story in itertools.product(*choices):
            away = {at for at, each in enumerate(story) if each == "elsewhere"}
            # A list has only parties that signed that they masked in this round.
            if not any(isinstance(each, frozenset) and each & away for each in story):
                yield story

    def summed(self, story: tuple[frozenset[int] | str | None, ...]) -> frozenset[int]:
        """The honest parties in the sum that the server can work out; none if it can work out none."""
        honest = range(self.parties - self.accomplices)
        lists = [each for each in story if isinstance(each, frozenset)]
        away = sum(each == "elsewhere" for each in story)
        seeds = {at: sum(at in each for each in lists) + self.accomplices for at in honest}
        keys = {
            at: sum(at not in each for each in lists) + away + self.accomplices for at in honest
        }
        own = {at for at in honest if story[at] != "elsewhere" and seeds[at] >= self.threshold}
        known = {at for at in honest if keys[at] >= self.threshold}
        assert not own & known, "both secrets of a party"
        # Who is neither has a mask with each of the others that nobody knows and nothing cancels.
        return frozenset(own) if own | known == set(honest) else frozenset()


SIZES = [(3, 2, 0), (4, 3, 0), (4, 3, 1), (4, 4, 2), (5, 4, 0), (5, 4, 1), (5, 4, 2), (6, 5, 3)]


@pytest.mark.parametrize(("parties", "threshold", "accomplices"), SIZES)
def test_lists_cannot_be_mixed_to_a_sum_of_too_few(
    parties: int, threshold: int, accomplices: int
) -> None:
    """Where no consent is taken, a sum has t - c honest parties or more, whatever the lists."""
    assert takes_consent(parties, threshold, accomplices, noisy=True) is False
    world = Counted(parties, threshold, accomplices)
    sizes = {len(found) for story in world.stories() if (found := world.summed(story))}
    assert min(sizes) == threshold - accomplices
    assert max(sizes) == parties - accomplices


def test_lists_could_be_mixed_where_consent_is_taken() -> None:
    """Five parties, three needed: each is shown another list, and the sum is of two."""
    assert takes_consent(5, 3, 0, noisy=True)
    assert all(len(each) == 3 and at in each for at, each in enumerate(MIXED))
    assert Counted(5, 3, 0).summed(MIXED) == frozenset({0, 2})


#: A list for each of five parties; 1, 3 and 4 are each left out by three.
MIXED = tuple(map(frozenset, ({0, 1, 2}, {0, 1, 2}, {0, 2, 3}, {0, 2, 3}, {0, 2, 4})))

# --- with real parties ------------------------------------------------------------------------


class Play:
    """Parties that have begun a round, and all that a server can make of them from there on."""

    def __init__(
        self, parties: int, threshold: int, colluders: int, accomplices: int,
        *, consent: bool, bits: int = 1,
    ) -> None:  # fmt: skip
        self.ideal = Ideal(Ring(bits))
        self.field = Field(
            parties, threshold, colluders, consent, bits=8, rows=1, classes=1,
            stream=lambda name: Stream(self.ideal, name),
        )  # fmt: skip
        names = self.field.names
        self.everyone = frozenset(names)
        self.accomplices = frozenset(names[parties - accomplices :])
        self.honest = [name for name in names if name not in self.accomplices]
        self.threshold = threshold
        self.round = self.field.round()
        self.before = self.field.saved()
        for name in self.honest:
            self.field.party(name).begin(self.round, self.field.boxes(name, self.round))
        self.begun = self.field.saved()
        for name in names:
            self.field.mask(name, self.round, np.zeros((1, 1), dtype=np.int64))
        self.ideal.complete = True
        self.after = self.field.saved()
        used = sorted(sorted(mask) for mask in self.ideal.users.values())
        pairs = [sorted(pair) for pair in itertools.combinations(names, 2)]
        assert used == sorted([*([name] for name in names), *pairs])
        self.masks = [frozenset(m) for m in used if self.accomplices.isdisjoint(m)]
        self.grid = np.indices((self.ideal.ring.size,) * len(self.masks)).reshape(
            len(self.masks), -1
        )
        self.tables = {name: self._table(name) for name in self.honest}
        self.openings: dict[tuple[str, Names, Names, Names], UnmaskingShares | None] = {}

    def _table(self, name: str) -> NDArray[np.int64]:
        """A party's masked vote: by its vote, then by each of ``masks`` that it uses."""
        own = [mask for mask in self.masks if name in mask]
        table = np.zeros((self.ideal.ring.size,) * (1 + len(own)), dtype=np.int64)
        for at in np.ndindex(table.shape):
            self.ideal.now = dict(zip(own, at[1:], strict=True))
            party = self.party(name, self.begun[name])
            packed, _ = party.mask(self.round, lambda at=at: np.array([[at[0]]]))  # type: ignore[misc]
            table[at] = self.ideal.ring.unpack(packed, 1)[0]
        self.ideal.now = {}
        return table

    def party(self, name: str, store: MemoryStore) -> PartyAhead:
        """A party with a copy of a store."""
        return self.field.party(name, MemoryStore(dict(store.entries)))

    def opening(
        self, name: str, survivors: Names, masked: Names, signed: Names
    ) -> UnmaskingShares | None:
        """What a party reveals for a list; signatures that the server has not are forged.

        Args:
            name: of the party.
            survivors: the list.
            masked: who signed that it masked in the round.
            signed: who signed the list.
        """
        genuine = self.field.signed(self.round, masked & survivors)
        given = {who: genuine.get(who, bytes(64)) for who in survivors}
        party = self.party(name, self.after[name])
        try:
            consents = {}
            if self.round.consent:
                consents = {
                    who: self.party(who, self.after[who]).sign(self.round, given)
                    for who in signed & survivors
                }
            party.choose(self.round, given, consents)
            return party.unmask(self.round)
        except PateError:
            return None

    def elsewhere(self, name: str) -> list[UnmaskingShares]:
        """What a party reveals that is shown the others' bundles of this round in other rounds.

        It is shown them one by one, and that their owners are lost; if nobody may be, it refuses.
        """
        found: list[UnmaskingShares] = []
        if self.threshold == len(self.everyone):
            return found
        self.field.stores[name] = MemoryStore(dict(self.before[name].entries))
        for number, lost in enumerate(sorted(self.everyone - {name}), 1):
            numbers = {**dict.fromkeys(self.everyone, number), lost: 0}
            batch = bytes([number]) * 32
            round_ = self.field.round(numbers, attempt=number, batch=batch)
            left = self.everyone - {lost}
            party = self.field.party(name)
            party.begin(round_, self.field.boxes(name, round_))
            party.mask(round_, lambda: np.zeros((1, 1), dtype=np.int64))
            consents = {}
            if round_.consent:  # more than a server can get
                to_sign = survivors_to_sign(round_, sorted(left))
                consents = {who: identity_of(who).sign(to_sign) for who in left}
            party.choose(round_, self.field.signed(round_, left), consents)
            opening = party.unmask(round_)
            assert opening.key_shares.keys() == {lost}
            found.append(UnmaskingShares({}, opening.key_shares))
        return found

    def learned(self, openings: Iterable[UnmaskingShares]) -> frozenset[Names]:
        """The masks that the openings and the accomplices' shares give away."""
        seeds = dict.fromkeys(self.honest, len(self.accomplices))
        keys = dict(seeds)
        for opening in openings:
            for shares, of in ((opening.seed_shares, seeds), (opening.key_shares, keys)):
                for name in shares.keys() & of.keys():
                    of[name] += 1
        return frozenset(
            mask
            for mask in self.masks
            if any((seeds if len(mask) == 1 else keys)[name] >= self.threshold for name in mask)
        )

    def views(
        self, arrived: Names, learned: frozenset[Names], summed: Names
    ) -> dict[int, set[bytes]]:
        """What the adversary sees, by the sum of the votes of ``summed``."""
        tables = {name: self.tables[name] for name in arrived}
        return views_of(self.masks, self.grid, tables, learned, summed)

    def told(self, arrived: Names, learned: frozenset[Names]) -> Names:
        """The parties whose sum is all that is seen; none if nothing is seen.

        Raises:
            AssertionError: if more than one sum is seen.
        """
        for size in range(len(arrived) + 1):
            for some in map(frozenset, itertools.combinations(sorted(arrived), size)):
                if secret(self.views(arrived, learned, some)):
                    return some
        raise AssertionError(f"more than a sum is seen: {sorted(arrived)} arrived")


@pytest.mark.parametrize(
    ("parties", "threshold", "colluders", "consent"),
    [(3, 3, 1, False), (4, 3, 1, False), (4, 4, 2, False), (4, 3, 1, True), (3, 2, 0, True)],
)
def test_a_lying_server_sees_one_sum_of_t_minus_c_or_more(
    parties: int, threshold: int, colluders: int, *, consent: bool
) -> None:
    """Every list for each party that masked, and other rounds for each that did not."""
    play = Play(parties, threshold, colluders, colluders, consent=consent)
    subsets = [
        frozenset(some)
        for size in range(1, parties + 1)
        for some in itertools.combinations(sorted(play.everyone), size)
    ]
    elsewhere = {name: play.elsewhere(name) for name in play.honest}
    seen, opened = set(), 0
    choices = [None, "masked", *subsets]
    for story in itertools.product(choices, repeat=len(play.honest)):
        asked = dict(zip(play.honest, story, strict=True))
        arrived = frozenset(name for name, each in asked.items() if each)
        masked = arrived | play.accomplices
        openings: list[UnmaskingShares] = []
        for name, each in asked.items():
            if each is None:
                openings += elsewhere[name]
            elif isinstance(each, frozenset):
                same = {who for who, their in asked.items() if their == each} | play.accomplices
                key = (
                    name,
                    each,
                    masked & each,
                    frozenset(same) & each if consent else frozenset(),
                )
                if key not in play.openings:
                    play.openings[key] = play.opening(*key)
                opening = play.openings[key]
                openings += [] if opening is None else [opening]
                opened += opening is not None
        seen.add((arrived, play.learned(openings)))
    sizes = {len(play.told(arrived, learned)) for arrived, learned in seen}
    assert opened
    assert sizes == {0, *range(threshold - colluders, len(play.honest) + 1)}


def test_mixed_lists_show_the_sum_of_two_and_consent_refuses_them() -> None:
    """The same five lists, to real parties: without consent they unmask a sum of two of five."""
    for consent in (False, True):
        play = Play(5, 3, 0, 0, consent=consent)
        openings = []
        for name, places in zip(play.honest, MIXED, strict=True):
            survivors = frozenset(play.honest[at] for at in places)
            same = frozenset(play.honest[at] for at, each in enumerate(MIXED) if each == places)
            openings.append(play.opening(name, survivors, play.everyone, same))
        if consent:
            assert openings == [None] * 5
            continue
        learned = play.learned(each for each in openings if each is not None)
        two = frozenset({play.honest[0], play.honest[2]})
        assert play.told(play.everyone, learned) == two
