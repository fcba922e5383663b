"""A site's bound is in its ledger before anything leaves under it, and so is every change of it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.ledger.accountant import Bound, LedgerView, Totals, together
from party.ledger.ledger import PartyLedger
from party.ledger.sent_votes import Answer
from party.policy.operator import bind
from party.policy.policy import POLICY_FILE, Policy
from party.voting.site import Site
from pate.accounting.filters import Delta
from pate.errors import LedgerError, PateError, ProtocolError, RefusedError
from pate.mechanisms import GNMax, Neighbour
from tests.party.cli.test_cli_ledger import typed
from tests.support.party.offers import answer, batch_of, gated, joining, queries, settled

FREE = Policy.default(loopback=True)
FOUR = replace(FREE, largest_epsilon=4.0)


def kinds(ledger: PartyLedger) -> list[str]:
    with ledger._file.reading() as db:
        return [kind for (kind,) in db.execute("SELECT kind FROM entries ORDER BY seq")]


def test_it_is_recorded_before_anything_else_and_once(ledger: PartyLedger, path: Path) -> None:
    site = Site(FOUR, ledger)
    site.join(joining())
    hashes = queries(0, 2)
    source, tags = bytes(32), (bytes(16), bytes(16))
    answer = Answer(batch_of(hashes), hashes, source)
    site.admit(settled(), answer)
    site.answer(settled(), replace(answer, tags=tags))
    assert kinds(ledger) == ["bound", "offer", "offer", "answer"]
    again = PartyLedger(path)
    assert again.bounds() == (FOUR.bound,) == (Bound(4.0, Delta(1e-5)),)
    Site(FOUR, again).join(joining())
    assert again.head == ledger.head == again.verify()


def test_what_is_refused_records_nothing(ledger: PartyLedger) -> None:
    with pytest.raises(RefusedError):
        Site(replace(FREE, largest_epsilon=1.0), ledger).join(joining(epsilon=2.0))
    assert kinds(ledger) == []


def test_a_home_without_a_bound_has_no_entry_until_it_gets_one(ledger: PartyLedger) -> None:
    Site(FREE, ledger).join(joining())
    assert ledger.bounds() == ()
    assert bind(ledger, FREE) == ()
    assert len(bind(ledger, FOUR)) == 1
    assert bind(ledger, FOUR) == ()
    assert len(bind(ledger, FREE)) == 2
    assert [each.epsilon for each in ledger.bounds()] == [4.0, None]


def test_an_older_ledger_goes_on_and_is_counted_anew_aloud(ledger: PartyLedger) -> None:
    """Its entries have no bound: it is fixed at the next start, and what left before is in it."""
    answer(ledger, settled(), queries(0, 50))
    before = ledger.cumulative_epsilon(Delta(1e-5))
    first, counted = bind(ledger, FOUR)
    assert first == (
        "new bound of this party's accountant, recorded in its ledger: epsilon 4 at delta 1e-05, of "
        "which 1e-06 is for campaigns and releases that may fail outright"
    )
    assert counted.endswith(f"by the rules of this version: {before.in_words}")
    tight = replace(FREE, largest_epsilon=0.5)
    *_, stopped = bind(ledger, tight)
    assert "that exceeds 0.5 (" in stopped
    assert "nothing more will leave" in stopped
    more = queries(50, 1)
    with pytest.raises(RefusedError, match=r"largest_epsilon is 0\.5"):
        Site(tight, ledger).admit(settled(queries=1), Answer(batch_of(more), more, bytes(32)))


def test_a_change_says_what_all_bounds_promise(ledger: PartyLedger) -> None:
    bind(ledger, FOUR)
    lines = bind(ledger, replace(FOUR, largest_epsilon=6.0))
    assert "together: epsilon 6 at delta 1e-05" in lines[1]  # only raised: no more delta
    lines = bind(ledger, replace(FOUR, delta=1e-6))
    assert "together: epsilon 6 at delta 1.1e-05" in lines[1]
    lines = bind(ledger, replace(FOUR, delta=1e-6, failing_share=Fraction(1, 2)))
    assert "together: epsilon 6 at delta 1.2e-05" in lines[1]
    assert "earlier bound: epsilon 4 at delta 1e-06" in lines[1]
    bind(ledger, FREE)
    assert together(ledger.bounds()) == "nothing, as there was no bound at one time"


def test_the_ledger_shows_them(ledger: PartyLedger, path: Path) -> None:
    answer(ledger, settled(), queries(0, 1))
    bind(ledger, FOUR)
    shown = typed("ledger", "--home", str(path.parent)).stdout
    assert "our own accountant keeps: epsilon 4 at delta 1e-05" in shown
    assert "bounds so far" not in shown
    bind(ledger, replace(FOUR, largest_epsilon=6.0))
    shown = typed("ledger", "--home", str(path.parent)).stdout
    assert "it kept 2 bounds so far; together they promise epsilon 6 at delta 1e-05" in shown
    made = json.loads(typed("ledger", "--home", str(path.parent), "--json").stdout)
    assert [each["epsilon"] for each in made["bounds"]] == ["4.0", "6.0"]


def test_neither_path_of_a_coordinator_who_looked_first_is_dearer(tmp_path: Path) -> None:
    """A matrix of neighbour votes, then by what it showed another, or a gated campaign.

    Both fitted a bound of 1 at 1e-5, and who chose between them got 1.8 times that delta.
    """
    policy = replace(FREE, largest_epsilon=1.0)

    def matrix(campaign: str) -> Totals:
        one = Neighbour(1000, Fraction(479, 64), 1)
        offer = settled(
            campaign=campaign, aggregator="neighbour", mechanisms=(one,), unit="patient",
            cap=Fraction(1), epsilon=3.0, delta=1e-5,
        )  # fmt: skip
        return Totals(offer, 100, 100)

    gate = gated(
        campaign="03" * 16, unit="patient", epsilon=0.18, delta=0.95e-5,
        mechanisms=(GNMax(Fraction(40), 1),),
    )  # fmt: skip
    for last in (matrix("02" * 16), Totals(gate, 100, 100)):
        view = LedgerView((matrix("01" * 16), last), (last.offer.campaign, 2))
        with pytest.raises(RefusedError, match="largest_epsilon is 1"):
            policy._check_epsilon(last.offer, view)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 4.0}, {"epsilon": "0"}, {"epsilon": "nan"}, {"epsilon": "4"}, {"delta": "1"},
        {"delta": "0.00001"}, {"failing": "2/20"}, {"failing": "3"}, {"failing": 0.1},
        {"rules": 0}, {"rules": "1"}, {"rules": True}, {"more": 1},
    ],
)  # fmt: skip
def test_what_no_ledger_has(wrong: dict[str, Any]) -> None:
    body = FOUR.bound.body()
    assert Bound.of_body(body) == FOUR.bound
    with pytest.raises(LedgerError, match="not a bound"):
        Bound.of_body(body | wrong)
    with pytest.raises(LedgerError, match="not a bound"):
        Bound.of_body({key: body[key] for key in list(body)[1:]})
    with pytest.raises(ProtocolError):
        Bound(-1.0, Delta(1e-5))


def test_an_entry_that_changes_nothing_is_none(ledger: PartyLedger) -> None:
    bind(ledger, FOUR)
    with pytest.raises(PateError, match="already in force"):
        ledger._log.append(FOUR.bound)


def test_a_policy_without_a_file_on_disk_is_bound_the_same(path: Path) -> None:
    """A whole number in the file is the same bound as the float."""
    path.parent.mkdir()
    (path.parent / POLICY_FILE).write_text("largest_epsilon = 4\nfailing_share = 0.1\n")
    from party.policy.file import policy_of

    assert policy_of(path.parent, loopback=False).bound == FOUR.bound
    assert replace(FREE, largest_epsilon=4).bound == FOUR.bound
