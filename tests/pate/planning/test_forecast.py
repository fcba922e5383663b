"""Chances of outcomes, against enumeration and samplers, and the messages made of them."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from typer.testing import CliRunner

from pate.accounting.filters import PrivacyFilter
from pate.campaign.choices import TEACHERS_EACH, Guess
from pate.errors import AccountingError, BudgetError, UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from pate.planning import chances as chances_module
from pate.planning.chances import NoiseLaw, chances, expected_asked, gaussian_law, laplace_law
from pate.planning.forecast import PaidLabels, classes_in_words, expected, teachers_wanted
from pate.planning.plans import Prospect
from pate.planning.population import proxy_population
from tests.support.server.campaigns import make_spec
from tests.support.simulated_noise import SimulatedNoise

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.planning.chances import Integers


#: Of all statistical tests of this file together.
FALSE_ALARM = 1e-6
ROWS = np.array([[5, 3, 2], [4, 4, 2], [0, 10, 0], [3, 3, 4]])


def chance_of_label(votes: Integers, labels: Integers, law: NoiseLaw) -> Floats:
    _, right = chances(votes, labels, law, [(None, None)])
    return right.reshape(-1)


def chance_passed(votes: Integers, threshold: int, law: NoiseLaw) -> Floats:
    passed, _ = chances(votes, np.zeros(len(votes), np.int64), law, [(law, threshold)])
    return passed.reshape(-1)


def one_view(
    votes: Integers, labels: Integers, thresholds: Integers, law: NoiseLaw
) -> tuple[Floats, Floats]:
    """Of checks that read the noisy counts."""
    return chances(votes, labels, law, [(None, int(each)) for each in thresholds])


@pytest.mark.parametrize(
    "law", [gaussian_law(Fraction(3, 2)), gaussian_law(Fraction(3)), laplace_law(Fraction(4, 5))]
)
def test_chances_are_those_of_all_draws_with_their_ties(law: NoiseLaw) -> None:
    mass = np.diff(law.cdf, prepend=0.0)
    near = np.flatnonzero(mass > 1e-12)
    draws = np.array(list(itertools.product(near, repeat=3)))
    each, noise = mass[draws].prod(axis=1), draws - law.reach
    thresholds = np.array([-50, 3, 5, 6, 9, 60])
    for row in ROWS:
        noisy = row + noise
        won = noisy.argmax(axis=1)[:, None] == np.arange(3)
        over = noisy.max(axis=1)[:, None] >= thresholds
        passed = mass[near][near - law.reach + row.max() >= 6].sum()
        assert chance_passed(row[None], 6, law)[0] == pytest.approx(passed, abs=1e-9)
        for label in range(3):
            alone = chance_of_label(row[None], np.array([label]), law)[0]
            assert alone == pytest.approx(each @ won[:, label], abs=1e-9)
            seen, right = one_view(row[None], np.array([label]), thresholds, law)
            assert seen[:, 0] == pytest.approx(each @ over, abs=1e-9)
            exact = each @ (over & won[:, label, None])
            assert right[:, 0] == pytest.approx(exact, abs=1e-9)


def test_the_laws_are_those_of_the_samplers() -> None:
    for sigma in (Fraction(1, 4), Fraction(7, 3), Fraction(40)):
        z = np.arange(-400, 401)
        mass = np.exp(-(z.astype(float) ** 2) / (2 * float(sigma) ** 2))
        expected = np.cumsum(mass / mass.sum())
        assert gaussian_law(sigma).at_most(z) == pytest.approx(expected, abs=1e-13)
    # P[Z <= -x] of the discrete Laplace law is exp(-x / b) / (1 + exp(-1 / b)).
    b = Fraction(20)
    below = laplace_law(b).at_most(-np.arange(1, 200))
    assert below == pytest.approx(
        np.exp(-np.arange(1, 200) / 20) / (1 + math.exp(-1 / 20)), rel=1e-9
    )
    assert gaussian_law(b).at_most(np.array([-(10**9), 10**9])) == pytest.approx([0, 1], abs=1e-15)


def wide(rng: np.random.Generator, queries: int, classes: int, teachers: int) -> Integers:
    shares = rng.dirichlet(np.full(classes, 0.3), size=queries)
    return np.array([rng.multinomial(teachers, share) for share in shares], np.int64)


@pytest.mark.parametrize(
    ("law", "scale", "power", "error"),
    [
        (gaussian_law, 16, 2, 1e-9), (gaussian_law, 40, 2, 1e-9), (gaussian_law, 151, 2, 1e-9),
        (laplace_law, 24, 1, 3e-4), (laplace_law, 50, 1, 3e-4),
    ],
)  # fmt: skip
def test_a_sparse_lattice_gives_what_all_integers_give(
    law: object, scale: int, power: int, error: float
) -> None:
    sparse = (gaussian_law if power == 2 else laplace_law)(Fraction(scale))
    points = np.arange(-sparse.reach, sparse.reach + 1)
    weights = np.exp(-((np.abs(points) / scale) ** power) / power)
    dense = replace(sparse, points=points, weights=weights / weights.sum())
    assert len(sparse.points) < len(points) / 1.5
    votes = wide(np.random.default_rng(3), 60, 10, 250)
    labels = votes.argmax(axis=1)
    got, exact = (chance_of_label(votes, labels, each) for each in (sparse, dense))
    assert np.abs(got - exact).max() < error
    if power == 2:
        labels[:15] = np.random.default_rng(3).integers(10, size=15)
        thresholds = np.arange(-400, 1200, 13)
        found, wanted = (one_view(votes, labels, thresholds, each) for each in (sparse, dense))
        assert np.abs(found[0] - wanted[0]).max() == 0.0
        assert np.abs(found[1] - wanted[1]).max() < 1e-5
        assert (np.diff(found[1], axis=0) < 1e-5).all(), "a higher threshold lets less through"
        # Without a threshold it is the label alone, and with a high one nothing.
        ends = one_view(votes, labels, np.array([-(10**6), 10**6]), sparse)
        assert ends[0] == pytest.approx(np.array([[1.0] * 60, [0.0] * 60]), abs=1e-12)
        assert ends[1][0] == pytest.approx(chance_of_label(votes, labels, sparse))
        assert ends[1][1].max() < 1e-12


def test_many_classes_are_taken_together_without_a_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    votes = wide(np.random.default_rng(4), 50, 300, 100)
    votes[0] = 0
    votes[0, 150] = 100
    labels = np.random.default_rng(5).integers(300, size=50)
    labels[0] = 150
    law = gaussian_law(Fraction(9))
    together = chance_of_label(votes, labels, law)
    monkeypatch.setattr(chances_module, "_MANY_CLASSES", 10**9)
    assert together == pytest.approx(chance_of_label(votes, labels, law), abs=1e-13)
    # Of one view: some label is given whenever the check passes.
    alike, every = np.repeat(votes[:1], 300, axis=0), np.arange(300)
    answered, right = one_view(alike, every, np.array([90]), law)
    assert right.sum() == pytest.approx(answered[0, 0], abs=1e-9)


def test_two_classes_against_the_normal_law() -> None:
    sigma, gap = 200, 120
    got = chance_of_label(np.array([[620, 500]]), np.array([0]), gaussian_law(Fraction(sigma)))[0]
    # Z_1 - Z_0 <= gap, of two integers: the normal law at gap + 1/2.
    assert got == pytest.approx(ndtr((gap + 0.5) / (sigma * math.sqrt(2))), abs=1e-6)


@pytest.mark.parametrize(
    "mechanism",
    [
        GNMax(Fraction(12), 1),
        LNMax(Fraction(9), 1),
        ConfidentGNMax(30, Fraction(15), Fraction(8), 1),
    ],
)
def test_chances_are_those_of_the_shipped_mechanisms(mechanism: Mechanism) -> None:
    """Bernstein's inequality for the numbers of answers and of right ones over 40,000 queries."""
    rows = wide(np.random.default_rng(6), 40, 4, 50)
    labels = np.random.default_rng(7).integers(4, size=len(rows))
    repeats = 1000
    outcomes = mechanism.answer_all(np.repeat(rows, repeats, axis=0), SimulatedNoise(8))
    given = np.array([-1 if each.label is None else each.label for each in outcomes])
    expected_of = Prospect.of(mechanism, proxy_population(rows, labels))
    passed, right = expected_of.answered, expected_of.right
    for seen, chance in (
        (given >= 0, passed),
        (given == np.repeat(labels, repeats), right),
        (given[: 20 * repeats] == np.repeat(labels[:20], repeats), right[:20]),
    ):
        variance = repeats * float((chance * (1 - chance)).sum())
        level = math.log(2 * 9 / FALSE_ALARM)  # nine comparisons in all
        allowed = level / 3 + math.sqrt(level**2 / 9 + 2 * variance * level)
        assert abs(int(seen.sum()) - repeats * float(chance.sum())) <= allowed + 1e-6


def by_filter(
    queries: int, answer: float, check: Fraction, label: Fraction, limit: Fraction
) -> float:
    """The expectation by going through all numbers of answers, with the filter deciding."""
    expected, chance = 0.0, {0: 1.0}
    for asked in range(queries):
        then: dict[int, float] = {}
        for answers, p in chance.items():
            spent = asked * check + answers * label
            try:
                PrivacyFilter(limit, spent).reserve(check + label)
            except BudgetError:
                continue
            expected += p
            then[answers] = then.get(answers, 0.0) + p * (1 - answer)
            then[answers + 1] = then.get(answers + 1, 0.0) + p * answer
        chance = then
    return expected


costs = st.fractions(min_value=Fraction(1, 100), max_value=Fraction(3), max_denominator=1000)


@settings(max_examples=100, deadline=None)
@example(2, 3.3e-227, Fraction(0), Fraction(1, 2), Fraction(1, 2))
@example(2, 3.3e-227, Fraction(0), Fraction(3, 100), Fraction(1, 17))
@example(40, 1e-8, Fraction(1, 10**9), Fraction(1), Fraction(3, 2))
@given(
    st.integers(0, 40),
    st.floats(0, 1) | st.sampled_from([0.0, 1.0]),
    costs | st.just(Fraction(0)),
    costs,
    st.fractions(min_value=Fraction(0), max_value=Fraction(30), max_denominator=1000),
)
def test_the_number_asked_is_that_of_a_filter(
    queries: int, answer: float, check: Fraction, label: Fraction, limit: Fraction
) -> None:
    got = expected_asked(queries, answer, check, label, limit)
    assert got == pytest.approx(by_filter(queries, answer, check, label, limit), abs=1e-9)


def test_a_long_campaign_is_asked_about_where_it_matters_only() -> None:
    # 2,400 queries, in a window of some hundred: all of it against the plain sum.
    arguments = (2400, 0.43, Fraction(1, 45000), Fraction(1, 1600), Fraction(3, 5))
    queries, answer, check, label, limit = arguments
    before = np.arange(queries)
    answers = [(limit - check - label - int(n) * check) // label for n in before]
    from scipy.stats import binom

    plain = sum(binom.cdf(a, n, answer) for a, n in zip(answers, before, strict=True))
    assert expected_asked(*arguments) == pytest.approx(plain, rel=1e-10)
    assert 1500 < plain < 2400
    # Wald: what is spent on average is the limit, less at most one query.
    mean = float(check) + answer * float(label)
    million = expected_asked(10**6, answer, check, label, Fraction(100))
    assert 100 - float(check + label) <= million * mean <= 100


def test_what_cannot_be_is_refused() -> None:
    law = gaussian_law(Fraction(2))
    for labels in (np.array([2]), np.array([-1]), np.array([0, 1])):
        with pytest.raises(AccountingError, match="label"):
            chance_of_label(np.array([[1, 2]]), labels, law)
    with pytest.raises(AccountingError, match="negative"):
        chance_of_label(np.array([[1, -2]]), np.array([0]), law)
    for checks in ([], [(None, 3), (law, 3)], [(None, 3), (None, None)]):
        with pytest.raises(AccountingError, match="noisy counts"):
            chances(np.array([[1, 2]]), np.array([0]), law, checks)
    for scale in (Fraction(0), Fraction(-1), Fraction(2**17 + 1)):
        with pytest.raises(UsageError, match="sigma"):
            gaussian_law(scale)
    for answer in (-0.1, 1.1, math.nan):
        with pytest.raises(AccountingError, match="answered"):
            expected_asked(5, answer, Fraction(0), Fraction(1), Fraction(3))
    with pytest.raises(AccountingError, match="exact"):
        expected_asked(5, 0.5, 0.25, Fraction(1), Fraction(3))  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="cost 0"):
        expected_asked(5, 0.5, Fraction(1), Fraction(0), Fraction(3))


#: Photographs of ten classes at four hospitals.
FEW = {"aggregator": "gnmax", "queries": 3000, "epsilon": 4.0}


def test_labels_a_class_are_said_and_whether_they_are_few() -> None:
    forecast = PaidLabels.of(make_spec(**FEW), 40, 10)
    assert (forecast.labels, forecast.few) == (51, True)
    assert (
        "51 labels, about 5 for each of 10 classes if these are equally frequent (else: --rarest): few"
        in forecast.in_words
    )
    enough = PaidLabels.of(make_spec(**FEW), 40, 2)
    assert not enough.few
    assert "few" not in enough.in_words
    assert (
        "at most"
        in PaidLabels.of(make_spec(**FEW | {"aggregator": "confident-gnmax"}), 40, 2).in_words
    )


def test_a_rarest_class_gets_its_share_of_the_labels() -> None:
    rare = PaidLabels.of(make_spec(**FEW), 200, 2, rarest=0.05)
    even = PaidLabels.of(make_spec(**FEW), 200, 2)
    assert rare.labels == even.labels > 20
    assert (rare.wanted, even.wanted) == (200, 20)
    assert not even.few
    some = PaidLabels.of(make_spec(**FEW), 40, 2, rarest=0.05)
    assert some.few
    about = f"expect about {some.labels / 20:.0f} of it: few"
    assert f"and if your rarest class is 1 in 20, {about}" in some.in_words
    # The advice is for ten of that class, and a public set that has as many.
    found = re.search(r"(\d+) teachers at each party", some.advice())
    assert found is not None
    assert PaidLabels.of(make_spec(**FEW), 4 * int(found[1]), 2).labels >= 200
    assert "--rarest 0.05" in some.advice()
    small = PaidLabels.of(make_spec(**FEW | {"queries": 150}), 400, 2, rarest=0.05)
    assert small.few
    assert "a public set of 200 inputs or more" in small.advice()
    for impossible in (0.0, -1.0, 0.6, float("nan")):
        with pytest.raises(UsageError, match="--rarest"):
            PaidLabels.of(make_spec(**FEW), 40, 2, rarest=impossible)


@pytest.mark.parametrize(
    ("changes", "guess", "text", "few"),
    [
        ({}, Guess(), "if each party has 15 teachers, the budget pays for 123 labels", False),
        ({"epsilon": 0.2}, Guess(), "if each party has 10 teachers, the budget", True),
        ({}, Guess(teachers=400), "with 400 teachers the budget pays for", False),
        ({"neighbour": {}}, Guess(records=60_000), "if 60,000 records vote (your guess)", False),
        ({"neighbour": {}}, Guess(records=300), "few, for a student wants 10 or more", True),
        ({"neighbour": {}}, Guess(rarest=0.05), "1 in 20, expect 500 records of it", False),
        (
            {"neighbour": {"code": "dense-40"}},
            Guess(),
            "one release of sums in 40 directions",
            False,
        ),
    ],
)
def test_what_to_expect_is_said_of_teachers_and_of_records(
    changes: dict[str, Any], guess: Guess, text: str, few: bool
) -> None:
    more: dict[str, Any] = {**FEW, **{name: changes[name] for name in changes.keys() & {"epsilon"}}}
    if "neighbour" in changes:
        more |= {
            "aggregator": "neighbour", "epsilon": 1.0, "representatives": list(range(40)),
            "most_votes": 4095, "votes_per_patient": 1, **changes["neighbour"],
        }  # fmt: skip
    found = expected(make_spec(**more), guess, classes=2 if "neighbour" in changes else None)
    assert text in found.text
    assert (found.few, bool(found.advice)) == (few, few)
    # Of labels that records gave, far fewer than expected come of a guess at too many records.
    far = found.labels >= 1
    fewer = found.fewer(int(found.labels / 4))
    assert bool(fewer) == far
    assert ("--expected-records" in fewer) == (far and not guess.records)
    assert ("--representatives 10," in fewer) == (far and bool(guess.records))
    assert found.fewer(int(found.labels / 2)) == ""
    assert far == ("get a label" in found.text)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, 15),  # the least with which the budget suffices
        ({"epsilon": 8.0}, 10),  # ten do
        ({"epsilon": 0.2}, 10),  # as many as parties would be asked for do not
        ({"answer": "labels-2", "aggregator": "gnmax", "classes": ("a", "b", "c")}, 10),
    ],
)
def test_the_wanted_number_of_teachers_is_the_least_that_is_enough(
    changes: dict[str, Any], wanted: int
) -> None:
    spec = make_spec(**FEW | changes)
    assert teachers_wanted(spec) == wanted
    if wanted != TEACHERS_EACH:
        parties = spec.wanted_parties
        assert not PaidLabels.of(spec, wanted * parties).few
        assert PaidLabels.of(spec, (wanted - 1) * parties).few


def test_without_classes_the_public_set_judges() -> None:
    unsure = PaidLabels.of(make_spec(**FEW | {"queries": 20_000}), 100)
    assert (unsure.classes, unsure.sure) == (10, False)
    assert unsure.wanted == 400  # 2 % of the public set
    assert unsure.few
    assert "a guess: --classes" in unsure.in_words
    assert not PaidLabels.of(make_spec(**FEW | {"queries": 20_000}), 100, 10).few


def test_the_teachers_and_the_epsilon_that_are_advised_pay_for_enough_and_no_less_does() -> None:
    forecast = PaidLabels.of(make_spec(**FEW), 40, 10)
    line = forecast.advice()
    found = re.search(r"(\d+) teachers at each party .*`--epsilon ([0-9.]+)`", line)
    assert found is not None
    each, epsilon = int(found[1]), float(found[2])
    assert PaidLabels.of(make_spec(**FEW), 4 * each, 10).labels >= 100
    assert PaidLabels.of(make_spec(**FEW), 4 * (each - 1), 10).labels < 100
    assert PaidLabels.of(make_spec(**FEW | {"epsilon": epsilon}), 40, 10).labels >= 100
    assert PaidLabels.of(make_spec(**FEW | {"epsilon": epsilon - 0.2}), 40, 10).labels < 100


@pytest.mark.parametrize(
    ("changes", "has", "has_not"),
    [
        ({"unit": "party"}, "more parties", "neighbour"),
        ({"sigma2": Fraction(7)}, "more noise", "teachers at each"),
        ({"epsilon": 0.2}, "teachers at each", "`--epsilon"),
        ({"aggregator": "lnmax"}, "teachers at each", "more noise"),
    ],
)
def test_nothing_is_advised_that_does_not_help(
    changes: dict[str, Any], has: str, has_not: str
) -> None:
    line = PaidLabels.of(make_spec(**FEW | changes), 40, 10).advice()
    assert has in line
    assert has_not not in line


@pytest.mark.parametrize("aggregator", ["gnmax", "confident-gnmax", "lnmax", "interactive-gnmax"])
def test_the_command_that_is_advised_runs(aggregator: str) -> None:
    from simulation.cli import app

    rounds = 2 if aggregator == "interactive-gnmax" else 1
    changes = {"aggregator": aggregator, "rounds": rounds, "unit": "party", "epsilon": 9.0}
    line = PaidLabels.of(make_spec(**FEW | changes), 40, 2).advice()
    command = shlex.split(line.rpartition(" `")[2].rstrip("`"))
    assert command[:2] == ["pate", "plan"]
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options["--parties"] == "4"
    done = CliRunner().invoke(app, [*command[1:], "--queries", "50", "--epsilon", "9000", "--json"])
    assert done.exit_code == 0, done.output


def test_classes_with_few_labels_are_named() -> None:
    assert classes_in_words([10, 11], ["a", "b"]) == ""
    line = classes_in_words([0, 3, 10], ["bird", "cat", "dog"])
    assert "no label of 1 of 3 classes (bird)" in line
    assert "fewer than 10 labels of 1 class (cat)" in line
    assert "poor" in line
    assert "poor" not in classes_in_words([0, 12], ["a", "b"], more=True)
    assert "of every class" in classes_in_words([3, 4], ["a", "b"])
    assert "poor" not in classes_in_words([0, 12], ["a", "b"], noisy_counts=True)
