"""Records that vote, by each code and answer: what ships stands, and bugs planted in it fall.

The worlds are counted by the party's own code, and the noise is the shipped one. Bits come from a seed,
so nothing here fails by chance.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from party.voting import neighbour as voting
from pate.answers import Answer, answer_of, of_labels
from pate.auditing import harness
from pate.auditing.harness import Audit
from pate.auditing.mechanism import audit_mechanism, claimed
from pate.auditing.neighbours import Pair
from pate.codes import GRID, Change, Code, code_of
from pate.errors import DataError, UsageError
from pate.features.dense import Directions
from pate.features.neighbours import cast_votes, voters_of
from pate.mechanisms import Neighbour
from pate.noise import NoiseLawName
from pate.noise.exact import SystemNoise
from pate.rounds.model import RoundModel
from pate.rounds.record_array import residual_sums
from simulation.audit.options import AuditOptions
from simulation.audit.records import record_pairs
from simulation.audit.run import mechanism_of
from tests.support.audits import bugs
from tests.support.audits.bugs import Bug
from tests.support.audits.count_laws import count_laws
from tests.support.audits.foretold import foresee
from tests.support.audits.planting import plant, seed
from tests.support.audits.power import level_events, reached
from tests.support.needs import others_slow

#: An audit has 100,000 runs: a planted bug is found with far fewer. What Gaussian noise is claimed for, and
#: geometric.
RUNS, CONFIDENCE = 8_000, 0.999
DELTAS: dict[NoiseLawName, float] = {"gaussian": 1e-2, "geometric": 1e-6}
CODES = ("nearest", "dense-2")
ANSWERS = ("class", "labels-2", "ordered", "number")
LAWS = tuple(DELTAS)


def of_records(code: str, answer: str | None, law: NoiseLawName, votes: int = 2) -> Neighbour:
    """The mechanism of ``pate audit`` with the default noise."""
    options = AuditOptions(
        mechanism="neighbour", code=code, answer=answer, noise_law=law, votes_per_unit=votes
    )
    mechanism = mechanism_of("neighbour", options)
    assert isinstance(mechanism, Neighbour)
    return mechanism


def audited(
    patch: pytest.MonkeyPatch,
    code: str,
    answer: str = "class",
    law: NoiseLawName = "gaussian",
    *,
    runs: int = RUNS,
    votes: int = 2,
    queries: int = 1,
) -> Audit:
    """Attack a code and an answer with the defaults of ``pate audit``, but for the number of runs."""
    mechanism = of_records(code, answer, law, votes)
    patch.setattr(harness, "CALLS", 1)
    seed(patch, f"{code} {answer} {law}")
    return audit_mechanism(
        mechanism,
        SystemNoise(),
        queries=queries,
        runs=runs,
        delta=DELTAS[law],
        confidence=CONFIDENCE,
        pairs=record_pairs(code_of(mechanism.code), votes),
    )


@pytest.mark.parametrize(
    ("code", "answer", "law"),
    others_slow(
        product(CODES, ANSWERS, LAWS),
        # Each code with each answer, by the one law or the other.
        [
            (code, answer, LAWS[(at + by) % 2])
            for at, code in enumerate(CODES)
            for by, answer in enumerate(ANSWERS)
        ].__contains__,
    ),
)
def test_what_ships_stands(
    code: str, answer: str, law: NoiseLawName, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = audited(monkeypatch, code, answer, law, runs=1_000)
    assert found.holds
    # Events of eight counts with geometric noise are rare.
    assert found.lower_bound > 0.1 * found.claimed
    assert found.subject == f"neighbour {code}" + ("" if answer == "class" else f" {answer}")
    if law == "geometric":
        assert (found.claimed, found.mu_claimed) == (2.0, None)


# --- rounds ---------------------------------------------------------------------------------------


def test_residuals_stand_and_are_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the model that makes arrays the longest, which a server may show."""
    for answer in ("residual", "residual-labels"):
        claimed_change = code_of(f"dense-2 {answer}").change(1)
        altered, gone, other, *_ = record_pairs(code_of(f"dense-2 {answer}"), 1)
        for pair, least, most in ((altered, 0.88, 1), (gone, 0.245, 0.25), (other, 0.98, 1)):
            changed = np.square(pair.votes - pair.neighbour).sum()
            assert least <= changed / claimed_change.squared <= most
    found = audited(monkeypatch, "dense-2", "residual", runs=60_000, votes=1)
    assert found.holds
    assert found.lower_bound > 0.7 * found.claimed


def cut_by_its_own_records(codes: Any, labels: Any, classes: int, shown: Any, units: Any) -> Any:
    """At the greatest length of the party's arrays, where the model is undecided."""
    longest = float(np.square(codes).sum(axis=1).max() / 2) ** 0.5
    return residual_sums(codes, labels, classes, RoundModel(shown.weights, int(longest)), units)


def patient_by_record(codes: Any, labels: Any, classes: int, shown: Any, _units: Any) -> Any:
    """Each record is cut by itself, and a patient's sum is not."""
    return residual_sums(codes, labels, classes, shown)


def centred_on_the_party(codes: Any, labels: Any, classes: int, shown: Any, units: Any) -> Any:
    """Less half of the mean of the party's records."""
    moved = codes - np.trunc(codes.mean(axis=0) / 2).astype(np.int64)
    long = np.square(moved).sum(axis=1) > GRID**2
    return residual_sums(np.where(long[:, None], codes, moved), labels, classes, shown, units)


@pytest.mark.parametrize(
    ("bug", "answer"),
    [
        (cut_by_its_own_records, "residual"),
        (patient_by_record, "residual"),
        (patient_by_record, "residual-labels"),
        (centred_on_the_party, "residual"),
    ],
)
def test_residuals_that_are_not_the_units_own_are_found(
    bug: Any, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting, "residual_sums", bug)
    assert not audited(monkeypatch, "dense-2", answer, votes=1).holds


@pytest.mark.parametrize("bug", [bugs.SMALL, bugs.FREE, bugs.NO_NOISE], ids=lambda bug: bug.name)
def test_rounds_with_too_little_noise_and_rounds_that_are_not_charged_are_found(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = of_records("dense-2", "residual", "gaussian", 1)
    plant(monkeypatch, bug, mechanism, counted=True)
    assert not audited(monkeypatch, "dense-2", "residual", votes=1, queries=2).holds


@pytest.mark.parametrize("votes", [1, 2])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("code", CODES)
def test_the_worlds_change_by_all_that_is_charged(code: str, answer: str, votes: int) -> None:
    """By what a party counts: dense votes by less, for no two records of a table are wholly unlike."""
    made = code_of(code if answer == "class" else f"{code} {answer}")
    claimed_change = made.change(votes)
    altered, gone, *_ = (pair.votes - pair.neighbour for pair in record_pairs(made, votes))
    dense = made.name == "dense"
    assert (0.88 if dense else 1.0) <= np.square(altered).sum() / claimed_change.squared <= 1
    assert (0.94 if dense else 1.0) <= np.abs(altered).sum() / claimed_change.total <= 1
    assert np.abs(gone).sum() <= claimed_change.total // 2


def centred(self: Directions, points: Any, codes: Any = Directions.codes) -> Any:
    """By the party's own records in place of the representatives."""
    return codes(self, (points - points.mean(axis=0) + self.middle).astype(np.float32))


def by_place_in_file(
    queries: Any, records: Any, labels: Any, classes: int, **others: Any
) -> np.ndarray:
    """Of two that are equally near the first is taken, or for every second record the last."""
    forward = cast_votes(queries, records[::2], labels[::2], classes, **others)
    turned = cast_votes(queries[::-1], records[1::2], labels[1::2], classes, **others)
    return forward + turned[::-1]


def with_the_most(
    queries: Any, records: Any, labels: Any, classes: int, **others: Any
) -> np.ndarray:
    """Of two that are equally near the one is taken that the other records are at."""
    sure = records[:, 0] != 0
    clear = cast_votes(queries, records[sure], labels[sure], classes, **others)
    turned = slice(None, None, -1 if clear[-1].sum() > clear[0].sum() else 1)
    tied = cast_votes(queries[turned], records[~sure], labels[~sure], classes, **others)
    return clear + tied[turned]


def one_vote_more(groups: Any, hashes: Any, cap: int, key: bytes) -> Any:
    return voters_of(groups, hashes, cap + 1, key)


def all_labels(
    flags: Any, names: Any, columns: Any, most: int, hashes: Any, key: bytes
) -> np.ndarray:
    every = of_labels(flags, names, columns, len(names), hashes, key)
    return every * most // len(names)


def longer(self: Directions, points: Any, codes: Any = Directions.codes) -> Any:
    return codes(self, points) * 3 // 2


def as_long_as_the_longest(self: Directions, points: Any, codes: Any = Directions.codes) -> Any:
    """Scaled so that the longest array of the party has the whole length."""
    made = codes(self, points)
    longest = np.sqrt(np.square(made).sum(axis=1).max(initial=1))
    return np.trunc(made * (GRID / longest)).astype(np.int64)


def cap_of_the_party(groups: Any, _hashes: Any, cap: int, _key: bytes) -> Any:
    """As many records of the party as its patients may have together."""
    return np.arange(min(len(groups), cap * len(set(groups.tolist()))), dtype=np.int64)


#: In which module what becomes what; the code that shows it, votes of a unit, and the pair that does.
PLANTED: dict[str, tuple[Any, str, Any, str, int, str | None]] = {
    "arrays in proportion to the longest": (
        Directions, "codes", as_long_as_the_longest, "dense-2", 2, "the extreme of the party leaves"
    ),
    "a code that depends on other records": (Directions, "codes", centred, "dense-2", 2, None),
    "a cap over all patients of a party": (
        voting, "voters_of", cap_of_the_party, "nearest", 2, None
    ),
    # One vote, so that the places of all others change from even to odd.
    "ties that the place in the file breaks": (
        voting, "cast_votes", by_place_in_file, "nearest", 1, None
    ),
    "ties that the most records break": (voting, "cast_votes", with_the_most, "nearest", 1, None),
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bug", PLANTED)
def test_what_depends_on_other_records_is_found(
    bug: str, law: NoiseLawName, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name, made, code, votes, pair = PLANTED[bug]
    monkeypatch.setattr(place, name, made)
    found = audited(monkeypatch, code, law=law, votes=votes)
    assert not found.holds
    assert pair in (None, found.pair)


@pytest.mark.parametrize("law", LAWS)
def test_noise_that_is_always_even_is_found_by_one_vote_of_two(
    law: NoiseLawName, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bugs.EVEN, of_records("nearest", None, law), counted=True)
    found = audited(monkeypatch, "nearest", law=law)
    assert not found.holds
    assert found.pair == "one of 2 votes moves"


@pytest.mark.parametrize(
    ("code", "answer", "law"),
    others_slow(
        [*product(CODES, ("class", "number"), LAWS), ("nearest", "labels-2", "gaussian")],
        [
            ("nearest", "class", "geometric"), ("dense-2", "number", "gaussian"),
            ("nearest", "labels-2", "gaussian"),
        ].__contains__,
    ),
)  # fmt: skip
def test_a_patient_who_votes_once_too_often_is_found(
    code: str, answer: str, law: NoiseLawName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting, "voters_of", one_vote_more)
    # In kernel features a number's array reaches less of the bound of geometric noise: more runs.
    runs = RUNS if answer == "labels-2" else 4 * RUNS
    assert not audited(monkeypatch, code, answer, law, runs=runs).holds


@pytest.mark.parametrize("code", others_slow(CODES, lambda code: code == "nearest"))
def test_labels_beyond_those_that_count_are_refused_and_if_not_found(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voting, "of_labels", all_labels)
    with pytest.raises(DataError, match="more than the answer labels-2 allows"):
        record_pairs(code_of(f"{code} labels-2"), 2)
    monkeypatch.setattr(Answer, "check", lambda *_: None)
    # Three labels in place of two, so half as much again: a small bug needs more runs.
    assert not audited(monkeypatch, code, "labels-2", runs=100_000).holds


def test_a_dense_array_that_is_too_long_is_refused_and_if_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit = Directions.fit

    def wide(points: Any, public: Any = None) -> Directions:
        made = fit(points, public)
        return Directions(made.middle, made.reach, made.constant, made.basis * 1.5)

    with monkeypatch.context() as patch:
        patch.setattr(Directions, "fit", wide)
        with pytest.raises(DataError, match="longer than its code allows"):
            record_pairs(code_of("dense-2"), 2)
    monkeypatch.setattr(Directions, "codes", longer)
    largest = np.square(record_pairs(code_of("dense-2"), 1)[1].votes.sum(axis=1)).sum()
    assert largest > GRID**2
    assert not audited(monkeypatch, "dense-2").holds


def test_a_code_that_is_charged_as_nearest_votes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise for one count of one vote, in the units of the code."""
    grid = code_of("dense-2").grid
    monkeypatch.setattr(Code, "change", lambda *_: Change(4 * grid, 8 * grid**2, 4))
    assert not audited(monkeypatch, "dense-2").holds


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("bug", [bugs.SMALL, bugs.FREE, bugs.NO_NOISE], ids=lambda bug: bug.name)
def test_noise_and_charges_that_are_too_small_are_found(
    code: str, bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bug, of_records(code, None, "gaussian"), counted=True)
    assert not audited(monkeypatch, code, queries=2).holds


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("answer", [None, "labels-2", "number"])
def test_a_release_is_attacked_to_seven_tenths_of_its_claim(
    answer: str | None, law: NoiseLawName
) -> None:
    """With the default runs, but with probability 1e-6: the honest code, and the exact laws of it."""
    mechanism = of_records("nearest", answer, law)
    claim = claimed(mechanism, 1, DELTAS[law])
    pair, *_ = record_pairs(code_of(mechanism.code), 2)
    made = count_laws(mechanism, pair, 1, Bug("none"))
    best = made[0] if law == "gaussian" else made[-1]
    doubt = 0.0009 if claim.mu is None else 0.00045
    epsilon, _ = reached(level_events(best), 100_000, claim, doubt)
    assert 0.7 * claim.epsilon <= epsilon.max() <= claim.epsilon


def test_what_an_audit_of_nearest_votes_would_see_is_foretold() -> None:
    pairs = record_pairs(code_of("nearest"), 2)
    mechanism = of_records("nearest", None, "gaussian")
    said = foresee(mechanism, 2, 100_000, 1e-2, CONFIDENCE, 2, pairs=pairs)
    assert [each.bug for each in said if not each.seen] == []
    # No vote goes from class to class in the first pair.
    assert {each.bug: each.pair for each in said}[
        bugs.ONE_DRAW.name
    ] == "a unit says something else"


def test_options_of_records_are_for_records() -> None:
    with pytest.raises(UsageError, match="--code has no meaning for gnmax"):
        AuditOptions(mechanism="gnmax", code="nearest")
    with pytest.raises(UsageError, match="state --mechanism"):
        AuditOptions(answer="number")
    with pytest.raises(UsageError, match="a unit casts one array"):
        of_records("dense-2", "residual", "gaussian", 2)
    for wrong in (
        {"sigma2": "3", "noise_law": "geometric"},
        {"scale": "3", "noise_law": "gaussian"},
    ):
        with pytest.raises(UsageError, match="another parameter"):
            mechanism_of("neighbour", AuditOptions(mechanism="neighbour", **wrong))  # type: ignore[arg-type]
    for wrong_code in ("far", "dense", "nearest-2"):
        with pytest.raises(UsageError, match="a code is nearest"):
            mechanism_of("neighbour", AuditOptions(mechanism="neighbour", code=wrong_code))
    with pytest.raises(UsageError, match="same number of votes"):
        Pair(np.array([[1, 2]]), np.array([[1, 1]]))


def test_an_answer_is_checked_in_whole_numbers() -> None:
    for text, right, wrong in (
        ("labels-2", [[2, 0, 2], [0, 0, 2]], [[2, 2, 2]]),
        ("number", [[64, 0], [1, 63]], [[64, 1]]),
        ("number", [[0, 64]], [[65, -1]]),
        ("class", [[0, 1]], [[1, 1]]),
    ):
        answer = answer_of(text)
        answer.check(np.array(right))
        with pytest.raises(DataError, match="more than the answer"):
            answer.check(np.array(wrong))
