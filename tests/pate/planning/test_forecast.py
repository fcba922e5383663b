"""Messages about the budget before parties vote, and about labels afterwards."""

from __future__ import annotations

import re
import shlex
from fractions import Fraction
from typing import Any

import pytest
from typer.testing import CliRunner

from pate.campaign.choices import TEACHERS_EACH, Guess
from pate.errors import UsageError
from pate.planning.forecast import PaidLabels, classes_in_words, expected, teachers_wanted
from tests.support.server.campaigns import make_spec

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
