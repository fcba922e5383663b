"""benchmarks.versus: parts, calibration, methods on tiny data, and the page."""

from __future__ import annotations

import dataclasses
import subprocess
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from benchmarks import commit, dated, measure
from benchmarks.measure import Estimate
from benchmarks.papers.campaign import ensemble
from benchmarks.papers.split import Split
from benchmarks.versus import claims, page, record, run
from benchmarks.versus.calibrate import altered_epsilon, gaussian_multiplier, mu
from benchmarks.versus.choose import MOST_STEPS, beside, choose
from benchmarks.versus.method import DELTA, Cost, Fitted, Method, Setting, product
from benchmarks.versus.methods import linear, plain, taught, teachers
from benchmarks.versus.problem import LONGEST, Problem, problem_of
from benchmarks.versus.record import TITLES, Cell, Result
from benchmarks.versus.words import WORDS
from pate.accounting.gdp import delta_from_epsilon
from pate.codes import code_of
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, UsageError
from pate.runtime.screen import Screen

DOCS = Path(__file__).parents[2] / "docs"


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
    return problem_of("heart", "Tiny", split)


def test_validation_shares_no_unit_with_what_stays_public() -> None:
    problem = tiny(groups=True)
    spent, public = problem.validation, problem.split.public
    assert len(spent) + len(public) == 240
    assert len(spent) == 80
    assert spent.groups is not None
    assert public.groups is not None
    assert not set(spent.groups) & set(public.groups)


def test_a_rehearsal_has_validation_records_only() -> None:
    problem = tiny(groups=True)
    place = problem.rehearsal()
    assert len(place.split.private) == len(problem.split.private)
    assert place.split.private.groups is not None
    # A patient votes once, under a name of its own.
    assert len(set(place.split.private.groups)) == len(place.split.private)
    known = {name.partition("#")[0] for name in place.split.private.groups}
    assert problem.validation.groups is not None
    assert known < set(problem.validation.groups)
    assert place.validation.groups is not None
    assert not known & set(place.validation.groups)


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


@pytest.mark.parametrize("method", [*linear.METHODS, *plain.METHODS], ids=lambda one: one.name)
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


@pytest.mark.slow
def test_teachers_learn_what_is_there_to_learn_and_nothing_without_a_budget(tmp_path: Path) -> None:
    problem, method = tiny(), teachers.method(tmp_path, Screen("versus"))
    setting: Setting = {"aggregator": "gnmax", "teachers": 50, "noise": 0.16}
    made = method.fit(problem, setting, 50.0, 0)
    assert measure.accuracy(made.test, problem.split.test.labels) > 0.8
    assert made.cost.up > 0
    assert made.cost.seconds > 0
    untaught = method.fit(problem, setting, 1e-3, 0)
    assert np.ptp(untaught.test) == 0
    few: Setting = {**setting, "teachers": 400}
    assert np.ptp(method.fit(problem, few, 50.0, 0).test) == 0


def test_a_cost_is_the_largest_of_any_party_and_the_server_has_the_rest() -> None:
    found = Cost.of_parties([Cost(2, 10, 7, 1.5), Cost(3, 5, 9, 0.5)], 2.25)
    assert found == Cost(3, 10, 9, 1.5, 0.25)
    assert Cost.of_parties([Cost(1, 1, 1, 2.0)], 1.0).waiting == 0  # clocks of threads are coarse


def test_teachers_of_a_large_table_have_records_enough_for_a_kind_of_their_own() -> None:
    assert teachers.fewest(tiny()) == 6
    large = tiny()
    large.__dict__["units"] = 3_000
    assert teachers.fewest(large) == 60
    assert teachers.shares_of(large, 51, 0) == ()


@pytest.mark.slow
def test_teachers_answer_the_same_queries_once_and_others_anew(tmp_path: Path) -> None:
    problem = tiny()
    records, public = problem.split.private, problem.split.queries
    taught_ = ensemble(tmp_path / "party_0", records, 5, Screen("versus"))
    made = teachers.Remembering.of(taught_)
    first = made.vote(public, records.classes)
    first[:] = 0  # who asked may change what it got
    np.testing.assert_array_equal(
        made.vote(public, records.classes), taught_.vote(public, records.classes)
    )
    some = public.take(np.array([3, 1]))
    np.testing.assert_array_equal(
        made.vote(some, records.classes), taught_.vote(some, records.classes)
    )
    assert len(made.answered) == 2


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
def test_labels_of_a_private_model_teach_our_student() -> None:
    """Trials judge the model itself; what is reported is a student of its labels of public images only."""
    problem = problem_of("mnist", "Bars", Split(bars(40, 1), bars(150, 2), bars(100, 3), ""))
    asked = []

    def fit(place: Problem, _setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
        asked.append((place.split.test, seed))
        one = np.eye(2)
        return Fitted(
            one[place.validation.labels], one[place.split.test.labels], Cost(1, 2, 3, 4.0)
        )

    method = taught.method(Method(name="x", settings=lambda _: [{"rate": 1}], fit=fit))
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
    made = teachers.options_of(tiny(groups=True), setting, 2.0, 50)
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


def test_the_chooser_sees_validation_records_only() -> None:
    problem, seen = tiny(), []

    def fit(place: Problem, setting: object, _epsilon: float | None, _seed: int) -> Fitted:
        assert isinstance(setting, dict)
        seen.append(setting["good"])
        right = np.eye(2)[place.validation.labels]
        # What is good for the test records is bad for validation records.
        test = np.eye(2)[place.split.test.labels]
        cost = Cost(0, 0, 0, 0.0)
        return Fitted(right, 1 - test, cost) if setting["good"] else Fitted(1 - right, test, cost)

    method = Method(name="x", settings=lambda _: [{"good": 0}, {"good": 1}], fit=fit)
    chosen = choose(method, problem, 1.0, lambda _: None)
    assert chosen.setting == {"good": 1}
    assert chosen.figure == 1.0
    assert chosen.tried == 2
    assert len(seen) == 6


def test_the_chooser_goes_on_beyond_the_edge() -> None:
    problem, tried = tiny(), []

    def fit(place: Problem, setting: Setting, _epsilon: float | None, _seed: int) -> Fitted:
        tried.append(dict(setting))
        rate, good = float(setting["rate"]), setting["kind"] == "b"
        # Right for more of the records, the nearer the rate is to 16.
        right = np.arange(len(place.validation)) >= 8 * abs(np.log2(rate / 16)) + (0 if good else 9)
        scores = np.eye(2)[np.where(right, place.validation.labels, 1 - place.validation.labels)]
        return Fitted(scores, scores, Cost(0, 0, 0, 0.0))

    method = Method(
        name="x",
        settings=lambda _: product(kind=("a", "b"), rate=(0.25, 1.0), steps=(200,)),
        fit=fit,
        widens={"rate": 4, "steps": 4},
    )
    chosen = choose(method, problem, 1.0, lambda _: None)
    assert chosen.setting["rate"] == 16
    assert chosen.setting["kind"] == "b"
    assert {"kind": "b", "rate": 64.0, "steps": chosen.setting["steps"]} in tried
    assert chosen.tried == len({tuple(each.values()) for each in tried})
    # Time has its limit.
    assert max(int(each["steps"]) for each in tried) <= MOST_STEPS


def test_a_neighbour_is_a_setting_of_the_same_model() -> None:
    settings = [
        *product(model=("linear",), kind=("columns", "steps"), rate=(1.0,)),
        *product(model=("trees",), kind=("columns",), leaves=(8,)),
    ]
    method = Method(
        name="x", settings=lambda _: settings, fit=_never, widens={"rate": 4, "leaves": 2}
    )
    assert beside(settings, 0, method) == [
        {"model": "linear", "kind": "steps", "rate": 1.0},
        {"model": "linear", "kind": "columns", "rate": 0.25},
        {"model": "linear", "kind": "columns", "rate": 4.0},
    ]
    assert beside(settings, 2, method) == [
        {"model": "trees", "kind": "columns", "leaves": 4},
        {"model": "trees", "kind": "columns", "leaves": 16},
    ]


def _never(*_: object) -> Fitted:
    raise AssertionError


def test_auc_is_the_share_of_pairs_in_order() -> None:
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])
    labels = np.array([0, 1, 0, 1])
    assert measure.auc(scores, labels) == 0.75
    assert measure.accuracy(scores, labels) == 0.75


def test_an_interval_has_the_sampling_of_the_test_records() -> None:
    data = table(400, 5)
    random = np.random.default_rng(0)
    right = random.random(400) < 0.8
    scores = np.eye(2)[np.where(right, data.labels, 1 - data.labels)]
    found = measure.estimate(measure.accuracy, [scores] * 3, data)
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / 400)
    # The same model three times: dealings add nothing, and take nothing away.
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.2)
    other = np.eye(2)[np.where(random.random(400) < 0.7, data.labels, 1 - data.labels)]
    assert measure.estimate(measure.accuracy, [scores, other], data).low < found.low - half


def made(mean: float = 0.8) -> Result:
    figure = Estimate(mean, mean - 0.01, mean + 0.01, (mean, mean))
    return Result(
        name="heart",
        date="2026-11-23",
        sizes={
            "private": 9, "units": 9, "public": 8, "validation": 4, "test": 5, "parties": 4, "classes": 2,
        },
        unit="record",
        goal="accuracy",
        note="made up",
        majority=0.5,
        versions={"opacus": "1"},
        cells=tuple(
            Cell(
                method=name, epsilon=epsilon, delta=None if epsilon is None else DELTA, setting={"rate": 1},
                tried=2, validation=0.7, accuracy=figure, auc=figure, cost=Cost(2, 1000, 10, 1.0),
                commit="a" * 40,
            )
            for name, epsilon in (("ours", 1.0), ("pooled", None))
        ),
    )  # fmt: skip


def test_a_result_is_read_back_as_written(tmp_path: Path) -> None:
    dated.write(made(), tmp_path)
    assert record.latest(tmp_path) == {"heart": made()}


@pytest.mark.slow
def test_an_interrupted_run_goes_on_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = dataclasses.replace(tiny(), name="heart")
    versions = {each: metadata.version(each) for each in ("numpy", "torch")}
    monkeypatch.setattr(run, "_PACKAGES", tuple(versions))
    monkeypatch.setattr(run, "PROBLEMS", {"heart": lambda _work: problem})
    methods = {each.name: each for each in plain.METHODS}
    monkeypatch.setattr(run, "all_methods", lambda _work, _screen: methods)

    def go(*, go_on: bool = True) -> Result:
        run.run(
            "heart", methods=(), epsilons=(), dealings=1, work=tmp_path, out=tmp_path,
            screen=Screen("versus"), dirty=True, go_on=go_on,
        )  # fmt: skip
        return record.latest(tmp_path)["heart"]

    whole = go()
    (alone, pooled) = whole.cells
    # Of another day, and its second figure was not reached.
    earlier = dataclasses.replace(whole, date="2000-01-01", cells=(alone,))
    (tmp_path / whole.file).unlink()
    dated.write(earlier, tmp_path)
    later = go()
    assert (later.date, later.cells[0]) == ("2000-01-01", alone)
    assert [each.method for each in later.cells] == [alone.method, pooled.method]
    dated.write(dataclasses.replace(earlier, versions={"numpy": "1.0"}), tmp_path)
    with pytest.raises(UsageError, match=r"heart-2000-01-01\.json has other versions"):
        go()
    assert len(go(go_on=False).cells) == 2


def test_what_the_benchmark_writes_is_no_change_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    folder = tmp_path / "benchmarks" / "versus" / "results"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("1")
    git("init")
    git("add", "-A")
    git("commit", "-m", "a")
    monkeypatch.setattr(commit, "ROOT", tmp_path)
    (folder / "a.json").write_text("2")
    (tmp_path / "docs" / "images").mkdir(parents=True)
    (tmp_path / "docs" / "images" / "a.svg").write_text("3")
    assert not record.commit().endswith("+")
    (tmp_path / "benchmarks" / "a.py").write_text("4")
    assert record.commit().endswith("+")


def test_a_cell_takes_the_place_of_an_earlier_one() -> None:
    cell = dataclasses.replace(made().cells[0], tried=5)
    assert [each.tried for each in made().with_cell(cell).cells] == [2, 5]
    with pytest.raises(DataError, match="twice"):
        dataclasses.replace(made(), cells=(cell, cell))


def test_the_page_names_what_is_missing_and_who_is_better() -> None:
    worse = made()
    figure = Estimate(0.9, 0.89, 0.91, (0.9,))
    rival = dataclasses.replace(worse.cells[0], method="dp-sgd", accuracy=figure)
    pages = page.render({"heart": worse.with_cell(rival)})
    assert "| -10.0 (DP-SGD, pooled) |" in pages[page.PAGE]
    assert f"Not run yet: {TITLES['adult']}" in pages[page.PAGE]
    for text in pages.values():
        assert "80.0 (79.0 to 81.0)" in text
        assert "{" not in text


@pytest.mark.parametrize(("apart", "close"), [(0.013, True), (0.016, False)])
def test_a_difference_within_the_sampling_error_of_both_is_marked(
    apart: float, close: bool
) -> None:
    """Intervals of 0.01 to each side overlap up to 0.02, but differ from 0.0141 on."""
    mean = 0.8 - apart
    lower = Estimate(mean, mean - 0.01, mean + 0.01, (mean,))
    rival = dataclasses.replace(made().cells[0], method="dp-sgd", accuracy=lower)
    told = page.render({"heart": made().with_cell(rival)})[page.PAGE]
    assert ("~+" in told) == close


def test_what_has_no_model_has_no_figure() -> None:
    cell = dataclasses.replace(made().cells[0], method="teachers", cost=Cost(0, 0, 0, 0.0))
    text = page.render({"heart": made().with_cell(cell)})[page.TABLES]
    (line,) = [
        each for each in text.splitlines() if WORDS["teachers"].title in each and "no model" in each
    ][:1]
    assert "80.0" not in line


def cell_of(method: str, mean: float, epsilon: float | None = 1.0) -> Cell:
    figure = Estimate(mean, mean - 0.01, mean + 0.01, (mean,))
    return dataclasses.replace(made().cells[0], method=method, epsilon=epsilon, accuracy=figure)


@pytest.mark.parametrize(
    ("teachers_", "told"),
    [
        (0.79, "behind them in 1 of 1 comparisons"),
        (
            0.8,
            "0 of 1 comparisons, and level or ahead in the rest, nowhere beyond the sampling error",
        ),
        (0.9, "0 of 1 comparisons, and level or ahead in the rest, everywhere beyond"),
    ],
)
def test_sentences_on_teachers_follow_the_figures(teachers_: float, told: str) -> None:
    shown = made().with_cell(cell_of("teachers", teachers_))
    assert told in claims.behind([shown])
    assert told in page.render({"heart": shown})[page.PAGE]


def test_sentences_name_the_data_sets_that_they_hold_for() -> None:
    shown = made().with_cell(cell_of("fedavg-opacus", 0.9)).with_cell(cell_of("dp-sgd", 0.805))
    other = dataclasses.replace(
        made().with_cell(cell_of("fedavg-opacus", 0.79)).with_cell(cell_of("dp-sgd", 0.7)),
        name="ag-news",
    )
    assert claims.federated([shown, other]) == (
        "it is ahead of this project on Heart Disease, everywhere beyond the sampling error, "
        "and behind on AG News, nowhere beyond the sampling error"
    )
    # Of the best other method, on each data set.
    assert claims.ahead([shown, other], 1.0) == (
        "at epsilon 1 it is ahead on AG News, nowhere beyond the sampling error"
    )
    assert claims.ahead([shown], 1.0).startswith("at epsilon 1 it is ahead on none")


def test_a_party_alone_is_better_only_if_no_private_model_is_as_good() -> None:
    shown = made().with_cell(cell_of("alone", 0.85, None)).with_cell(cell_of("ours", 0.8, 0.1))
    assert "on Heart Disease a party's own model" in claims.alone([shown])
    assert "everywhere beyond" in claims.alone([shown])
    better = shown.with_cell(cell_of("dp-sgd", 0.86, 0.5))
    assert claims.alone([better]).startswith("on none ")
    near = shown.with_cell(cell_of("dp-sgd", 0.845, 0.5))
    assert "nowhere beyond" in claims.alone([near])


def test_what_protects_a_whole_party_is_no_rival() -> None:
    cell = dataclasses.replace(made().cells[0], method="fedavg-server-noise")
    assert WORDS["fedavg-server-noise"].whole
    assert claims.rivals(made().with_cell(cell), 1.0) == []
