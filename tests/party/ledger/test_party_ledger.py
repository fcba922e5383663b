"""The party's own ledger: durable before anything leaves, and no query unmasked twice."""

from __future__ import annotations

import json
import math
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.ledger import ledger as ledger_module
from party.ledger.accountant import Totals, cost_of, cumulative_epsilon
from party.ledger.ledger import (
    LEDGER_FILE,
    MOST_ENDINGS,
    MOST_UNANSWERED,
    UNANSWERED_FOR,
    PartyLedger,
)
from party.ledger.sent_votes import Answer
from pate.accounting.composition import Gdp, Zcdp, total_cost
from pate.accounting.conversion import epsilon_from_rdp, epsilon_from_rho
from pate.accounting.filters import Delta
from pate.campaign.offer import Offer
from pate.errors import (
    DiskError,
    LedgerError,
    PateError,
    ProtocolError,
    RefusedError,
    StateError,
    UsageError,
)
from pate.exact import read
from pate.mechanisms import ConfidentGNMax, DistributedGNMax, GNMax, InteractiveGNMax, LNMax
from pate.storage.hash_chain import Json
from tests.support.party.offers import (
    KEY,
    SIX,
    altered,
    answer,
    answer_and_open,
    batch_of,
    gated,
    joining,
    noisy,
    queries,
    settled,
    tags,
)
from tests.support.tampering import tamper

FIVE = SIX[:5]
OTHER = "d2" * 16


# --- what is recorded ----------------------------------------------------------------------------


def test_it_remembers_over_a_restart(ledger: PartyLedger, path: Path) -> None:
    ledger.join(joining())
    ledger.join(joining())  # told twice, recorded once
    first = answer_and_open(ledger, settled(), queries(0, 3))
    answer(ledger, settled(), queries(0, 3))
    answer(ledger, settled(), queries(3, 2))
    ledger.end("c1" * 16, queries_asked=5, labels_released=4, epsilon=1.5, delta=1e-5)
    ledger.end("c1" * 16, queries_asked=5, labels_released=4, epsilon=1.5, delta=1e-5)
    again = PartyLedger(path)
    assert again.head == ledger.head == again.verify()
    assert again.campaigns() == ledger.campaigns()
    (record,) = again.campaigns()
    assert record.offer == replace(settled(), queries=0)
    assert record.joined_at == "2030-01-02T03:04:05+00:00"
    assert (record.queries, record.asked) == (5, 5)
    one, two = record.batches.values()
    assert (one.batch, one.queries, len(one.answered_at)) == (first.hex(), 3, 2)
    assert (one.survivors, two.survivors, len(two.answered_at)) == (SIX, None, 1)
    assert record.ending is not None
    assert (record.ending.labels_released, record.ending.epsilon) == (4, 1.5)
    assert again.head.split(":")[0] == "7"  # offer twice (terms), three answers, opening, ending


def test_nobody_else_may_read_it(ledger: PartyLedger, path: Path) -> None:
    ledger.join(joining())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_entry_is_on_the_disk_when_the_call_returns(path: Path) -> None:
    """A process that dies right after it recorded an answer has recorded it."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from party.ledger.ledger import PartyLedger\n"
        "from tests.support.party.offers import gated, answer, queries, settled\n"
        "answer(PartyLedger(Path(sys.argv[1])), settled(), queries(0, 3))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert PartyLedger(path).campaigns()[0].queries == 3


def test_queries_are_counted_once_and_copies_twice_in_what_may_be_asked(
    ledger: PartyLedger,
) -> None:
    answer(ledger, settled(), queries(0, 4))
    answer(ledger, settled(), queries(0, 4))
    answer(ledger, settled(), queries(2, 4))
    answer(ledger, settled(campaign=OTHER), queries(0, 1) * 2)
    first, second = ledger.totals()
    assert (first.queries, first.asked) == (6, 8)
    assert (second.queries, second.asked) == (1, 2)


def test_a_view_has_the_request_counted_in(ledger: PartyLedger) -> None:
    hashes = queries(0, 2)
    fresh = ledger.view(settled(), batch_of(hashes), hashes)
    assert (fresh.joined, fresh.of("c1" * 16).queries, fresh.of("c1" * 16).asked) == (False, 2, 2)
    assert ledger.campaigns() == ()  # only looked
    answer(ledger, settled(), hashes)
    repeated = ledger.view(settled(), batch_of(hashes), hashes)
    assert (repeated.joined, repeated.of("c1" * 16).queries) == (True, 2)
    overlapping = queries(1, 2)
    more = ledger.view(settled(), batch_of(overlapping), overlapping)
    assert (more.of("c1" * 16).queries, more.of("c1" * 16).asked) == (3, 4)
    unknown = ledger.view(settled())  # nothing is said of which queries: all are new
    assert unknown.of("c1" * 16).queries == 4
    with pytest.raises(UsageError, match="3 hashes for 2 queries"):
        ledger.view(settled(), batch_of(hashes), queries(0, 3))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": 3.0}, "epsilon"),
        ({"key": bytes(32)}, "key"),
        ({"roster": FIVE}, "roster"),
        ({"cap": Fraction(1, 5)}, "cap"),
        ({"mechanisms": (GNMax(Fraction(39), 1),)}, "mechanisms"),
        (
            {"noise": "distributed", "mechanisms": (DistributedGNMax(Fraction(20), 4, 1),)},
            "mechanisms",
        ),
    ],
)
def test_terms_never_change(ledger: PartyLedger, change: dict[str, Any], named: str) -> None:
    ledger.join(settled())
    head = ledger.head
    for call in (
        lambda: ledger.join(settled(**change)),
        lambda: ledger.view(settled(**change)),
        lambda: answer(ledger, settled(**change), queries(0, 2)),
    ):
        with pytest.raises(RefusedError, match=f"changed its {named}"):
            call()
    ledger.join(joining())  # to know less is no contradiction
    assert ledger.head == head


def test_campaigns_that_never_ask_for_votes_are_bounded_for_each_key(tmp_path: Path) -> None:
    """Those that had votes, those of another key and old ones do not count."""
    now = datetime(2026, 3, 1, tzinfo=UTC)
    ledger = PartyLedger(tmp_path / LEDGER_FILE, now=lambda: now)

    def offer(number: int, **changes: Any) -> Offer:
        return settled(campaign=f"{number:032x}", **changes)

    answer(ledger, offer(10**6), queries(0, 2))
    for number in range(MOST_UNANSWERED):
        ledger.join(offer(number))
    with pytest.raises(
        RefusedError, match=r"64 campaigns of this key .* after 2026-03-08 00:00 UTC"
    ):
        ledger.join(offer(MOST_UNANSWERED))
    ledger.join(offer(0))
    ledger.join(offer(MOST_UNANSWERED, key=b"k" * 32))
    answer(ledger, offer(1), queries(2, 2))
    ledger.join(offer(MOST_UNANSWERED + 1))
    with pytest.raises(RefusedError, match="64 campaigns of this key"):
        ledger.join(offer(MOST_UNANSWERED + 2))
    now += UNANSWERED_FOR
    ledger.join(offer(MOST_UNANSWERED + 2))
    # A clock that was far ahead for a while excludes nobody until then.
    now += 500 * UNANSWERED_FOR
    for number in range(MOST_UNANSWERED):
        ledger.join(offer(2**64 + number))
    now -= 500 * UNANSWERED_FOR
    ledger.join(offer(MOST_UNANSWERED + 3))


def test_a_server_cannot_report_ends_without_end(ledger: PartyLedger) -> None:
    ledger.join(joining())

    def end(asked: int) -> None:
        ledger.end("c1" * 16, queries_asked=asked, labels_released=0, epsilon=1.0, delta=1e-5)

    for asked in range(MOST_ENDINGS):
        end(asked)
    head = ledger.head
    end(MOST_ENDINGS - 1)  # the last one again
    with pytest.raises(RefusedError, match="64 ends"):
        end(MOST_ENDINGS)
    assert ledger.head == head


def test_answers_of_a_campaign_are_bounded(
    ledger: PartyLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_AGAIN", 2)
    monkeypatch.setattr(ledger_module, "MOST_ASKED", 2)
    monkeypatch.setattr(ledger_module, "MOST_FILES", 2)
    offer = settled(public_queries=4)
    for _ in range(2):
        answer(ledger, offer, queries(0, 4))
    answer(ledger, offer, queries(0, 3))
    head = ledger.head
    with pytest.raises(RefusedError, match="have left 2 times"):
        answer(ledger, offer, queries(0, 4))
    with pytest.raises(RefusedError, match="on 7 queries in all its batches, 2 times what"):
        answer(ledger, offer, queries(0, 2))
    # Before the votes are computed and stored, too.
    early = queries(0, 2)
    with pytest.raises(RefusedError, match="on 7 queries in all its batches, 2 times what"):
        ledger.check_answer(replace(offer, queries=2), Answer(batch_of(early), early, bytes(32)))
    assert ledger.head == head
    answer(ledger, offer, queries(0, 1))

    def send(number: int) -> None:
        file = bytes([number]) * 32
        ledger.send("c1" * 16, number=number, answers=file, digest=file, size=1)

    for number in (1, 2, 2):
        send(number)
    with pytest.raises(RefusedError, match="2 envelopes of this campaign were answered"):
        send(3)
    # What was admitted is read back, whatever the bounds are by then.
    monkeypatch.setattr(ledger_module, "MOST_ASKED", 1)
    assert PartyLedger(path).head == ledger.head


def test_an_end_before_any_votes_is_kept_with_its_cause(ledger: PartyLedger, path: Path) -> None:
    ledger.join(joining())
    for _ in range(2):  # told twice, recorded once
        ledger.end(
            "c1" * 16,
            queries_asked=0,
            labels_released=0,
            epsilon=1.0,
            delta=1e-5,
            cause="threshold",
        )
    (record,) = PartyLedger(path).campaigns()
    assert record.ending is not None
    assert record.ending.cause == "threshold"
    assert ledger.head.split(":")[0] == "2"
    with pytest.raises(ProtocolError, match="cannot end by 'boredom'"):
        ledger.end(
            "c1" * 16, queries_asked=0, labels_released=0, epsilon=1.0, delta=1e-5, cause="boredom"
        )
    assert ledger.head.split(":")[0] == "2"


# --- no query is opened twice --------------------------------------------------------------------


def test_the_same_opening_may_come_again(ledger: PartyLedger, path: Path) -> None:
    hashes = queries(0, 3)
    batch = answer_and_open(ledger, settled(), hashes)
    ledger.open_batch("c1" * 16, batch, hashes, SIX)
    PartyLedger(path).open_batch("c1" * 16, batch, hashes, tuple(reversed(SIX)))


def test_not_with_other_survivors(ledger: PartyLedger, path: Path) -> None:
    hashes = queries(0, 3)
    batch = answer_and_open(ledger, settled(), hashes)
    for opened in (ledger, PartyLedger(path)):
        for allowed in (False, True):  # the policy is only about other campaigns
            with pytest.raises(RefusedError, match=r"batch \w+ was unmasked with other parties"):
                opened.open_batch("c1" * 16, batch, hashes, FIVE, allow_other=allowed)


def test_not_in_another_batch_with_other_survivors(ledger: PartyLedger) -> None:
    """A batch that shares one query with an opened one shows that query's difference."""
    answer_and_open(ledger, settled(), queries(0, 3))
    batch = answer(ledger, settled(), queries(2, 3))
    for allowed in (False, True):
        with pytest.raises(RefusedError, match="with other parties before"):
            ledger.open_batch("c1" * 16, batch, queries(2, 3), FIVE, allow_other=allowed)
    alike = answer(ledger, settled(), queries(8, 3))  # other hashes, and perhaps the same inputs
    with pytest.raises(RefusedError, match="over similar queries would reveal votes"):
        ledger.open_batch("c1" * 16, alike, queries(8, 3), FIVE)
    ledger.open_batch("c1" * 16, batch, queries(2, 3), SIX)  # the same exact sum shows nothing new


def test_not_in_two_batches_if_each_has_its_own_noise(ledger: PartyLedger) -> None:
    answer_and_open(ledger, noisy(), queries(0, 3))
    batch = answer(ledger, noisy(), queries(2, 3))
    with pytest.raises(RefusedError, match="two noisy sums"):
        ledger.open_batch("c1" * 16, batch, queries(2, 3), SIX)
    answer_and_open(ledger, noisy(), queries(3, 3))


def test_another_campaign_needs_the_policy_unless_the_survivors_are_the_same(
    ledger: PartyLedger,
) -> None:
    answer_and_open(ledger, settled(), queries(0, 3))
    other = settled(campaign=OTHER)
    batch = answer(ledger, other, queries(2, 3))
    with pytest.raises(RefusedError, match="in campaign c1c1c1c1, with other parties"):
        ledger.open_batch(OTHER, batch, queries(2, 3), FIVE)
    ledger.open_batch(OTHER, batch, queries(2, 3), FIVE, allow_other=True)
    third = settled(campaign="e3" * 16)
    batch = answer(ledger, third, queries(0, 1))
    ledger.open_batch(third.campaign, batch, queries(0, 1), SIX)


def test_only_what_was_answered_is_opened(ledger: PartyLedger) -> None:
    hashes = queries(0, 2)
    ledger.join(settled())
    with pytest.raises(RefusedError, match="never voted on"):
        ledger.open_batch("c1" * 16, batch_of(hashes), hashes, SIX)
    batch = answer(ledger, settled(), hashes)
    with pytest.raises(RefusedError, match="never voted on"):
        ledger.open_batch("c1" * 16, batch, queries(1, 2), SIX)
    with pytest.raises(RefusedError, match="other queries than when it was first asked"):
        ledger.answer(settled(), Answer(batch, queries(1, 2), bytes(32), tags=tags(queries(1, 2))))
    with pytest.raises(RefusedError, match="never joined"):
        ledger.open_batch(OTHER, batch, hashes, SIX)
    plain = settled(campaign=OTHER, aggregation="plain")
    with pytest.raises(RefusedError, match="not masked"):
        answer_and_open(ledger, plain, hashes)
    for survivors in ((), ("a", "a")):
        with pytest.raises(ProtocolError):
            ledger.open_batch("c1" * 16, batch, hashes, survivors)


# --- the file ------------------------------------------------------------------------------------


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """No file of this process may grow beyond what the ledger's log has now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_records_nothing_and_says_so(ledger: PartyLedger, path: Path) -> None:
    batch = answer(ledger, settled(), queries(0, 2))
    before = ledger.campaigns()
    with full_disk(path), pytest.raises(DiskError, match="make room"):
        answer(ledger, settled(), queries(2, 98))
    with full_disk(path), pytest.raises(DiskError, match="make room"):
        ledger.open_batch("c1" * 16, batch, queries(0, 2), SIX)
    assert ledger.campaigns() == before == PartyLedger(path).campaigns()
    ledger.open_batch("c1" * 16, batch, queries(0, 2), FIVE)  # with room again, as if never tried
    assert ledger.verify() == PartyLedger(path).head


def test_looking_needs_a_ledger_and_never_writes(ledger: PartyLedger, path: Path) -> None:
    with pytest.raises(StateError, match="there is no file"):
        PartyLedger(path.with_name("none.db"), read_only=True)
    assert not path.with_name("none.db").exists()
    answer(ledger, settled(), queries(0, 2))
    looking = PartyLedger(path, read_only=True)
    assert looking.campaigns() == ledger.campaigns()
    with pytest.raises(DiskError):
        looking.join(joining(campaign=OTHER))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ledger = PartyLedger(tmp_path_factory.mktemp("written") / LEDGER_FILE)
    ledger.join(joining())
    answer_and_open(ledger, settled(), queries(0, 3))
    answer(ledger, settled(), queries(0, 3))
    ledger.end("c1" * 16, queries_asked=3, labels_released=3, epsilon=1.0, delta=1e-5)
    return ledger.path


#: Alterations of a ledger.
_UNLOCK = "".join(
    f"DROP TRIGGER {table}_no_{verb};"
    for table in ("entries", "queries", "tags")
    for verb in ("update", "delete")
)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '\"queries\":3', '\"queries\":2') WHERE seq = 3",
        "UPDATE entries SET written_at = '2001-01-01T00:00:00+00:00' WHERE seq = 4",
        "UPDATE entries SET kind = 'offer' WHERE seq = 4",
        "UPDATE entries SET seq = 9 WHERE seq = 6",
        "DELETE FROM entries WHERE seq = 4",
        "UPDATE queries SET query = zeroblob(32) WHERE position = 1",
        "DELETE FROM queries WHERE position = 2",
        "UPDATE queries SET position = 7 WHERE position = 2",
        "INSERT INTO queries SELECT 6, 0, query FROM queries WHERE position = 0",
        "UPDATE tags SET tag = zeroblob(16) WHERE position = 1",
        "DELETE FROM tags WHERE position = 2",
        "INSERT INTO tags SELECT 6, 0, tag FROM tags WHERE position = 0",
        "CREATE TABLE more (a)",
    ],
)
def test_an_altered_ledger_is_refused(written: Path, tmp_path: Path, change: str) -> None:
    copy = tmp_path / LEDGER_FILE
    shutil.copy(written, copy)
    tamper(copy, change)
    with pytest.raises(LedgerError):
        PartyLedger(copy)


def test_a_running_party_sees_that_its_ledger_was_cut(ledger: PartyLedger, path: Path) -> None:
    answer(ledger, settled(), queries(0, 2))
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(_UNLOCK)
        db.executescript("DELETE FROM queries; DELETE FROM entries WHERE seq > 1;")
    db.close()
    with pytest.raises(LedgerError):
        ledger.verify()
    with pytest.raises(StateError):
        answer(ledger, settled(), queries(0, 2))


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look at" * 40, b"x", b""]
)
def test_another_file_is_refused(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        PartyLedger(path)


def test_another_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    with pytest.raises(LedgerError, match="not a file of this kind"):
        PartyLedger(path)


def test_a_log_without_its_ledger_is_refused_and_a_half_made_ledger_made_anew(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("ledger.db.new").write_bytes(b"half")
    PartyLedger(path).join(joining())
    path.rename(path.with_name("elsewhere.db"))
    path.with_name("ledger.head").unlink()
    path.with_name("ledger.db-wal").write_bytes(b"pages")
    with pytest.raises(LedgerError, match="a missing file"):
        PartyLedger(path)


# --- offers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "offer",
    [
        joining(),
        settled(),
        noisy(),
        settled(aggregation="plain"),
        settled(mechanisms=(LNMax(Fraction(20), 1),), composition="zcdp"),
        settled(
            mechanisms=(
                ConfidentGNMax(180, Fraction(100), Fraction(40), 2),
                InteractiveGNMax(90, Fraction(100), Fraction(40), Fraction(9, 10), 2),
            ),
            unit="party",
            rounds=3,
        ),
    ],
)
def test_an_offer_reads_back_without_its_request(offer: Offer) -> None:
    body = json.loads(json.dumps(offer.to_dict()))
    assert read_offer(body) == replace(offer, queries=0)


@pytest.mark.parametrize(
    "change",
    [
        {"key": bytes(31)},
        {"campaign": "C1"},
        {"campaign": ""},
        {"aggregator": "two\nlines"},
        {"aggregation": "sealed"},
        {"unit": "village"},
        {"noise": "distributed", "aggregation": "plain"},
        {"noise": "distributed"},
        {"composition": "rdp"},
        {"epsilon": math.inf},
        {"epsilon": 2},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"public_queries": 0},
        {"rounds": True},
        {"queries": -1},
        {"threshold": 7},
        {"roster": ("a", "a")},
        {"cap": Fraction(-1)},
        {"mechanisms": ()},
        {"mechanisms": (LNMax(Fraction(20), 1),)},  # has no cost in GDP
    ],
)
def test_an_offer_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        settled(**change)


def test_noise_shares_are_counted_of_those_that_are_certain() -> None:
    assert noisy(threshold=5, colluders=1).settled
    with pytest.raises(ProtocolError, match="counted of 4 honest parties, certain are 3"):
        noisy(threshold=5, colluders=2)
    with pytest.raises(ProtocolError, match="gate"):
        noisy(composition="gate", cap=Fraction(1))


def test_a_gate_comes_back_whole_and_never_changes(ledger: PartyLedger, path: Path) -> None:
    assert "gate" not in json.dumps(settled().to_dict())
    assert read_offer(settled().to_dict()) == replace(settled(), queries=0)
    offer = gated()
    assert read_offer(offer.to_dict()) == replace(offer, queries=0)
    ledger.join(offer)
    assert PartyLedger(path).offer_of(offer.campaign) == replace(offer, queries=0)
    assert offer.settled is not None
    assert offer.settled.gate is not None
    gate = replace(offer.settled.gate, test=Fraction(1, 7))
    other = replace(offer, settled=replace(offer.settled, gate=gate))
    with pytest.raises(RefusedError, match="has changed its gate"):
        ledger.join(other)
    body: dict[str, Any] = offer.to_dict()
    wrongs: tuple[Json, ...] = (None, "open", {"event": "gated-batch"})
    for wrong in wrongs:
        with pytest.raises(ProtocolError):
            read_offer({**body, "settled": {**body["settled"], "gate": wrong}})
    for wrong_terms in ({"composition": "zcdp"}, {"gate": None}):
        with pytest.raises(UsageError, match="of a gated campaign, and only there"):
            replace(offer.settled, **wrong_terms)


# --- the own accountant --------------------------------------------------------------------------


def read_offer(text: Any) -> Offer:
    return read(Offer, text, error=ProtocolError, what="an offer")


def worst(offer: Offer) -> Fraction:
    return max(total_cost(Zcdp(), each.worst) for each in offer.require_settled().mechanisms)


def test_nothing_answered_costs_nothing() -> None:
    assert cumulative_epsilon([Totals(settled())], Delta(1e-5)).epsilon == 0.0
    assert cumulative_epsilon([], Delta(1e-5)).epsilon == 0.0


def test_central_noise_costs_what_may_be_asked_and_no_more_than_the_cap() -> None:
    offer = settled(rounds=2, cap=Fraction(1, 10))
    each = worst(offer)
    assert each == Fraction(1, 1600)
    assert cost_of(Totals(offer, 10, 10), Zcdp()) == 2 * 10 * each
    assert cost_of(Totals(offer, 10, 12), Zcdp()) == 2 * 12 * each  # a query twice in the set
    assert cost_of(Totals(offer, 90, 90), Zcdp()) == Fraction(1, 10)
    small = altered(offer, queries=5)
    assert cost_of(Totals(small, 5, 9), Zcdp()) == 2 * 5 * each  # one batch was cut anew


def test_noise_shares_cost_a_histogram_for_every_query_cap_or_not() -> None:
    offer = noisy(rounds=2, cap=Fraction(1, 1000))
    assert cost_of(Totals(offer, 90, 300), Zcdp()) == 300 * worst(offer)
    figure = cumulative_epsilon([Totals(offer, 90, 300)], Delta(1e-5))
    assert (figure.observer, figure.unit) == ("server", "record")
    both = cumulative_epsilon(
        [Totals(offer, 90, 300), Totals(settled(campaign=OTHER), 1, 1)], Delta(1e-5)
    )
    assert both.observer == "public"


def test_gaussian_campaigns_are_summed_as_such_and_mixed_ones_in_zcdp() -> None:
    """Each in its own composition, at its own part of delta."""
    one = Totals(settled(), 50, 50)
    delta = Delta(1e-5)
    part = delta.of(Fraction(3, 8))
    assert part == pytest.approx(0.9e-5 * 3 / 8, rel=1e-12)
    exact = Gdp().epsilon(50 * total_cost(Gdp(), GNMax(Fraction(40), 1).worst), part)
    assert (
        cumulative_epsilon([one], delta).epsilon
        == exact
        < epsilon_from_rho(50 * worst(settled()), part)
    )
    laplace = settled(
        campaign=OTHER, mechanisms=(LNMax(Fraction(200), 1),), composition="zcdp", unit="party"
    )
    two = Totals(laplace, 30, 30)
    mixed = cumulative_epsilon([one, two], delta)
    assert mixed.epsilon == epsilon_from_rho(50 * worst(settled()) + 30 * worst(laplace), part)
    assert mixed.unit == "record"
    assert cumulative_epsilon([two], delta).unit == "party"


def test_a_gated_campaign_and_one_without_terms_cost_what_they_promise() -> None:
    delta = Delta(1e-5, Fraction(1, 2))
    behind = Totals(gated(epsilon=1.5, delta=2e-6), 100, 100)
    unknown = Totals(joining(campaign=OTHER, epsilon=0.25, delta=3e-6), 10, 10)
    assert cumulative_epsilon([behind], delta).epsilon == 1.5
    assert cumulative_epsilon([behind, unknown], delta).epsilon == 1.75
    exact = Totals(settled(campaign="e3" * 16), 50, 50)
    with_noise = cumulative_epsilon([behind, unknown, exact], delta)
    assert 1.75 + cumulative_epsilon([exact], delta).epsilon < with_noise.epsilon < 5
    # The rest is converted at the same delta, whatever failed before.
    assert with_noise.epsilon == min(
        epsilon_from_rdp(
            [order], [float(Fraction(7, 4) + 50 * order * worst(settled()))], 5e-6 / 16
        )
        for order in (3, 6, 12, 24)
    )
    for totals in ([behind, unknown, exact], [behind, unknown]):
        none = cumulative_epsilon(totals, Delta(9e-6, Fraction(1, 2)))
        assert none.epsilon == math.inf
        assert "no figure at delta 9e-06: the deltas of gated campaigns" in none.in_words
        assert "4.5e-06 that is set aside" in none.in_words
    # All of delta may be set aside: then only what is promised, or pure, can be counted.
    whole = Delta(5.1e-6, Fraction(1))
    assert cumulative_epsilon([behind, unknown], whole).epsilon == 1.75
    assert cumulative_epsilon([exact], whole).epsilon == math.inf


def test_more_answers_never_cost_less(ledger: PartyLedger) -> None:
    seen = 0.0
    for at in range(4):
        answer(ledger, settled(key=KEY), queries(5 * at, 5))
        now = ledger.cumulative_epsilon(Delta(1e-5)).epsilon
        assert now > seen
        seen = now
    assert "adjacency: one record added or removed; observer: public" in (
        ledger.cumulative_epsilon(Delta(1e-5)).in_words
    )


def test_errors_are_of_the_tree(ledger: PartyLedger) -> None:
    for wrong in ([], [b"short"]):
        with pytest.raises(PateError):
            ledger.answer(settled(), Answer(bytes(32), wrong, bytes(32), tags=wrong))
    with pytest.raises(ProtocolError, match="32 bytes"):
        ledger.answer(
            settled(), Answer(bytes(31), queries(0, 2), bytes(32), tags=tags(queries(0, 2)))
        )
    assert PartyLedger(ledger.path).head == ledger.head


@pytest.mark.parametrize("covered", [False, True])
def test_queries_that_vanish_while_a_party_runs_open_nothing(
    ledger: PartyLedger, path: Path, covered: bool
) -> None:
    """By their rows it is known what was opened before: without them all would be new."""
    answer_and_open(ledger, settled(), queries(0, 2))
    late = settled(campaign="c2" * 16)
    batch = answer(ledger, late, queries(0, 2))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        name = "queries_no_delete"
        sql = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
        db.execute(f"DROP TRIGGER {name}")
        db.execute("DELETE FROM queries WHERE entry < (SELECT max(entry) FROM queries)")
        if covered:
            db.execute(sql)
    first, then = "altered by another process", "entry 2 .* is invalid"
    for found in (first, then) if covered else ["triggers were altered"] * 2:
        with pytest.raises(LedgerError, match=found):
            ledger.open_batch(late.campaign, batch, queries(0, 2), SIX[:5])


def test_a_file_that_was_only_tidied_up_is_read_again(path: Path) -> None:
    ledger = PartyLedger(path)
    answer_and_open(ledger, settled(), queries(0, 2))
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM")
    with pytest.raises(LedgerError, match="altered by another process"):
        answer(ledger, settled(), queries(2, 2))
    answer_and_open(ledger, settled(), queries(2, 2))
    assert PartyLedger(path, read_only=True).head == ledger.head
