"""Units that have voted in a series, in a party's ledger: read back, damaged, lost and restored."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.backup import back_up, forget, restore
from party.ledger.entries import Answered
from party.ledger.file import SCHEMA
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.ledger.sent_votes import Answer
from party.ledger.series import UNIT_BYTES, UnitVotes
from pate.accounting.composition import Gdp, total_cost
from pate.accounting.filters import GAUSSIAN_PART, Delta
from pate.campaign.offer import Offer
from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.mechanisms import DistributedNeighbour
from tests.support.party.offers import KEY, altered, batch_of, queries, settled, tags

KNOWN, OTHERWISE = "0a" * 32, "0b" * 32
DELTA = Delta(1e-5)
GEOMETRIC = DistributedNeighbour(3, None, 4, 1, scale=Fraction(4))


def offer(number: int, *, votes: int = 1, sigma: int = 20, **changes: Any) -> Offer:
    """A campaign of a series of noisy sums."""
    mechanism = DistributedNeighbour(3, Fraction(sigma), 4, votes)
    terms = {
        "campaign": bytes([number]).hex() * 16,
        "aggregator": "neighbour",
        "noise": "distributed",
        "mechanisms": (mechanism,),
    }
    return settled(**terms | {"series": "monthly"} | changes)


def units(*numbers: int) -> list[bytes]:
    """Hashes of these units, ascending."""
    return sorted(hashlib.sha256(b"unit %d" % each).digest()[:UNIT_BYTES] for each in numbers)


def give(
    ledger: PartyLedger,
    number: int,
    voting: Sequence[bytes] | None,
    *,
    known_by: str = KNOWN,
    source: bytes | None = None,
    at: int = 0,
    **changes: Any,
) -> None:
    hashes = queries(at, 3)
    about = replace(offer(number, **changes), queries=len(hashes))
    own = source or bytes([number]) * 32
    votes = tags([hashlib.sha256(each + own).digest() for each in hashes])
    answer = Answer(batch_of(hashes), hashes, own, "", votes, voting, known_by)
    ledger.answer(about, answer)


def epsilon(ledger: PartyLedger) -> float:
    return ledger.cumulative_epsilon(DELTA).epsilon


def worth(*sigmas: int) -> float:
    cost = sum(
        total_cost(Gdp(), DistributedNeighbour(3, Fraction(each), 4, 1).worst) for each in sigmas
    )
    return Gdp().epsilon(Fraction(cost), DELTA.of(GAUSSIAN_PART))


# --- who has voted -------------------------------------------------------------------------------


def test_a_unit_that_has_voted_is_refused_in_another_campaign(ledger: PartyLedger) -> None:
    give(ledger, 1, units(1, 2, 3))
    head = ledger.head
    assert ledger.voted(offer(2), units(2, 3, 4)) == frozenset(units(2, 3))
    assert ledger.voted(offer(1), units(2, 3, 4)) == frozenset()  # its own are none of another
    with pytest.raises(RefusedError, match="each votes once"):
        give(ledger, 2, units(3, 4))
    assert ledger.head.split(":")[0] == "3"  # that it takes part, and no answer
    give(ledger, 2, units(4, 5))
    give(ledger, 3, [])  # nobody is new
    again = PartyLedger(ledger.path)
    assert again.head == ledger.head != head
    assert [each.voted for each in again.campaigns()] == [3, 2, 0]
    assert again.voted(offer(4), units(*range(9))) == frozenset(units(1, 2, 3, 4, 5))


def test_the_same_answer_again_has_the_same_units(ledger: PartyLedger) -> None:
    give(ledger, 1, units(1, 2))
    give(ledger, 1, units(1, 2))
    for other in (units(1), units(1, 2, 3), []):
        with pytest.raises(RefusedError, match="other units of ours would vote"):
            give(ledger, 1, other)
    with pytest.raises(RefusedError, match="other units of ours would vote"):
        give(ledger, 1, units(1, 2), known_by=OTHERWISE)
    assert PartyLedger(ledger.path).head == ledger.head


def test_units_are_stated_in_a_series_and_only_there(ledger: PartyLedger) -> None:
    with pytest.raises(ProtocolError, match="stated in a series"):
        give(ledger, 1, None)
    with pytest.raises(ProtocolError, match="stated in a series"):
        give(ledger, 2, units(1), series=None)
    for wrong in ([units(1)[0]] * 2, units(1, 2)[::-1], [b"short"]):
        with pytest.raises(ProtocolError, match="hash"):
            give(ledger, 1, wrong)
    assert ledger.voted(offer(3), units(1, 2)) == frozenset()


def test_all_campaigns_of_a_series_know_and_charge_units_alike(ledger: PartyLedger) -> None:
    give(ledger, 1, units(1))
    with pytest.raises(RefusedError, match="known in another way"):
        give(ledger, 2, units(2), known_by=OTHERWISE)
    others: list[dict[str, Any]] = [{"votes": 2}, {"unit": "patient"}]
    for number, changes in enumerate(others, start=3):
        with pytest.raises(RefusedError, match="a series of its own"):
            give(ledger, number, units(2), **changes)
    others = [
        {"composition": "zcdp"},
        {"composition": "pure", "delta": 0.0, "mechanisms": (GEOMETRIC,), "cap": Fraction(1)},
    ]
    for number, changes in enumerate(others, start=7):
        with pytest.raises(RefusedError, match=r"in 'gdp'.*needs --noise-law gaussian"):
            give(ledger, number, units(2), **changes)
    # A series of another name, or of another coordinator, is another series.
    give(ledger, 5, units(12), known_by=OTHERWISE, series="weekly", at=10)
    give(ledger, 6, units(13), known_by=OTHERWISE, key=KEY[::-1], at=20)


def test_a_campaign_does_not_change_its_series(ledger: PartyLedger) -> None:
    for first, then in (("monthly", None), (None, "monthly"), ("monthly", "weekly")):
        campaign = hashlib.sha256(f"{first}{then}".encode()).hexdigest()[:32]
        about = offer(1, series=first, campaign=campaign)
        ledger.join(about)
        with pytest.raises(RefusedError, match="changed its series"):
            ledger.join(altered(about, series=then))


# --- what it costs -------------------------------------------------------------------------------


def test_a_series_costs_as_much_as_its_most_expensive_campaign(ledger: PartyLedger) -> None:
    figures = []
    for number, sigma in enumerate((20, 30, 15, 20), start=1):
        give(ledger, number, units(number), sigma=sigma)
        figures.append(epsilon(ledger))
    assert figures == [worth(20), worth(20), worth(15), worth(15)]
    give(ledger, 5, None, series=None, at=30)
    assert epsilon(ledger) == worth(15, 20)
    give(ledger, 6, units(1001), series="weekly", at=40)
    give(ledger, 7, units(1002), key=KEY[::-1], at=50)
    assert epsilon(ledger) == worth(15, 20, 20, 20)
    assert epsilon(PartyLedger(ledger.path)) == epsilon(ledger)


def test_the_bound_of_the_policy_counts_a_series_once(ledger: PartyLedger) -> None:
    from party.ledger.accountant import cumulative_epsilon

    give(ledger, 1, units(1))
    for number, series, more in ((2, "monthly", False), (3, "weekly", True)):
        view = ledger.view(replace(offer(number, series=series), queries=3))
        assert (cumulative_epsilon(view.campaigns, DELTA).epsilon > worth(20)) == more


# --- a ledger that is damaged, or older ----------------------------------------------------------

_TRIGGERS = ("units_no_update", "units_no_delete")


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM units WHERE unit = (SELECT min(unit) FROM units)",
        "DELETE FROM units",
        "UPDATE units SET unit = x'00112233445566778899aabbccddeeff' WHERE entry = 4",
        "UPDATE units SET entry = 4 WHERE unit = (SELECT min(unit) FROM units WHERE entry = 2)",
        "INSERT INTO units VALUES (2, x'00112233445566778899aabbccddeeff')",
        "INSERT INTO units VALUES (1, x'00112233445566778899aabbccddeeff')",
        "DROP TABLE units",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_table_of_units_that_is_not_as_it_was_is_refused(
    ledger: PartyLedger, damage: str, read_only: bool
) -> None:
    give(ledger, 1, units(1, 2))
    give(ledger, 2, units(3))
    with closing(sqlite3.connect(ledger.path)) as db, db:
        for name in _TRIGGERS:
            db.execute(f"DROP TRIGGER {name}")
        db.execute(damage)
        if not damage.startswith("DROP"):
            for sql in SCHEMA:
                if any(name in sql for name in _TRIGGERS):
                    db.execute(sql)
    with pytest.raises(LedgerError, match="units"):
        PartyLedger(ledger.path, read_only=read_only)
    # Nor does a party that is running give another vote.
    with pytest.raises(LedgerError):
        give(ledger, 3, units(9))


def test_the_table_itself_has_no_unit_twice(ledger: PartyLedger) -> None:
    give(ledger, 1, units(1))
    with closing(sqlite3.connect(ledger.path)) as db, pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO units SELECT 1, unit FROM units")


def test_an_entry_that_says_other_units_is_found(ledger: PartyLedger) -> None:
    """The number and the digest in the chain are those of the table."""
    give(ledger, 1, units(1, 2))
    said = UnitVotes.of(KNOWN, units(1, 2))
    with closing(sqlite3.connect(ledger.path)) as db:
        body = json.loads(
            db.execute("SELECT body FROM entries WHERE kind = 'answer'").fetchone()[0]
        )
    units_text = {"known_by": KNOWN, "number": 2, "digest": said.digest}
    assert body["series"] == units_text
    for wrong in (
        {}, {"known_by": KNOWN}, units_text | {"number": -1}, units_text | {"number": True},
        units_text | {"digest": "AB" * 32}, units_text | {"more": 1},
    ):  # fmt: skip
        with pytest.raises(LedgerError, match="an entry 'answer': series"):
            Answered.of_body(body | {"series": wrong})


def test_a_backup_has_the_units_and_an_older_one_is_refused(
    ledger: PartyLedger, tmp_path: Path
) -> None:
    home = ledger.path.parent
    give(ledger, 1, units(1))
    back_up(home, tmp_path / "old")
    give(ledger, 2, units(2))
    back_up(home, tmp_path / "new")
    head = ledger.head
    for each in home.glob(f"{LEDGER_FILE}*"):
        each.unlink()
    with pytest.raises(LedgerError):
        restore(tmp_path / "old", home, head=head)
    restore(tmp_path / "new", home, head=head)
    assert PartyLedger(ledger.path).voted(offer(3), units(1, 2, 3)) == frozenset(units(1, 2))


def test_after_a_loss_the_series_is_over(ledger: PartyLedger, tmp_path: Path) -> None:
    """Who voted in what was lost is not known, whatever the restored ledger has."""
    home = ledger.path.parent
    give(ledger, 1, units(1))
    back_up(home, tmp_path / "old")
    give(ledger, 2, units(2))
    for each in home.glob(f"{LEDGER_FILE}*"):
        each.unlink()
    restore(tmp_path / "old", home, head=None, entries_lost=True)
    for _ in range(2):  # also when it is started again
        with pytest.raises(RefusedError, match="entries of our ledger were lost"):
            give(PartyLedger(ledger.path), 3, units(3))
    again = PartyLedger(ledger.path)
    give(again, 4, units(1004), series="monthly 2", at=10)
    give(again, 5, units(1005), series="monthly 2", at=10)
    assert not (home / "ledger.lost").exists()
    # An older copy that is used knowingly is a loss, too.
    (home / "ledger.head").unlink()
    forget(home)
    with pytest.raises(RefusedError, match="entries of our ledger were lost"):
        give(PartyLedger(ledger.path), 6, units(1006), series="monthly 2", at=10)
