"""A party's list of its bundles: what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from party.ledger.bundles import BundlesMade, BundleUsed, Listing
from party.ledger.entries import CHAIN, RULES
from party.ledger.state import LedgerState
from pate.errors import LedgerError, PateError, RefusedError

ROSTER, OTHER = b"\xaa" * 32, b"\xbb" * 32
FIRST, SECOND, THIRD = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
MADE, USED = BundlesMade.kind, BundleUsed.kind


def follow(state: LedgerState, kind: str, fields: dict[str, Any], at: str = "then") -> None:
    body = {name: each.hex() if isinstance(each, bytes) else each for name, each in fields.items()}
    if isinstance(fields.get("made"), list):
        body["made"] = [each.hex() for each in fields["made"]]
    entry = CHAIN.after(CHAIN.start, kind, body, at)
    RULES.read(entry, CHAIN.start).follow(state, entry)


@pytest.fixture
def state() -> LedgerState:
    made = LedgerState()
    follow(made, MADE, {"roster": ROSTER, "first": 4, "made": [FIRST, SECOND]})
    return made


@pytest.fixture
def listing(state: LedgerState) -> Listing:
    return state.bundles


def test_a_number_is_one_bundle_and_a_bundle_one_round(
    state: LedgerState, listing: Listing
) -> None:
    assert not listing.new(ROSTER, 4, [FIRST, SECOND])
    # Who asks for overlapping numbers has only the new ones listed.
    assert listing.new(ROSTER, 5, [SECOND, THIRD]) == range(1, 2)
    assert listing.new(ROSTER, 3, [THIRD, FIRST, SECOND]) == range(1)
    assert listing.new(ROSTER, 3, [THIRD, FIRST, SECOND, OTHER]) == range(4)
    assert listing.new(OTHER, 4, [THIRD]) == range(1)
    assert not listing.has_used(FIRST, ROSTER)
    follow(state, USED, {"bundle": FIRST, "round": ROSTER}, "later")
    follow(state, USED, {"bundle": FIRST, "round": ROSTER}, "again")
    assert listing.has_used(FIRST, ROSTER)
    assert [(each.number, each.round, each.at) for each in listing.bundles()] == [
        (4, ROSTER.hex(), "then"), (5, "", "then")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "error", "said"),
    [
        (MADE, {"roster": ROSTER, "first": 5, "made": [THIRD]}, RefusedError, "another bundle 5"),
        (MADE, {"roster": ROSTER, "first": 3, "made": [THIRD, SECOND]}, RefusedError, "bundle 4"),
        (USED, {"bundle": THIRD, "round": ROSTER}, RefusedError, "not in our ledger"),
        (USED, {"bundle": FIRST, "round": OTHER}, RefusedError, "masked in another round"),
        (USED, {"bundle": FIRST, "round": "x"}, LedgerError, "round must be lower-case hex"),
        (USED, {"bundle": FIRST, "round": OTHER[1:]}, LedgerError, "not 32 bytes"),
        (
            USED,
            {"bundle": FIRST, "round": ROSTER, "more": 1},
            LedgerError,
            "unknown fields: 'more'",
        ),
        (MADE, {"roster": ROSTER, "first": 0, "made": []}, LedgerError, "0 bundles"),
        (MADE, {"roster": ROSTER, "first": True, "made": [THIRD]}, LedgerError, "whole number"),
        (MADE, {"roster": ROSTER, "first": -1, "made": [THIRD]}, LedgerError, "number -1"),
        (MADE, {"roster": ROSTER, "first": 2**32, "made": [THIRD]}, LedgerError, "number"),
        (MADE, {"roster": 7, "first": 0, "made": [THIRD]}, LedgerError, "roster must be"),
    ],
)
def test_what_is_not_listed(
    state: LedgerState, kind: str, fields: dict[str, Any], error: type[PateError], said: str
) -> None:
    follow(state, USED, {"bundle": FIRST, "round": ROSTER}, "later")
    before = state.bundles.bundles()
    with pytest.raises(error, match=said):
        follow(state, kind, fields)
    assert state.bundles.bundles() == before
    assert state.bundles.new(ROSTER, 3, [THIRD])
