"""A party that gets its neighbours' keys and hashes of the rest, and a server that lies about them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations

import pytest

from pate.errors import PateError, ProtocolError, QuorumError
from pate.masking.announced import (
    Announced,
    KeyTree,
    Outline,
    root_of,
    sign_keys,
    survivors_to_sign,
)
from pate.masking.keys import Keys
from pate.masking.party import PartyMasking
from tests.support.masking.attempts import (
    Attempt,
    bytes_from,
    context_for,
    identity_of,
    name_of,
    party_of,
)

#: n = 150, t = 130, c = 3: each masks with 44, and 25 of the 45 at the first places sign.
CONTEXT = context_for(150, 130, 3)
NAMES = CONTEXT.names
ME = name_of(0)

Request = tuple[dict[str, Keys], Outline]


# --- the tree ------------------------------------------------------------------------------


def some_keys(count: int) -> dict[str, Keys]:
    random = bytes_from(count)
    return {
        name_of(number): Keys(random(32), random(32), random(32), random(64))
        for number in range(count)
    }


@pytest.mark.parametrize("count", range(1, 9))
def test_every_choice_of_keys_gives_the_root_of_all(count: int) -> None:
    keys = some_keys(count)
    tree = KeyTree(keys)
    root = root_of(Outline(tree.names), keys)
    for shown in range(1, count + 1):
        for names in combinations(tree.names, shown):
            outline = tree.outline(names)
            assert root_of(outline, {name: keys[name] for name in names}) == root
            assert len(outline.hashes) <= shown * max(1, (count - 1).bit_length())


def test_hashes_are_few() -> None:
    tree = KeyTree(some_keys(1000))
    shown = tree.names[::7]
    assert len(shown) == 143
    assert len(tree.outline(shown).hashes) <= 143 * 3  # k log2(n / k) = 401


def test_no_other_keys_have_the_root() -> None:
    keys = some_keys(7)
    tree, names = KeyTree(keys), tuple(name_of(number) for number in (1, 4, 5))
    root, outline = root_of(Outline(tree.names), keys), tree.outline(names)
    shown = {name: keys[name] for name in names}
    for name in names:
        for field in ("mask_key", "share_key", "seed_commitment"):
            changed = {name: replace(keys[name], **{field: bytes(32)})}
            assert root_of(outline, shown | changed) != root
    assert root_of(outline, shown | {names[0]: keys[names[1]], names[1]: keys[names[0]]}) != root
    assert root_of(replace(outline, hashes=outline.hashes[::-1]), shown) != root
    renamed = tuple("zebra" if name == name_of(6) else name for name in tree.names)
    assert root_of(replace(outline, names=renamed), shown) == root  # names are bound by the digest
    for hashes in (outline.hashes[1:], (*outline.hashes, bytes(32)), (b"", *outline.hashes[1:])):
        with pytest.raises(ProtocolError):
            root_of(replace(outline, hashes=hashes), shown)
    with pytest.raises(ProtocolError, match="not among those that announced"):
        root_of(outline, shown | {"zebra": keys[names[0]]})


# --- keys ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def announced() -> dict[str, Keys]:
    return {name: party_of(CONTEXT, name).keys() for name in NAMES}


@cache
def known(keys: tuple[tuple[str, Keys], ...]) -> tuple[Announced, KeyTree]:
    """What a server has of these keys, every signature checked once."""
    return Announced(CONTEXT, dict(keys)), KeyTree(dict(keys))


def told(keys: Mapping[str, Keys], name: str = ME) -> Request:
    """What an honest server tells a party."""
    every, tree = known(tuple(keys.items()))
    holders = sorted(every.graph.holders(name))
    return {each: keys[each] for each in holders}, tree.outline(holders)


def fresh(name: str = ME) -> PartyMasking:
    party = party_of(CONTEXT, name)
    party.keys()
    return party


def test_a_party_finds_the_graph_of_all_from_its_neighbours_keys(
    announced: dict[str, Keys],
) -> None:
    every = Announced(CONTEXT, announced)
    for name in NAMES[:3]:
        keys, outline = told(announced, name)
        assert len(keys) == 45
        part = Announced(CONTEXT, keys, outline)
        assert (part.digest, part.graph) == (every.digest, every.graph)
    boxes = fresh().shares(*told(announced))
    assert boxes.keys() == every.graph.neighbours(ME)


def test_names_are_in_the_digest_beside_the_root(announced: dict[str, Keys]) -> None:
    """The tree is over keys alone: who announced keys that are left out is only in the digest."""
    *some, last, absent = NAMES
    keys = {name: announced[name] for name in (*some, last)}
    every = Announced(CONTEXT, keys)
    me = next(name for name in some if last not in every.graph.neighbours(name))
    holders = sorted(every.graph.holders(me))
    shown, outline = {name: keys[name] for name in holders}, KeyTree(keys).outline(holders)
    renamed = replace(outline, names=(*some, absent))
    assert root_of(renamed, shown) == root_of(outline, shown)
    part = Announced(CONTEXT, shown, outline)
    assert part.digest == every.digest
    other = Announced(CONTEXT, shown, renamed)
    assert other.digest != every.digest
    assert other.graph.order != every.graph.order


def swapped(keys: dict[str, Keys], outline: Outline) -> Request:
    one, other = (name for name in sorted(keys)[1:3])
    return keys | {one: keys[other], other: keys[one]}, outline


def restarted(keys: dict[str, Keys], outline: Outline) -> Request:
    """A neighbour's keys of another life, which it signed, too."""
    peer = sorted(keys)[1]
    return keys | {peer: party_of(CONTEXT, peer, instance="other").keys()}, outline


def without_a_neighbour(keys: dict[str, Keys], outline: Outline) -> Request:
    every = {name: party_of(CONTEXT, name).keys() for name in outline.names}
    rest = sorted(keys)[:-1]
    return {name: keys[name] for name in rest}, KeyTree(every).outline(rest)


LIES: dict[str, tuple[Callable[[dict[str, Keys], Outline], Request], str]] = {
    "the keys of two neighbours, exchanged": (swapped, "are not signed"),
    "a neighbour's keys of another life": (restarted, "are missing"),
    "one neighbour less": (without_a_neighbour, "are missing"),
    "another hash": (
        lambda keys, outline: (keys, replace(outline, hashes=(bytes(32), *outline.hashes[1:]))),
        "are missing",
    ),
    "a hash less": (
        lambda keys, outline: (keys, replace(outline, hashes=outline.hashes[1:])),
        "too few hashes",
    ),
    "a hash more": (
        lambda keys, outline: (keys, replace(outline, hashes=(*outline.hashes, bytes(32)))),
        "more hashes",
    ),
    "a party twice": (
        lambda keys, outline: (
            keys, replace(outline, names=tuple(sorted((*outline.names[:-1], ME)))),
        ),
        "one is there twice",
    ),
    "a party that is not on the roster": (
        lambda keys, outline: (keys, replace(outline, names=(*outline.names[:-1], "zebra"))),
        "not in the roster",
    ),
    "fewer parties than a sum needs": (
        lambda keys, outline: (keys, replace(outline, names=outline.names[:129])),
        "130 are needed",
    ),
    "a party that announced nothing, in place of a neighbour": (
        lambda keys, outline: (
            keys,
            replace(outline, names=tuple(n for n in outline.names if n != sorted(keys)[1])),
        ),
        "not among those that announced",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_keys_is_refused_and_spoils_nothing(
    lie: str, announced: dict[str, Keys]
) -> None:
    change, words = LIES[lie]
    keys, outline = told(announced)
    party = fresh()
    with pytest.raises(PateError, match=words):
        party.shares(*change(keys, outline))
    assert len(party.shares(keys, outline)) == 44


def test_who_was_told_of_other_keys_far_away_has_no_part_in_the_sum(
    announced: dict[str, Keys],
) -> None:
    """The server keeps the neighbours' keys right, and the tree, and exchanges one far key."""
    every = Announced(CONTEXT, announced)
    peer = next(iter(sorted(every.graph.neighbours(ME))))
    boxes = {peer: fresh(peer).shares(*told(announced, peer))}
    for number in range(1, 41):
        # Another order of the ring each time: go through some until the two are neighbours there.
        far = name_of(149)
        other = announced | {far: party_of(CONTEXT, far, instance=number).keys()}
        if peer in Announced(CONTEXT, other).graph.neighbours(ME):
            break
    else:  # a chance of (105 / 149) ** 40, below 1e-6, and these hashes are fixed
        pytest.fail("never neighbours")
    party = fresh()
    party.shares(*told(other))
    lied_to = {
        each: fresh(each).shares(*told(other, each))[ME]
        for each in sorted(Announced(CONTEXT, other).graph.neighbours(ME) - {peer, far})[:25]
    }
    values = Attempt(CONTEXT).values[ME]
    with pytest.raises(ProtocolError, match=f"box from {peer} to {ME} does not open"):
        party.mask({peer: boxes[peer][ME], **lied_to}, values)
    assert party.mask(lied_to, values)  # those who were told the same


# --- the list of survivors -----------------------------------------------------------------


class Signing:
    """A party that has masked its votes, and the keys of all others' identities."""

    def __init__(self, keys: dict[str, Keys]) -> None:
        self.every, _ = known(tuple(keys.items()))
        self.party = fresh()
        self.party.shares(*told(keys))
        near = sorted(self.every.graph.neighbours(ME))
        self.boxes = {name: fresh(name).shares(*told(keys, name))[ME] for name in near}
        self.party.mask(self.boxes, Attempt(CONTEXT).values[ME])
        self.signers = sorted(self.every.graph.signers)

    def by(self, names: Sequence[str], survivors: Sequence[str]) -> dict[str, bytes]:
        signed = survivors_to_sign(self.every, survivors)
        return {name: identity_of(name).sign(signed) for name in names}


@pytest.fixture(scope="module")
def masked(announced: dict[str, Keys]) -> Signing:
    return Signing(announced)


@pytest.fixture
def play(masked: Signing) -> Signing:
    """A party that has signed no list."""
    again = copy.copy(masked)
    again.party = copy.deepcopy(masked.party)
    return again


def test_a_list_needs_the_signatures_of_enough_of_the_parties_that_sign_for_all(
    play: Signing,
) -> None:
    assert len(play.signers) == 45
    play.party.sign_survivors(NAMES)
    others = sorted(set(NAMES) - set(play.signers))
    # 104 that do not sign for all, as the old rule had counted; or one too few of those that do.
    with pytest.raises(ProtocolError, match="not asked for"):
        play.party.unmask(play.by(others, NAMES))
    with pytest.raises(QuorumError, match=r"24 parties signed .* 25 are needed"):
        play.party.unmask(play.by(play.signers[:24], NAMES))
    with pytest.raises(ProtocolError, match="not asked for"):
        play.party.unmask(play.by([*play.signers[:24], others[0]], NAMES))
    assert play.party.unmask(play.by(play.signers[:25], NAMES)).seed_shares.keys() == {
        ME, *play.boxes,
    }  # fmt: skip


def test_two_lists_of_survivors(play: Signing) -> None:
    """As many signers as it can be for each list, with all colluders on both: one is too few."""
    far = next(name for name in NAMES if name not in play.signers and name not in {ME, *play.boxes})
    without = tuple(name for name in NAMES if name != far)
    play.party.sign_survivors(without)
    # q = 3 colluders sign both lists, each of the 42 honest signers one: 24 and 24.
    assert 2 * 25 - 44 - 3 == 3
    colluding, honest = play.signers[:3], play.signers[3:]
    one = play.by([*colluding, *honest[:21]], NAMES)
    other = play.by([*colluding, *honest[21:]], without)
    assert len(one) == len(other) == 24
    for signatures in (one, other, other | {honest[0]: one[honest[0]]}):
        with pytest.raises(PateError, match=r"24 parties signed|saw another list"):
            play.party.unmask(signatures)


def test_keys_of_a_stranger_with_the_same_key_as_a_neighbour(announced: dict[str, Keys]) -> None:
    keys, _ = told(announced)
    peer, other = sorted(keys)[1:3]
    copied = replace(announced[other], mask_key=announced[peer].mask_key)
    changed = announced | {other: sign_keys(CONTEXT, other, identity_of(other), copied)}
    every = sorted(changed)
    with pytest.raises(ProtocolError, match="announced the same key"):
        fresh().shares(changed, KeyTree(changed).outline(every))
