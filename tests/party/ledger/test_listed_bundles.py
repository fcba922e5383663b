"""A party's list of its bundles: what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pate.errors import LedgerError, PateError, RefusedError
from pate.masking.ahead.store import MADE, USED, Listing

ROSTER, OTHER = "aa" * 32, "bb" * 32
FIRST, SECOND, THIRD = "01" * 32, "02" * 32, "03" * 32


@pytest.fixture
def listing() -> Listing:
    made = Listing()
    made.follow(MADE, {"roster": ROSTER, "first": 4, "made": [FIRST, SECOND]}, "then")
    return made


def test_a_number_is_one_bundle_and_a_bundle_one_round(listing: Listing) -> None:
    assert not listing.new(ROSTER, 4, [FIRST, SECOND])
    # Who asks for overlapping numbers has only the new ones listed.
    assert listing.new(ROSTER, 5, [SECOND, THIRD]) == range(1, 2)
    assert listing.new(ROSTER, 3, [THIRD, FIRST, SECOND]) == range(1)
    assert listing.new(ROSTER, 3, [THIRD, FIRST, SECOND, OTHER]) == range(4)
    assert listing.new(OTHER, 4, [THIRD]) == range(1)
    assert not listing.has_used(FIRST, ROSTER)
    listing.follow(USED, {"bundle": FIRST, "round": ROSTER}, "later")
    listing.follow(USED, {"bundle": FIRST, "round": ROSTER}, "again")
    assert listing.has_used(FIRST, ROSTER)
    assert [(each.number, each.round, each.at) for each in listing.bundles()] == [
        (4, ROSTER, "then"), (5, "", "then")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "error", "said"),
    [
        (MADE, {"roster": ROSTER, "first": 5, "made": [THIRD]}, RefusedError, "another bundle 5"),
        (MADE, {"roster": ROSTER, "first": 3, "made": [THIRD, SECOND]}, RefusedError, "bundle 4"),
        (USED, {"bundle": THIRD, "round": ROSTER}, RefusedError, "not in our ledger"),
        (USED, {"bundle": FIRST, "round": OTHER}, RefusedError, "masked in another round"),
        (USED, {"bundle": FIRST, "round": "x"}, LedgerError, "not 32 bytes"),
        (USED, {"bundle": FIRST, "round": ROSTER, "more": 1}, LedgerError, "unknown fields: more"),
        (MADE, {"roster": ROSTER, "first": 0, "made": []}, LedgerError, "without numbers"),
        (MADE, {"roster": ROSTER, "first": True, "made": [THIRD]}, LedgerError, "without numbers"),
        (MADE, {"roster": ROSTER, "first": -1, "made": [THIRD]}, LedgerError, "number -1"),
        (MADE, {"roster": ROSTER, "first": 2**32, "made": [THIRD]}, LedgerError, "number"),
        (MADE, {"roster": 7, "first": 0, "made": [THIRD]}, LedgerError, "not 32 bytes"),
    ],
)
def test_what_is_not_listed(
    listing: Listing, kind: str, fields: dict[str, Any], error: type[PateError], said: str
) -> None:
    listing.follow(USED, {"bundle": FIRST, "round": ROSTER}, "later")
    before = listing.bundles()
    with pytest.raises(error, match=said):
        listing.follow(kind, dict(fields), "now")
    assert listing.bundles() == before
    assert listing.new(ROSTER, 3, [THIRD])
