"""Synthetic rows in a party's ledger: reserved, spent, and composed with its votes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.ledger.accountant import Totals, cumulative_epsilon
from party.ledger.ledger import PartyLedger
from party.ledger.synthesis import Synthesis
from party.policy.policy import Policy
from pate.accounting import Unit
from pate.accounting.filters import Delta
from pate.campaign.offer import Offer
from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.formats.privacy_statement import neighbours_of
from pate.mechanisms import GNMax, Mechanism, Neighbour
from tests.support.party.offers import answer, noisy, queries, settled

#: Of the default generator at epsilon 1 over 13 attributes: a tenth, a fifth and the rest of epsilon
#: on first counts, on the order and on the tables.
RHO = Fraction(1, 100) / 26 + Fraction(4, 100) / 96 + Fraction(49, 100) / 26
MODEL, OUTPUT = "ab" * 32, "cd" * 32


def synthesis(**changes: Any) -> Synthesis:
    made: dict[str, Any] = {
        "id": "a1" * 16, "unit": "record", "method": "l1", "release": "seedless", "rows": 1000,
        "schema": "b2" * 32, "data": "c3" * 32, "epsilon": Fraction(1), "rho": RHO,
        "settings": {"k": "50", "gamma": "4"},
    }  # fmt: skip
    return Synthesis(**made | changes)


def of_model(**changes: Any) -> Synthesis:
    free: dict[str, Any] = {
        "id": "d4" * 16, "parent": "a1" * 16, "model": MODEL,
        "epsilon": Fraction(0), "rho": Fraction(0),
    }  # fmt: skip
    return synthesis(**free | changes)


def thousand(sigma: int = 40, **changes: Any) -> Offer:
    """A campaign whose terms pay for 1,000 labels of GNMax."""
    changes = {"mechanisms": (GNMax(Fraction(sigma), 1),)} | changes
    return settled(public_queries=1000, cap=Fraction(10), **changes)


# --- the cumulative epsilon ----------------------------------------------------------------------


@pytest.mark.parametrize("composition", ["gdp", "zcdp"])
@pytest.mark.parametrize("rows_first", [True, False])
def test_votes_and_rows_are_summed_before_they_are_converted(
    ledger: PartyLedger, path: Path, composition: str, rows_first: bool
) -> None:
    """1,000 labels at sigma 40 give 5.644 in zCDP, with rows at epsilon 1 5.745."""
    offer = thousand(composition=composition)
    if rows_first:
        ledger.reserve(synthesis())
    answer(ledger, offer, queries(0, 1000))
    if not rows_first:
        ledger.reserve(synthesis())
    for opened in (ledger, PartyLedger(path)):
        figure = opened.cumulative_epsilon(Delta(1e-5))
        assert figure.epsilon == pytest.approx(5.745, abs=0.001)
        assert (figure.unit, figure.observer) == ("record", "public")
    assert cumulative_epsilon(ledger.totals(), Delta(1e-5)).epsilon == pytest.approx(
        5.644 if composition == "zcdp" else 5.260, abs=0.001
    )


def test_other_settings_of_the_specification() -> None:
    def figure(sigma: int, rho: Fraction, epsilon: int) -> float:
        totals = Totals(thousand(sigma, composition="zcdp"), 1000, 1000)
        return cumulative_epsilon(
            [totals], Delta(1e-5), [synthesis(rho=rho, epsilon=Fraction(epsilon))]
        ).epsilon

    assert figure(100, RHO, 1) == pytest.approx(2.234, abs=0.001)
    assert figure(40, 9 * RHO, 3) == pytest.approx(6.516, abs=0.001)


def test_a_release_without_a_gaussian_cost_takes_that_filter_away() -> None:
    """What is left is zCDP at its own part of delta, never more than that the rows are dear."""
    totals = [Totals(thousand(composition="gdp"), 1000, 1000)]
    alone = cumulative_epsilon(totals, Delta(1e-5)).epsilon
    cheap = synthesis(epsilon=Fraction(1, 100), rho=Fraction(1, 10**6))
    both = cumulative_epsilon(totals, Delta(1e-5), [cheap]).epsilon
    zcdp = cumulative_epsilon(
        [Totals(thousand(composition="zcdp"), 1000, 1000)], Delta(1e-5)
    ).epsilon
    assert alone < zcdp < both < zcdp + 1e-4


def test_rows_alone() -> None:
    figure = cumulative_epsilon([], Delta(1e-5), [synthesis()])
    assert 0.5 < figure.epsilon < 1  # as zCDP at this delta it is less than pure
    assert (figure.unit, figure.observer) == ("record", "server")
    assert cumulative_epsilon([], Delta(1e-12), [synthesis()]).epsilon == 1
    patients = cumulative_epsilon([], Delta(1e-5), [synthesis(unit="patient")])
    assert patients.unit == "patient"
    assert patients.epsilon == figure.epsilon
    both = [synthesis(unit="patient"), synthesis(id="e5" * 16)]
    assert cumulative_epsilon([], Delta(1e-5), both).unit == "record"


@pytest.mark.parametrize("mechanism", [GNMax(Fraction(40), 1), Neighbour(5, Fraction(40), 1)])
@pytest.mark.parametrize("unit", ["record", "patient"])
def test_a_figure_with_paid_rows_is_for_units_added_or_removed(
    mechanism: Mechanism, unit: Unit
) -> None:
    """Altering a row costs its release up to twice; the votes of a patient may cover it."""
    offer = thousand(aggregator=mechanism.name, unit=unit, mechanisms=(mechanism,))
    votes, rows = [Totals(offer, 10, 10)], synthesis(unit=unit)
    for figure in (
        cumulative_epsilon(votes, Delta(1e-5), [rows]),
        cumulative_epsilon([], Delta(1e-5), [rows]),
    ):
        assert figure.unit == unit
        assert figure.neighbours.endswith(" added or removed")
        assert f"adjacency: {figure.neighbours}; observer" in figure.in_words
        assert "altered" not in figure.in_words
    # What costs nothing takes nothing away, and the votes' own words stay.
    free = of_model(unit=unit)
    alone = cumulative_epsilon(votes, Delta(1e-5))
    assert alone == cumulative_epsilon(votes, Delta(1e-5), [free])
    voting = mechanism.name == "neighbour"
    assert alone.neighbours == neighbours_of(unit, records_vote=voting)
    assert ("altered" in alone.in_words) == (voting or unit == "patient")


def test_deltas_add_up() -> None:
    seeded = synthesis(
        release="seeded", method="cfs", epsilon=None, rho=Fraction(2), delta=Fraction(1, 10**6)
    )
    at = [cumulative_epsilon([], Delta(delta), [seeded]).epsilon for delta in (1e-4, 1e-5)]
    assert at == sorted(at)
    twice = [seeded, replace(seeded, id="e5" * 16)]
    half = Fraction(1, 2)
    assert math.isinf(cumulative_epsilon([], Delta(1e-5), twice).epsilon)  # a tenth is set aside
    assert "no figure at delta 1e-05" in cumulative_epsilon([], Delta(1e-5), twice).in_words
    assert math.isinf(cumulative_epsilon([], Delta(3.9e-6, half), twice).epsilon)
    assert math.isfinite(cumulative_epsilon([], Delta(4.1e-6, half), twice).epsilon)


def test_rows_of_a_paid_model_change_nothing(ledger: PartyLedger) -> None:
    answer(ledger, noisy(unit="patient"), queries(0, 2))
    ledger.reserve(synthesis(unit="patient"))
    ledger.spend("a1" * 16, model=MODEL, output=OUTPUT)
    before = ledger.cumulative_epsilon(Delta(1e-5))
    ledger.reserve(of_model(unit="patient"))
    assert ledger.cumulative_epsilon(Delta(1e-5)) == before
    assert before.unit == "patient"


def test_the_policy_counts_rows_in(ledger: PartyLedger) -> None:
    """A campaign that fits the largest epsilon by itself does not fit together with the rows."""
    offer = replace(thousand(composition="zcdp", epsilon=5.7), queries=1000)
    policy = Policy(campaigns="any", least_survivors=0, largest_epsilon=5.7)

    def admits() -> None:
        view = ledger.view(offer, bytes(32), queries(0, 1000))
        policy._check_epsilon(offer, view)

    admits()
    ledger.reserve(synthesis())
    with pytest.raises(RefusedError, match=r"would be 5\.745"):
        admits()


# --- what may stand there ------------------------------------------------------------------------


def test_it_remembers_over_a_restart(ledger: PartyLedger, path: Path) -> None:
    ledger.reserve(synthesis())
    ledger.spend("a1" * 16, model=MODEL, output=OUTPUT)
    ledger.reserve(of_model(rows=10**5))
    again = PartyLedger(path)
    assert again.syntheses() == ledger.syntheses()
    first, second = again.syntheses()
    assert first.synthesis == synthesis()
    assert (first.model, first.output) == (MODEL, OUTPUT)
    assert first.spent_at is not None
    assert second.spent_at is None
    paid = again.paid_model(MODEL)
    assert paid is not None
    assert paid.synthesis.id == "a1" * 16
    assert again.paid_model(OUTPUT) is None
    assert again.head == ledger.head == again.verify()


def test_a_model_has_to_be_paid_for_here(ledger: PartyLedger) -> None:
    with pytest.raises(RefusedError, match="was not paid for"):
        ledger.reserve(of_model())
    ledger.reserve(synthesis())
    with pytest.raises(RefusedError, match="was not paid for"):  # its model is not known yet
        ledger.reserve(of_model())
    ledger.spend("a1" * 16, model=MODEL, output=OUTPUT)
    with pytest.raises(RefusedError, match="was not paid for"):
        ledger.reserve(of_model(model=OUTPUT))
    for other in ({"unit": "patient"}, {"schema": "ff" * 32}, {"method": "cfs"}):
        with pytest.raises(RefusedError, match=f"with another {next(iter(other))}"):
            ledger.reserve(of_model(**other))
    ledger.reserve(of_model())
    assert len(ledger.syntheses()) == 2
    for wrong in ({"output": "q"}, {"output": OUTPUT, "model": MODEL[:-1]}):
        with pytest.raises(ProtocolError, match="the digest of a"):
            ledger.spend("d4" * 16, **wrong)
    with pytest.raises(LedgerError, match="rows of a paid model, and a new model"):
        ledger.spend("d4" * 16, output=OUTPUT, model=MODEL)
    ledger.spend("d4" * 16, output=OUTPUT)


def test_nothing_is_reserved_or_spent_twice(ledger: PartyLedger) -> None:
    with pytest.raises(RefusedError, match="were not paid for"):
        ledger.spend("a1" * 16, output=OUTPUT)
    ledger.reserve(synthesis())
    with pytest.raises(RefusedError, match="already in the ledger"):
        ledger.reserve(synthesis(rho=Fraction(1, 10**9)))
    ledger.spend("a1" * 16, output=OUTPUT)
    with pytest.raises(RefusedError, match="written before"):
        ledger.spend("a1" * 16, output=OUTPUT)
    assert ledger.cumulative_epsilon(Delta(1e-5)) == cumulative_epsilon(
        [], Delta(1e-5), [synthesis()]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "A1" * 16},
        {"unit": "party"},
        {"release": "seed"},
        {"rows": 0},
        {"rows": True},
        {"rho": -RHO},
        {"rho": 0.1},
        {"rho": Fraction(2)},  # more than a pure epsilon of 1 allows
        {"delta": Fraction(1)},
        {"delta": Fraction(1, 10**6)},  # pure, and yet with a delta
        {"epsilon": Fraction(0), "rho": Fraction(0)},  # free, and of no paid model
        {"parent": "e5" * 16},
        {"parent": "e5" * 16, "model": MODEL},
        {"settings": {"k": "line\nline"}},
        {"settings": {f"k{at}": "1" for at in range(33)}},
    ],
)
def test_what_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        synthesis(**wrong)


def test_the_text_of_an_entry_is_written_down() -> None:
    # Ledgers hold it: it may never change.
    made = synthesis(rho=Fraction(1, 8), delta=Fraction(0))
    assert json.dumps(made.body()) == (
        '{"id": "' + "a1" * 16 + '", "unit": "record", "method": "l1", "release": "seedless", '
        '"rows": 1000, "schema": "'
        + "b2" * 32
        + '", "data": "'
        + "c3" * 32
        + '", "epsilon": "1", "rho": "1/8", "delta": "0", "parent": null, "model": null, '
        '"settings": {"k": "50", "gamma": "4"}}'
    )


@pytest.mark.parametrize(
    "wrong",
    [{"rho": "0.5"}, {"rho": "2/4"}, {"more": 1}, {"rows": "1"}, {"settings": []}, {"epsilon": 1}],
)
def test_what_no_ledger_holds(wrong: dict[str, Any]) -> None:
    with pytest.raises(LedgerError, match=f"an entry 'synthesis-reserved': .*{next(iter(wrong))}"):
        Synthesis.of_body(synthesis().body() | wrong)
    assert Synthesis.of_body(synthesis().body()) == synthesis()
