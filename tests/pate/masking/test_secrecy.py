"""The view of a server and its colluders reveals only the sum: shown by enumeration.

The parties are the real ones. Only the mask stream is ideal: a table from keys to masks, in which
each mask runs through all of a tiny ring. The adversary sees every masked vote that arrived, all
masks that its accomplices know, and the masks of each party whose seed or mask key it can put
together from the openings and the accomplices' shares. For all votes of the honest parties that
have the same sum over the honest survivors, what it sees must be distributed alike.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from pate.errors import PateError
from pate.masking import graph
from pate.masking.announced import Announced
from pate.masking.context import VERSION, Member
from pate.masking.graph import Degree
from pate.masking.party import PartyMasking
from pate.masking.ring import Residues, Ring
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.attempts import flat_context

Names = frozenset[str]
#: A mask, by who uses it: one party its own, two the mask of their pair.
Mask = frozenset[str]
Ints = NDArray[np.int64]


def tape(name: str) -> Callable[[int], bytes]:
    """Random bytes that a name fixes."""
    at = itertools.count()
    return lambda count: hashlib.shake_256(f"{name}/{next(at)}".encode()).digest(count)


class Ideal:
    """Ideal masks: who uses which key, and what each mask is just now."""

    def __init__(self, ring: Ring, left_out: int = 0) -> None:
        self.ring = ring
        self.left_out = left_out
        self.users: dict[bytes, Mask] = {}
        self.complete = False
        self.now: dict[Mask, int] = {}

    def value(self, key: bytes, name: str) -> int:
        if not self.complete:
            self.users[key] = self.users.get(key, frozenset()) | {name}
        mask = self.users.get(key, frozenset())  # a key of another round's has no users
        assert not mask or name in mask
        return 0 if len(mask) == self.left_out else self.now.get(mask, 1)


@dataclass
class Stream:
    """The ideal masks as one party gets them, in the first count of the two of a vote matrix.

    The second one is left bare, and no vote is cast there.
    """

    ideal: Ideal
    name: str

    @property
    def ring(self) -> Ring:
        return self.ideal.ring

    def __deepcopy__(self, memo: object) -> Stream:
        return self

    def __call__(self, key: bytes, count: int) -> Residues:
        mask = np.zeros(count, self.ring.dtype)
        mask[0] = self.ideal.value(key, self.name)
        return mask


class Play:
    """Parties that have sent their shares, and all that can be made of them from there on.

    Attributes:
        everyone: names of the roster.
        threshold: t.
        shares_needed: what gives a secret back: t on a complete graph.
        signers: who signs lists of survivors for all.
        accomplices: whose secrets the server has.
        masks: those that no accomplice knows: the honest parties' own, and of their pairs.
    """

    def __init__(
        self, parties: int, threshold: int, colluders: int, accomplices: int, *,
        bits: int, left_out: int = 0, shares_needed: int | None = None,
    ) -> None:  # fmt: skip
        names = [f"party_{letter}" for letter in "abcdefg"[:parties]]
        identities = {
            name: Ed25519PrivateKey.from_private_bytes(tape(f"identity of {name}")(32))
            for name in names
        }
        context = flat_context(
            version=VERSION, campaign=bytes(16), attempt=bytes(16), batch=bytes(32),
            members=tuple(
                Member(name, key.public_key().public_bytes_raw())
                for name, key in identities.items()
            ),
            rows=1, classes=2, bits=8, threshold=threshold, colluders=colluders, terms=bytes(32),
        )  # fmt: skip
        self.everyone = frozenset(names)
        self.threshold = threshold
        self.shares_needed = shares_needed or threshold
        self.accomplices = frozenset(names[parties - accomplices :])
        self.honest = sorted(self.everyone - self.accomplices)
        self.ring = Ring(bits)
        self.ideal = Ideal(self.ring, left_out)
        self.parties = {
            name: PartyMasking(
                context, name=name, identity=key, random=tape(name),
                stream=Stream(self.ideal, name),
            )
            for name, key in identities.items()
        }  # fmt: skip
        keys = {name: party.keys() for name, party in self.parties.items()}
        self.signers = Announced(context, keys).graph.signers
        self.boxes = {name: party.shares(keys) for name, party in self.parties.items()}
        # What never changes is most of a party, and not copied with it.
        whole = [context, *keys.values(), *(each._announced for each in self.parties.values())]
        self.fixed = {id(each): each for each in whole}
        # Everybody masks once with everybody, which tells who uses which key.
        for name in names:
            self.mask(name, self.everyone, 0)
        self.ideal.complete = True
        used = sorted(sorted(mask) for mask in self.ideal.users.values())
        pairs = {tuple(sorted((name, peer))) for name in names for peer in self.boxes[name]}
        assert used == sorted([[name] for name in names] + [list(pair) for pair in pairs]), (
            "a mask that others than a party or a pair of neighbours use"
        )
        self.masks = [frozenset(m) for m in used if self.accomplices.isdisjoint(m)]
        #: Every value of every mask: (masks, size ** masks).
        self.grid = np.indices((self.ring.size,) * len(self.masks)).reshape(len(self.masks), -1)
        self.signature = cache(self._signature)
        self.opening = cache(self._opening)
        self.learnt: dict[frozenset[int], frozenset[Mask]] = {}
        self.table = cache(self._table)

    def mask(self, name: str, heard: Names, vote: int) -> tuple[PartyMasking, int]:
        """A party after it has masked, having got the boxes of ``heard``; and its masked vote."""
        party = copy.deepcopy(self.parties[name], {**self.fixed})
        boxes = {peer: self.boxes[peer][name] for peer in heard if name in self.boxes[peer]}
        masked = party.mask(boxes, np.array([[vote, 0]], dtype=np.int64))
        return party, int(self.ring.unpack(masked, 2)[0])

    def _signature(self, name: str, heard: Names, survivors: Names) -> bytes | None:
        try:
            return self.mask(name, heard, 0)[0].sign_survivors(sorted(survivors))
        except PateError:
            return None

    def _opening(
        self, name: str, heard: Names, survivors: Names, signers: frozenset[tuple[str, Names]]
    ) -> UnmaskingShares | None:
        """What a party opens; each signer has heard others. Forged signatures are tried, too."""
        genuine = {who: self.signature(who, their, survivors) for who, their in signers}
        given = {who: each for who, each in genuine.items() if each and who in self.signers}
        for signatures in (given, dict.fromkeys(survivors, bytes(64)) | given):
            party, _ = self.mask(name, heard, 0)
            party.sign_survivors(sorted(survivors))
            with contextlib.suppress(PateError):
                return party.unmask(signatures)
        return None

    def _table(self, name: str, heard: Names) -> Ints:
        """A party's masked vote: by its vote, then by each of ``masks`` that it uses."""
        own = [mask for mask in self.masks if name in mask]
        table = np.zeros((self.ring.size,) * (1 + len(own)), dtype=np.int64)
        for at in np.ndindex(table.shape):
            self.ideal.now = dict(zip(own, at[1:], strict=True))
            table[at] = self.mask(name, heard, at[0])[1]
        self.ideal.now = {}
        return table

    def learned(self, openings: Collection[UnmaskingShares]) -> frozenset[Mask]:
        """The masks that the openings and the accomplices' shares give away."""
        which = frozenset(map(id, openings))  # each is kept, by ``opening``
        if which not in self.learnt:
            self.learnt[which] = self._learned(openings)
        return self.learnt[which]

    def _learned(self, openings: Collection[UnmaskingShares]) -> frozenset[Mask]:
        # Everybody sealed a share of either secret for each accomplice among its neighbours.
        seeds = Counter(
            {name: len(self.accomplices & self.boxes[name].keys()) for name in self.honest}
        )
        keys = seeds.copy()
        for opening in openings:
            seeds.update(opening.seed_shares.keys())
            keys.update(opening.key_shares.keys())
        found = set()
        for mask in self.masks:
            counts = seeds if len(mask) == 1 else keys
            if any(counts[name] >= self.shares_needed for name in mask):
                found.add(mask)
        return frozenset(found)

    def views(
        self, heard: Mapping[str, Names], learned: frozenset[Mask], summed: Names
    ) -> dict[int, set[bytes]]:
        """What the adversary sees, by the sum of the votes of ``summed``."""
        tables = {name: self.table(name, their) for name, their in heard.items()}
        return views_of(self.masks, self.grid, tables, learned, summed)


def views_of(
    masks: Sequence[Mask],
    grid: Ints,
    tables: Mapping[str, Ints],
    learned: AbstractSet[Mask],
    summed: Names,
) -> dict[int, set[bytes]]:
    """What the adversary sees, by the sum of the votes of ``summed``.

    One view is a multiset over all values of all masks: a code for each, sorted. There is one for
    each choice of votes of those whose masked votes arrived, and are in ``tables``.
    """
    size, who = int(grid.max()) + 1, sorted(tables)
    found = defaultdict(set)
    for votes in itertools.product(range(size), repeat=len(who)):
        code = np.zeros(grid.shape[1], dtype=np.int64)
        for name, vote in zip(who, votes, strict=True):
            own = [grid[at] for at, mask in enumerate(masks) if name in mask]
            code = code * size + tables[name][(vote, *own)]
        for at, mask in enumerate(masks):
            if mask in learned:
                code = code * size + grid[at]
        total = sum(v for name, v in zip(who, votes, strict=True) if name in summed) % size
        found[total].add(np.sort(code).tobytes())
    return found


def secret(views: Mapping[int, set[bytes]]) -> bool:
    """Whether votes with the same sum look the same."""
    return all(len(each) == 1 for each in views.values())


def telling(views: Mapping[int, set[bytes]]) -> bool:
    """Whether other sums look other: that the enumeration sees anything at all."""
    return len(set().union(*views.values())) == sum(map(len, views.values())) > 1


def dropouts(play: Play) -> Iterator[tuple[Names, Names]]:
    """Survivors, and those whose masked votes came too late to be in the sum."""
    for count in range(play.threshold, len(play.everyone) + 1):
        for survivors in map(frozenset, itertools.combinations(sorted(play.everyone), count)):
            lost = sorted(play.everyone - survivors - play.accomplices)
            for some in range(len(lost) + 1):
                for late in itertools.combinations(lost, some):
                    yield survivors, frozenset(late)


def honest_server(play: Play, survivors: Names, late: Names) -> dict[int, set[bytes]]:
    """The views when all survivors sign one list and open what they hold."""
    signers = frozenset((name, play.everyone) for name in survivors)
    openings = []
    for name in survivors - play.accomplices:
        opening = play.opening(name, play.everyone, survivors, signers)
        if opening is None:
            assert len(survivors & play.signers) < play.shares_needed
        else:
            openings.append(opening)
    arrived = (survivors | late) - play.accomplices
    learned = play.learned(openings)
    return play.views(dict.fromkeys(arrived, play.everyone), learned, survivors)


#: n, t, c, accomplices, bits of the ring. Up to t - 1 accomplices.
SIZES = [(3, 2, 0, 0, 2), (3, 2, 0, 1, 2), (4, 3, 1, 0, 1), (4, 3, 1, 1, 2), (4, 3, 1, 2, 2),
         (5, 4, 2, 2, 1), (5, 4, 2, 3, 2)]  # fmt: skip


@pytest.mark.parametrize(("parties", "threshold", "colluders", "accomplices", "bits"), SIZES)
def test_only_the_sum_is_seen(
    parties: int, threshold: int, colluders: int, accomplices: int, bits: int
) -> None:
    """Whoever drops out, after the shares or with a masked vote that comes too late."""
    play = Play(parties, threshold, colluders, accomplices, bits=bits)
    told = 0
    for survivors, late in dropouts(play):
        views = honest_server(play, survivors, late)
        assert secret(views), f"{sorted(survivors)} survive, {sorted(late)} late"
        if survivors - play.accomplices:
            assert telling(views)
            told += 1
    assert told


def subsets(names: Names) -> list[Names]:
    return [
        frozenset(some)
        for count in range(1, len(names) + 1)
        for some in itertools.combinations(sorted(names), count)
    ]


def lies(play: Play, name: str) -> list[tuple[Names, Names | None] | None]:
    """What a server can do with one party: whose boxes it gets, and which survivors it signs.

    None as the whole: its masked vote is never asked for; as the list: it signs none.
    """
    found: list[tuple[Names, Names | None] | None] = [None]
    for heard in subsets(play.everyone - {name}):
        with contextlib.suppress(PateError):
            play.mask(name, heard, 0)
            lists = subsets(play.everyone)
            signed = [each for each in lists if play.signature(name, heard, each) is not None]
            found += [(heard, each) for each in (None, *signed)]
    assert len(found) > 1
    return found


@pytest.mark.parametrize(
    ("parties", "threshold", "colluders"), [(3, 2, 0), (4, 3, 1), (4, 3, 0), (4, 4, 2)]
)
def test_a_lying_server_with_all_its_colluders_sees_one_sum_at_most(
    parties: int, threshold: int, colluders: int
) -> None:
    """Other boxes and other lists for each party, in all ways there are, and all that they open."""
    play = Play(parties, threshold, colluders, colluders, bits=1)
    seen = set()
    for story in itertools.product(*(lies(play, name) for name in play.honest)):
        asked = dict(zip(play.honest, story, strict=True))
        arrived = {name: each[0] for name, each in asked.items() if each}
        signed = {name: each[1] for name, each in asked.items() if each and each[1]}
        openings, summed = [], set()
        for name, survivors in signed.items():
            signers = {(who, arrived[who]) for who, each in signed.items() if each == survivors}
            signers |= {(who, play.everyone) for who in play.accomplices & survivors}
            opening = play.opening(name, arrived[name], survivors, frozenset(signers))
            if opening is not None:
                openings.append(opening)
                summed.add(survivors)
        assert len(summed) <= 1, f"two lists were opened: {summed}"
        over = next(iter(summed), frozenset())
        seen.add((tuple(sorted(arrived.items())), play.learned(openings), over))
    opened = 0
    for masked, learned, over in seen:
        views = play.views(dict(masked), learned, over)
        assert secret(views), f"{masked} masked, {learned} known, {over} signed"
        opened += telling(views)
    assert opened


@pytest.mark.parametrize(("accomplices", "bits"), [(0, 1), (1, 2), (2, 2)])
def test_without_own_masks_a_late_vote_is_seen(accomplices: int, bits: int) -> None:
    play = Play(4, 3, 1, accomplices, bits=bits, left_out=1)
    (late, *_) = play.honest
    survivors = play.everyone - {late}
    assert secret(honest_server(play, survivors, frozenset()))
    assert not secret(honest_server(play, survivors, frozenset({late})))


def test_without_pair_masks_every_vote_is_seen() -> None:
    play = Play(4, 3, 1, 1, bits=2, left_out=2)
    assert not secret(honest_server(play, play.everyone, frozenset()))


def test_both_secrets_of_a_party_would_show_its_vote() -> None:
    play = Play(4, 3, 1, 1, bits=2)
    everyone = dict.fromkeys(play.honest, play.everyone)
    own, *_ = ({mask for mask in play.masks if name in mask} for name in play.honest)
    rest = {mask for mask in play.masks if len(mask) == 1}
    assert secret(play.views(everyone, frozenset(rest), play.everyone))
    assert not secret(play.views(everyone, frozenset(rest | own), play.everyone))


@pytest.mark.parametrize(
    ("neighbours", "shares_needed", "safe"),
    [(4, 4, True), (2, 2, False)],
    ids=["four neighbours", "two, too few"],
)
def test_on_a_graph_with_neighbours_only_the_sum_is_seen(
    neighbours: int, shares_needed: int, *, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small enough to enumerate, so its degree is set here.

    The first one has 2 t_k >= k + q + 3, with the one colluder in every neighbourhood. The second
    has not: two that drop out cut the ring in two, and the sum of either part is seen.
    """
    degree = Degree(neighbours, shares_needed, complete=False)
    monkeypatch.setattr(graph, "degree_for", lambda *_: degree)
    play = Play(6, 4, 1, 1, bits=1, shares_needed=shares_needed)
    assert {len(boxes) for boxes in play.boxes.values()} == {neighbours}
    views = [honest_server(play, survivors, late) for survivors, late in dropouts(play)]
    assert all(map(secret, views)) is safe
    assert any(map(telling, views))
