"""The methods of the rows: parts, noise of an epsilon, and what each learns from tiny data."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.data import Split
from benchmarks.methods import linear, standard, votes
from benchmarks.methods.method import (
    DELTA,
    Fitted,
    Method,
    Setting,
    altered_epsilon,
    gaussian_multiplier,
    mu,
)  # fmt: skip
from benchmarks.problem import LONGEST, Problem, with_validation
from benchmarks.record import Cost
from benchmarks.rows import ROWS, Options
from pate.accounting.gdp import delta_from_epsilon
from pate.codes import code_of
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, UsageError
from pate.runtime.screen import Screen
from simulation.datasets import digits
from student.chances.evidence import ONLY_NOISE
from tests.support.encoders.embedded import embedded_records
from tests.support.there import there

SCREEN = Screen("test")
COMPARISON = ROWS["compare-heart"]
RECORDS = Options(
    aggregator="neighbour",
    epsilon=0.5,
    delta=0.0,
    noise_law="geometric",
    min_parties=4,
    colluders=0,
)


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learnt from so few records does not take hundreds of trees."""
    monkeypatch.setitem(standard._FOREST, "n_estimators", 20)
    monkeypatch.setitem(standard._TREES, "learning_rate", 0.3)


def table(count: int, seed: int, groups: bool = False) -> Dataset:
    """Return rows whose class is whether their first column is above zero."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(count, 3))
    columns = tuple(np.ascontiguousarray(column) for column in values.T)
    patients = np.array([f"{seed}-{at // 2}" for at in range(count)]) if groups else None
    labels = (values[:, 0] > 0).astype(np.int64)
    return Dataset(Table(("a", "b", "c"), columns), labels, ("no", "yes"), patients)


def tiny(*, groups: bool = False) -> Problem:
    split = Split(table(600, 1, groups), table(240, 2, groups), table(200, 3, groups), "made up")
    return Problem("tiny", with_validation(split))


def test_validation_shares_no_unit_with_what_stays_public() -> None:
    problem = tiny(groups=True)
    spent, public = problem.validation, problem.split.public
    assert len(spent) + len(public) == 240
    assert len(spent) == 80
    assert not set(there(spent.groups)) & set(there(public.groups))


def test_a_trial_has_public_records_only() -> None:
    problem = tiny(groups=True)
    place = problem.trial(0)
    public = problem.split.public
    voters, asked = place.split.private, place.split.public
    assert voters.groups is not None
    assert asked.groups is not None
    assert len(voters) + len(asked) == len(public)
    assert not set(voters.groups) & set(asked.groups)
    assert set(voters.groups) | set(asked.groups) == set(there(public.groups))
    assert place.validation is place.split.test is asked
    assert place.fewer == problem.units / len(set(voters.groups))


@pytest.mark.parametrize("kind", ["columns", "steps"])
def test_rows_are_no_longer_than_promised(kind: str) -> None:
    rows = tiny().rows(kind)
    for part in (rows.private, rows.validation, rows.test):
        assert np.sqrt(np.square(part).sum(axis=1)).max() <= LONGEST * (1 + 1e-6)


def test_parts_have_every_row_once() -> None:
    parts = tiny().parts(3)
    assert len(parts) == 5
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_multiplier_spends_delta_and_no_more(epsilon: float) -> None:
    noise = gaussian_multiplier(epsilon, 40)
    spent = delta_from_epsilon(np.sqrt(40) / noise, epsilon)
    assert 0.999 * DELTA < spent <= DELTA * (1 + 1e-9)


def test_an_altered_record_has_twice_the_epsilon_with_geometric_noise() -> None:
    change = code_of("nearest").change(1)
    assert change.total == 2  # added or removed: 1
    assert altered_epsilon(0.5, "nearest", 0.0) == 1.0


def test_dense_votes_cost_as_much_added_as_the_table_says() -> None:
    one = code_of("dense-128")
    # Altered, an array of length 1 can turn round; added, it is there or not.
    assert one.change(1).squared == 4 * one.grid**2
    altered = altered_epsilon(1.0, "dense-128", DELTA)
    assert mu(altered) / 2 == pytest.approx(mu(1.0), rel=1e-6)


def test_noisy_moments_have_the_norm_that_their_noise_is_for() -> None:
    # The longest row with a constant, scaled as the method scales it.
    row = np.append(np.full(3, LONGEST / np.sqrt(3)), 1.0) / np.hypot(LONGEST, 1)
    both = np.outer(row, row)
    released = np.where(np.eye(4), both, np.sqrt(2) * both)[np.triu_indices(4)]
    target = np.outer(row, np.array([1.0, 0.0]) - 0.5)
    for weight in (0.3, 1.0):
        assert np.hypot(weight * np.linalg.norm(released), np.linalg.norm(target)) <= np.hypot(
            weight, 1
        )


def test_a_perturbed_objective_spends_epsilon_and_no_more() -> None:
    for ridge in (1e-9, 1e-3, 1.0):
        budget, larger = linear.objective_terms(0.5, ridge, 100)
        assert larger >= ridge
        assert budget >= 0.25 * (1 - 1e-9)
        assert budget + np.log1p(1 / (4 * 100 * larger)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "method", [*linear.METHODS, standard.alone(), standard.pooled(SCREEN)], ids=lambda one: one.name
)
def test_each_method_learns_what_is_there_to_learn(method: Method) -> None:
    problem = tiny()
    best = max(
        measure.accuracy(
            method.fit(problem, setting, 50.0 if method.private else None, 0).test,
            problem.split.test.labels,
        )
        for setting in method.settings(problem)[:6]
    )
    assert best > 0.8


def test_models_without_privacy_learn_each_kind_of_answers_and_inputs() -> None:
    drawn = np.random.default_rng(1)
    x, y = drawn.normal(size=(2, 600))
    inputs, none = Table(("x", "y"), (x, y)), np.zeros(600, dtype=np.int64)
    number = Dataset(inputs, none, (), None, x + 0.1 * drawn.normal(size=600))
    several = Dataset(inputs, none, ("a", "b"), None, np.stack([x > 0, y > 0.5], axis=1))
    cases = [
        (number, "mae", -0.3), (several, "macro_auc", 0.95),  # of the median: 0.8
        (embedded_records(600), "accuracy", 0.8),  # chance is a third
    ]  # fmt: skip
    for data, figure, least in cases:
        parts = [data.take(range(start, start + 200)) for start in (0, 200, 400)]
        problem = Problem("made up", Split(parts[0], parts[1], parts[2], ""), figure)
        method = standard.pooled(SCREEN)
        settings = method.settings(problem)
        assert len(settings) == 3
        said = [method.fit(problem, one, None, 0).test for one in settings]
        sign = -1 if figure in measure.ERRORS else 1
        best = max(sign * measure.judged(one, parts[2])[figure] for one in said)
        assert best > least


@pytest.mark.slow
def test_of_images_there_are_networks_too() -> None:
    data = digits()
    split = Split(
        data.take(range(600)), data.take(range(600, 1200)), data.take(range(1200, 1797)), ""
    )
    problem = Problem("digits", split)
    settings = standard.pooled(SCREEN).settings(problem)
    assert [str(one["model"]).partition(",")[0] for one in settings].count(
        "the student's network"
    ) == 2
    network = standard.train_network(split.private, 0, SCREEN, steps=100)
    plain = standard.output(network, split.test)
    standard.calibrate(network, split.private)
    for said in (plain, standard.output(network, split.test)):
        assert measure.accuracy(said, split.test.labels) > 0.5  # chance is 0.1
    fitted = standard.pooled(SCREEN).fit(problem, settings[2], None, 0)
    assert measure.accuracy(fitted.test, split.test.labels) > 0.8


@pytest.mark.slow
def test_teachers_learn_what_is_there_to_learn_and_nothing_without_a_budget(tmp_path: Path) -> None:
    problem, method = tiny(), votes.teachers(COMPARISON, tmp_path, SCREEN)
    setting: Setting = {"aggregator": "gnmax", "teachers": 50, "noise": 0.16}
    made = method.fit(problem, setting, 50.0, 0)
    assert measure.accuracy(made.test, problem.split.test.labels) > 0.8
    assert made.cost.up > 0
    assert made.cost.seconds > 0
    untaught = method.fit(problem, setting, 1e-3, 0)
    assert np.ptp(untaught.test) == 0
    few: Setting = {**setting, "teachers": 400}
    assert np.ptp(method.fit(problem, few, 50.0, 0).test) == 0


def test_defaults_of_a_comparison_are_no_search_and_what_they_replaced_is_beside_them(
    tmp_path: Path,
) -> None:
    problem, usual = (
        tiny(),
        {each.name: each for each in votes.methods(COMPARISON, tmp_path, SCREEN)},
    )
    assert [len(each.settings(problem)) for each in usual.values()] == [1, 1, 2, 4]
    assert not usual["records"].widens
    assert not usual["teachers"].widens
    once = [
        votes.options_of_records(problem, each, 1.0)
        for each in usual["records-once"].settings(problem)
    ]
    assert [(each.code, each.answer, each.delta) for each in once] == [
        ("nearest", None, 0.0), ("dense-128", "class", DELTA),
    ]  # fmt: skip
    assert all("release" not in each for each in usual["teachers-labels"].settings(problem))
    pictures = replace(problem, split=Split(bars(40, 1), bars(30, 2), bars(20, 3), ""))
    assert [usual[name].settings(pictures) for name in ("records", "teachers")] == [
        [{"code": "nearest", "student": "auto"}], [{"aggregator": "confident-gnmax"}],
    ]  # fmt: skip


def test_teachers_of_arrays_learn_with_numbers_by_rule(tmp_path: Path) -> None:
    problem, method = tiny(), votes.teachers(COMPARISON, tmp_path, SCREEN)
    (setting,) = method.settings(problem)
    assert setting == {"aggregator": "gnmax", "release": "arrays"}
    made = method.fit(problem, setting, 20.0, 0)
    assert measure.auc(made.test, problem.split.test.labels) > 0.8
    assert made.guarantee["epsilon"] <= 20.0


def test_a_row_of_arrays_states_its_teachers(tmp_path: Path) -> None:
    own = Options(aggregator="gnmax", release="axes-4", epsilon=20.0, delta=1e-5, teachers=9)
    problem, row = tiny(), replace(COMPARISON, options=own, epsilons=())
    method = votes.teachers(row, tmp_path, SCREEN)
    (setting,) = method.settings(problem)
    made = method.fit(problem, setting, None, 0)
    assert measure.auc(made.test, problem.split.test.labels) > 0.8
    assert (setting["release"], setting["teachers"]) == ("axes-4", 9)
    assert made.guarantee["epsilon"] <= 20.0


@pytest.mark.parametrize("why", [ONLY_NOISE, "the disk is gone"])
def test_a_campaign_of_noise_only_has_no_student_and_other_errors_are_errors(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object, **__: object) -> None:
        raise DataError(why)

    monkeypatch.setattr(votes, "train", train)
    problem, method = tiny(), votes.teachers(COMPARISON, tmp_path, SCREEN)
    with nullcontext() if why == ONLY_NOISE else pytest.raises(DataError, match=why):
        made = method.fit(problem, {"aggregator": "gnmax", "release": "arrays"}, 1.0, 0)
        assert np.ptp(made.test) == 0
        assert made.cost.exchanges > 0


def test_a_cost_is_the_largest_of_any_party_and_the_server_has_the_rest() -> None:
    found = Cost.of_parties([Cost(2, 10, 7, 1.5), Cost(3, 5, 9, 0.5)], 2.25)
    assert found == Cost(3, 10, 9, 1.5, 0.25)
    assert Cost.mean([found, Cost(1, 4, 3, 0.5, 0.75)]) == Cost(2, 7, 6, 1.0, 0.5)
    assert Cost.of_parties([Cost(1, 1, 1, 2.0)], 1.0).waiting == 0  # clocks of threads are coarse


def test_teachers_of_a_large_table_have_records_enough_for_a_kind_of_their_own() -> None:
    assert votes.fewest(tiny()) == 6
    large = tiny()
    large.__dict__["units"] = 3_000
    assert votes.fewest(large) == 60
    assert votes.shares_of(large, 51, 0) == ()


def bars(count: int, seed: int) -> Dataset:
    """Noisy images of 8 x 8 with an upright or a lying bar."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    pixels = random.integers(0, 90, (count, 8, 8))
    for image, lying, at in zip(pixels, labels, random.integers(0, 8, count), strict=True):
        (image if lying else image.T)[at] += 150
    return Dataset(
        Images(pixels.astype(np.uint8)[..., None]), labels.astype(np.int64), ("no", "yes")
    )


@pytest.mark.slow
def test_labels_of_a_private_model_teach_our_student(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials judge the model itself; what is reported is a student of its labels of public images only."""
    from benchmarks.methods.networks import taught
    from student.fit import images

    monkeypatch.setattr(images, "default_steps", lambda *_: 100)

    split = Split(bars(40, 1), bars(150, 2), bars(100, 3), "")
    problem = Problem("bars", with_validation(split))
    asked = []

    def fit(place: Problem, _setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
        asked.append((place.split.test, seed))
        one = np.eye(2)
        return Fitted(
            one[place.validation.labels], one[place.split.test.labels], Cost(1, 2, 3, 4.0)
        )

    method = taught(Method(name="x", settings=lambda _: [{"rate": 1}], fit=fit))
    assert method.name == "x-taught"
    assert method.fits(problem)
    assert not method.fits(tiny())
    trial = method.fit(problem, {}, 1.0, 1_001)
    assert asked[-1] == (problem.split.test, 1_001)
    np.testing.assert_array_equal(trial.test, np.eye(2)[problem.split.test.labels])
    made = method.fit(problem, {}, 1.0, 0)
    assert asked[-1] == (problem.split.public, 0)
    assert measure.accuracy(made.test, problem.split.test.labels) > 0.9
    assert made.cost == Cost(1, 2, 3, 4.0)


@pytest.mark.parametrize("aggregator", ["gnmax", "confident-gnmax"])
def test_a_campaign_of_teachers_has_the_noise_of_its_setting(aggregator: str) -> None:
    setting: Setting = {"aggregator": aggregator, "teachers": 50, "noise": 0.5}
    made = votes.options_of_teachers(tiny(groups=True), setting, 2.0, 50)
    assert (made.aggregator, made.epsilon, made.delta, made.unit) == (
        aggregator,
        2.0,
        DELTA,
        "patient",
    )
    assert made.sigma2 == "25"
    assert made.sigma1 == (None if aggregator == "gnmax" else "79")


def test_little_epsilon_teaches_little() -> None:
    problem, method = tiny(), linear.METHODS[0]
    setting = method.settings(problem)[0]
    aucs = [
        measure.auc(method.fit(problem, setting, 1e-3, seed).test, problem.split.test.labels)
        for seed in range(8)
    ]
    assert min(aucs) < 0.5 < max(aucs)  # the seeds are fixed


def geometric_deviation(epsilon: float) -> float:
    """The standard deviation of two-sided geometric noise for an altered record, added up."""
    values = np.arange(-2_000, 2_001)
    law = np.exp(-epsilon / 2 * np.abs(values))
    return float(np.sqrt((law * values**2).sum() / law.sum()))


@pytest.mark.parametrize("ratio", [1, 6, 12])
def test_fewer_voters_stand_to_the_noise_as_all_records_do(ratio: int) -> None:
    found = votes.scaled(RECORDS, ratio)
    assert geometric_deviation(found.epsilon) == pytest.approx(geometric_deviation(0.5) / ratio)
    dense = RECORDS.with_code("dense-64")
    length = mu(0.5, dense.delta)
    spent = delta_from_epsilon(ratio * length, votes.scaled(dense, ratio).epsilon)
    assert spent == pytest.approx(dense.delta, rel=1e-6)


def test_a_trial_has_a_stated_law_of_noise() -> None:
    with pytest.raises(UsageError, match="law of the noise"):
        votes.scaled(replace(RECORDS, delta=1e-5, noise_law=None), 2)
    for row in ROWS.values():
        for code in row.tries:
            assert row.options is not None
            votes.scaled(row.options.with_code(code), 2)
