"""Comparisons of a party's ledger before votes leave, and its list of bundles."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.ledger.bundles import BundlesMade, BundleUsed, Listing
from party.ledger.entries import CHAIN, RULES
from party.ledger.ledger import PartyLedger
from party.ledger.sent_votes import (
    TAG_BYTES,
    Answer,
    Earlier,
    How,
    check_unmasking,
    matrix_of,
    tags_of,
    view_of,
)
from party.ledger.state import LedgerState
from pate.campaign.offer import Offer
from pate.codes import GRID
from pate.errors import LedgerError, PateError, ProtocolError, RefusedError
from pate.mechanisms import Neighbour
from tests.support.party.offers import altered, batch_of, joining, noisy, queries, settled, tags

SOURCE, OTHER = bytes(32), b"o" * 32
FIRST, LATE = settled(), settled(campaign="d2" * 16)


def give(
    ledger: PartyLedger,
    offer: Offer,
    hashes: list[bytes],
    *,
    source: bytes = SOURCE,
    votes: list[bytes] | None = None,
    view: str = "",
    allow_other: bool = False,
) -> bytes:
    batch = batch_of(hashes)
    asked = replace(offer, queries=len(hashes))
    given = tags(hashes) if votes is None else votes
    ledger.join(asked)
    answer = Answer(batch, hashes, source, view, given)
    try:
        ledger.check_answer(asked, answer, allow_other=allow_other)
    except RefusedError as error:
        # What is checked beforehand is what is checked as it is recorded.
        with pytest.raises(RefusedError, match=re.escape(str(error))):
            ledger.answer(asked, answer, allow_other=allow_other)
        raise
    try:
        ledger.answer(asked, answer, allow_other=allow_other)
    except RefusedError as error:
        pytest.fail(f"only refused as it was recorded: {error}")
    return batch


def others(hashes: list[bytes]) -> list[bytes]:
    """Tags of other votes on the last of these queries."""
    return [*tags(hashes)[:-1], bytes(16)]


def test_another_source_on_a_query_that_was_answered(ledger: PartyLedger) -> None:
    give(ledger, FIRST, queries(0, 4))
    with pytest.raises(RefusedError, match="other data or settings of ours"):
        give(ledger, LATE, queries(3, 4), source=OTHER)
    head = ledger.head
    assert PartyLedger(ledger.path).head == head
    give(ledger, LATE, queries(4, 4), source=OTHER)


@pytest.mark.parametrize("earlier", [FIRST, noisy()])
@pytest.mark.parametrize("late", [LATE, noisy(campaign="d2" * 16)])
def test_whatever_the_noise(ledger: PartyLedger, earlier: Offer, late: Offer) -> None:
    give(ledger, earlier, queries(0, 4))
    with pytest.raises(RefusedError, match="other data or settings of ours"):
        give(ledger, late, queries(3, 4), source=OTHER)
    with pytest.raises(RefusedError, match="differ from those that we sent to campaign"):
        give(ledger, late, queries(0, 4), votes=others(queries(0, 4)))
    give(ledger, late, queries(0, 4), source=OTHER, votes=others(queries(0, 4)), allow_other=True)
    assert PartyLedger(ledger.path).head == ledger.head


def test_plain_votes_hide_nothing(ledger: PartyLedger) -> None:
    give(ledger, settled(aggregation="plain"), queries(0, 4))
    give(ledger, LATE, queries(0, 4), source=OTHER, votes=others(queries(0, 4)))


def test_other_votes_within_a_campaign_are_never_allowed(ledger: PartyLedger) -> None:
    give(ledger, FIRST, queries(0, 4), allow_other=True)
    for hashes in (queries(0, 4), queries(2, 4)):
        clash = [bytes(16)] * 4
        with pytest.raises(RefusedError, match="differ from those that we sent before"):
            give(ledger, FIRST, hashes, votes=clash, allow_other=True)
    give(ledger, FIRST, queries(0, 4))
    give(ledger, FIRST, queries(2, 4))
    with pytest.raises(ProtocolError, match="1 tags of votes on 4 queries"):
        give(ledger, FIRST, queries(6, 4), votes=[bytes(16)])
    with pytest.raises(ProtocolError, match="16 bytes"):
        give(ledger, FIRST, queries(6, 4), votes=[b"short"] * 4)


def test_a_later_answer_does_not_count_against_an_earlier_one(ledger: PartyLedger) -> None:
    """When a ledger is read back, what followed is in the file as well."""
    give(ledger, FIRST, queries(0, 4))
    give(ledger, LATE, queries(4, 4), source=OTHER)
    give(ledger, FIRST, queries(4, 4), votes=others(queries(4, 4)), allow_other=True)
    give(ledger, LATE, queries(0, 4), source=OTHER, allow_other=True)
    assert PartyLedger(ledger.path).head == ledger.head
    with pytest.raises(RefusedError, match="other data or settings of ours"):
        give(ledger, settled(campaign="e3" * 16), queries(0, 4), source=OTHER)


def test_other_columns_cannot_be_compared(ledger: PartyLedger) -> None:
    """A query has another hash when the teachers see other columns of it, and not to the others."""
    give(ledger, FIRST, queries(0, 4), view="x:number, y:number")
    with pytest.raises(RefusedError, match="our data had other columns"):
        give(ledger, LATE, queries(9, 4), source=OTHER, view="x:number")
    give(ledger, LATE, queries(9, 4), source=OTHER, view="x:number, y:number")
    shares = noisy(campaign="e3" * 16)
    give(ledger, shares, queries(20, 4), source=b"p" * 32, view="x:number")
    assert PartyLedger(ledger.path).head == ledger.head


@pytest.mark.parametrize("first", ["images 8x8x1", "images 8x8x1 window 0 4095"])
def test_a_window_that_makes_other_pictures_of_ours(ledger: PartyLedger, first: str) -> None:
    """With it a server could remove the only party with deep images from a second sum."""
    give(ledger, FIRST, queries(0, 4), view=view_of(first))
    black = view_of("images 8x8x1 window 65534 65535")
    with pytest.raises(RefusedError, match="our images another window"):
        give(ledger, LATE, queries(9, 4), source=OTHER, view=black)
    give(ledger, noisy(campaign="e3" * 16), queries(20, 4), source=b"p" * 32, view=black)
    give(ledger, settled(campaign="f4" * 16), queries(30, 4), source=OTHER, view=view_of(first))
    # Images of another size, or a table, are other queries to everybody.
    larger = view_of(first.replace("8x8", "9x9"))
    give(ledger, settled(campaign="a5" * 16), queries(40, 4), source=OTHER, view=larger)
    table = view_of("table images window 0 4095:number")
    give(ledger, settled(campaign="b6" * 16), queries(50, 4), source=OTHER, view=table)
    assert PartyLedger(ledger.path).head == ledger.head


def without_tags(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE tags")  # its triggers go with it


def test_tags_that_are_gone_are_missed(ledger: PartyLedger) -> None:
    give(ledger, FIRST, queries(0, 4))
    without_tags(ledger.path)
    for read_only in (False, True):
        with pytest.raises(LedgerError):
            PartyLedger(ledger.path, read_only=read_only)


# --- tags ----------------------------------------------------------------------------------------


def test_a_tag_is_of_the_votes_by_name() -> None:
    hashes, votes = queries(0, 2), np.array([[3, 0], [3, 0]], dtype=np.int64)
    made = tags_of(b"key", hashes, ("x", "y"), votes)
    assert [len(each) for each in made] == [TAG_BYTES] * 2
    assert made[0] != made[1]  # the same votes on another query cannot be told
    assert tags_of(b"key", hashes, ("y", "x"), votes[:, ::-1]) == made
    assert tags_of(b"key", hashes, ("x", "z", "y"), np.array([[3, 0, 0]] * 2)) == made
    for other in (
        tags_of(b"kex", hashes, ("x", "y"), votes),
        tags_of(b"key", hashes, ("x", "y"), np.array([[2, 1]] * 2)),
        tags_of(b"key", hashes, ("y", "x"), votes),
    ):
        assert not set(other) & set(made)


DENSE = Neighbour(3, Fraction(88 * GRID), 1, code="dense-4")
RECORDS = settled(
    campaign="e5" * 16,
    aggregator="neighbour",
    mechanisms=(Neighbour(3, Fraction(40), 1),),
    most_votes=5,
)


def test_sums_of_teachers_and_of_records_may_have_other_parties() -> None:
    earlier = [Earlier(FIRST, "aa", How(b"six", ""))]
    check_unmasking(RECORDS, "bb", How(b"five", ""), earlier, allow_other=False)
    with pytest.raises(RefusedError, match="with other parties"):
        check_unmasking(LATE, "bb", How(b"five", ""), earlier, allow_other=False)


def test_a_matrix_is_all_that_decides_records_votes() -> None:
    assert matrix_of(FIRST, "aa") == matrix_of(FIRST, "bb") == ""
    fewer = settled(
        aggregator="neighbour", mechanisms=(Neighbour(3, Fraction(40), 1),), most_votes=4
    )
    whole = matrix_of(RECORDS, "aa")
    assert matrix_of(altered(RECORDS, classes=("yes", "no"), epsilon=1.0), "aa") == whole
    for other in (
        matrix_of(RECORDS, "bb"),
        matrix_of(altered(RECORDS, public_set="cd" * 32), "aa"),
        matrix_of(fewer, "aa"),
        matrix_of(altered(RECORDS, classes=("no", "maybe")), "aa"),
    ):
        assert other != whole


@pytest.mark.parametrize("series", [None, "monthly"])
def test_another_exact_sum_of_records_gets_no_votes(
    ledger: PartyLedger, series: str | None
) -> None:
    """Several would reveal how votes are spread over the parties, and each record is in each once."""
    numbers = iter(range(1, 99))

    def cast(hashes: list[bytes], source: bytes = SOURCE, **changes: Any) -> None:
        terms: dict[str, Any] = {
            "campaign": f"{next(numbers):032x}", "aggregator": "neighbour", "most_votes": 5,
            "mechanisms": (Neighbour(3, Fraction(40), 1),), "series": series,
        }  # fmt: skip
        asked = settled(**terms | changes | {"queries": len(hashes)})
        ledger.join(asked)
        voting: dict[str, Any] = {} if series is None else {"units": (), "known_by": "0a" * 32}
        answer = Answer(batch_of(hashes), hashes, source, tags=tags(hashes), **voting)
        ledger.check_answer(asked, answer)
        ledger.answer(asked, answer)

    cast(queries(0, 4))
    for hashes, changes in (
        (queries(9, 3), {}),
        (queries(0, 4), {"public_set": "cd" * 32}),
        (queries(0, 4), {"classes": ("no", "maybe")}),
        (queries(0, 4), {"most_votes": 4}),
        (queries(0, 4), {"code": "dense-4", "mechanisms": (DENSE,)}),
    ):
        with pytest.raises(RefusedError, match="for an exact sum, on other"):
            cast(hashes, **changes)
    for hashes in (queries(0, 4), queries(9, 3)):
        with pytest.raises(RefusedError, match="repeat_queries"):
            cast(hashes, OTHER)
    cast(queries(0, 4))  # the same sum again says nothing new


def test_exact_sums_of_labels_share_queries_under_one_number_of_labels(ledger: PartyLedger) -> None:
    """Teachers that cast no more than two labels have the same votes where two count and where three do."""

    def labels(most: int, campaign: str, *, shares: bool = False) -> Offer:
        noise = "distributed" if shares else "central"
        code, names = f"each-4 labels-{most}-of-4", ("a", "b", "c", "d")
        return joining(campaign=campaign, noise=noise, code=code, classes=names)

    give(ledger, labels(2, "c1" * 16), queries(0, 4))
    for votes in (None, others(queries(3, 4))):
        with pytest.raises(RefusedError, match="exact sum, with another number of labels"):
            give(ledger, labels(3, "d2" * 16), queries(3, 4), votes=votes)
    give(ledger, labels(3, "d2" * 16), queries(4, 4))
    # The parties' noise is charged for each release; and the same number is compared by its votes.
    give(ledger, labels(3, "e3" * 16, shares=True), queries(0, 4))
    give(ledger, labels(2, "f4" * 16), queries(0, 4))
    with pytest.raises(RefusedError, match="differ from those"):
        give(ledger, labels(2, "a5" * 16), queries(0, 4), votes=others(queries(0, 4)))
    assert PartyLedger(ledger.path).head == ledger.head


def test_what_is_known_of_a_campaign_is_the_same_for_any_number_of_queries() -> None:
    early, known = joining(classes=None), settled()
    for queries_ in (0, 1, 7):
        asked = known.asking(queries_)
        assert asked == replace(known, queries=queries_)
        assert (asked.text, asked.digest) == (known.text, known.digest)
        assert asked.after(early) == early.asking(queries_).after(known) == asked
    with pytest.raises(RefusedError, match="has changed its epsilon"):
        altered(known, epsilon=1.0).after(known)


ROSTER, OTHER_BUNDLES = b"\xaa" * 32, b"\xbb" * 32
FIRST_BUNDLES, SECOND, THIRD = b"\x01" * 32, b"\x02" * 32, b"\x03" * 32
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
    follow(made, MADE, {"roster": ROSTER, "first": 4, "made": [FIRST_BUNDLES, SECOND]})
    return made


@pytest.fixture
def listing(state: LedgerState) -> Listing:
    return state.bundles


def test_a_number_is_one_bundle_and_a_bundle_one_round(
    state: LedgerState, listing: Listing
) -> None:
    assert not listing.new(ROSTER, 4, [FIRST_BUNDLES, SECOND])
    # Who asks for overlapping numbers has only the new ones listed.
    assert listing.new(ROSTER, 5, [SECOND, THIRD]) == range(1, 2)
    assert listing.new(ROSTER, 3, [THIRD, FIRST_BUNDLES, SECOND]) == range(1)
    assert listing.new(ROSTER, 3, [THIRD, FIRST_BUNDLES, SECOND, OTHER_BUNDLES]) == range(4)
    assert listing.new(OTHER_BUNDLES, 4, [THIRD]) == range(1)
    assert not listing.has_used(FIRST_BUNDLES, ROSTER)
    follow(state, USED, {"bundle": FIRST_BUNDLES, "round": ROSTER}, "later")
    follow(state, USED, {"bundle": FIRST_BUNDLES, "round": ROSTER}, "again")
    assert listing.has_used(FIRST_BUNDLES, ROSTER)
    assert [(each.number, each.round, each.at) for each in listing.bundles()] == [
        (4, ROSTER.hex(), "then"), (5, "", "then")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "error", "said"),
    [
        (MADE, {"roster": ROSTER, "first": 5, "made": [THIRD]}, RefusedError, "another bundle 5"),
        (MADE, {"roster": ROSTER, "first": 3, "made": [THIRD, SECOND]}, RefusedError, "bundle 4"),
        (USED, {"bundle": THIRD, "round": ROSTER}, RefusedError, "not in our ledger"),
        (
            USED,
            {"bundle": FIRST_BUNDLES, "round": OTHER_BUNDLES},
            RefusedError,
            "masked in another round",
        ),
        (
            USED,
            {"bundle": FIRST_BUNDLES, "round": "x"},
            LedgerError,
            "round must be lower-case hex",
        ),
        (USED, {"bundle": FIRST_BUNDLES, "round": OTHER_BUNDLES[1:]}, LedgerError, "not 32 bytes"),
        (
            USED,
            {"bundle": FIRST_BUNDLES, "round": ROSTER, "more": 1},
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
    follow(state, USED, {"bundle": FIRST_BUNDLES, "round": ROSTER}, "later")
    before = state.bundles.bundles()
    with pytest.raises(error, match=said):
        follow(state, kind, fields)
    assert state.bundles.bundles() == before
    assert state.bundles.new(ROSTER, 3, [THIRD])
