"""Teachers' arrays in one release: what ships stands and is nearly reached, and bugs planted in it fall.

A party's own code trains the teachers of both files and casts their arrays; the noise is the shipped one.
Bits come from a seed, so nothing here fails by chance.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

from party.teachers import ensemble
from party.teachers.ensemble import Averaged
from pate.accounting import Adjacency
from pate.auditing import harness
from pate.auditing.harness import Audit
from pate.auditing.mechanism import audit_mechanism
from pate.auditing.neighbours import Pair
from pate.codes import GRID, Change, Code, code_of
from pate.data.values import Dataset, Table
from pate.features import dense
from pate.mechanisms import TeacherLabels
from pate.noise.exact import SystemNoise
from tests.support.audits import bugs
from tests.support.audits.bugs import Bug
from tests.support.audits.planting import plant, seed
from tests.support.needs import others_slow

CODE: Final = "axes-3"
CLASSES: Final = ("0", "1")
KEY: Final = b"audit"
#: Teachers of the party whose record is the unit.
TEACHERS: Final = 3
RUNS, DELTA, CONFIDENCE = 8_000, 1e-2, 0.999
#: Noise for the length of one array.
SIGMA: Final = Fraction(3, 2)
#: Two records that a weak slope parts, and what turns it: the place and the class of the unit.
PARTED: Final = ((0.49, 0), (0.51, 1))
TURNING: Final = ((0.4, 1), (-0.4, 0), (1.0, 0), (-1.0, 1))
#: Each two in a row have another slope than the next two.
ALTERNATE: Final = tuple((-0.3 + at / 10, at % 2) for at in range(6))


def table(places: Any) -> Table:
    return Table(("x",), (np.array(places, np.float64),))


PUBLIC: Final = table(np.linspace(-1, 1, 24))
ROWS: Final = (0, 9, 20)


def cast(records: Any, teachers: int) -> np.ndarray:
    """What a party's teachers cast."""
    places, labels = zip(*records, strict=True)
    own = Dataset(table(places), np.array(labels, np.int64), CLASSES)
    return Averaged(own, teachers, KEY).vote(PUBLIC, ROWS, CLASSES, code_of(CODE))


def pairs_of_a_record() -> tuple[Pair, ...]:
    """A record joins: the only teacher of a party of three, and one teacher of several."""
    made = []
    worlds = {"one": (PARTED, 1), "several": (PARTED, TEACHERS), "in a row": (ALTERNATE, TEACHERS)}
    for name, (rest, teachers) in worlds.items():
        before = cast(rest, teachers)
        joined = [cast((unit, *rest), teachers) for unit in TURNING]  # the first of the file
        after = max(joined, key=lambda each: int(np.square(each - before).sum()))
        made.append(Pair(after, before, None, name, of_records=True))
    return tuple(made)


def pairs_of_a_party() -> tuple[Pair, ...]:
    """A party of two teachers that agree leaves; without data a party casts nothing."""
    own = cast([(at / 20 - 1, int(at > 20)) for at in range(41)], 2)
    return (Pair(own, np.zeros_like(own), None, "a party leaves", of_records=True),)


def mechanism(adjacency: Adjacency) -> TeacherLabels:
    """With noise for the length of a teacher's array, of a party for that of both."""
    teachers = 2 if adjacency == "remove" else 1
    length = Fraction(2 * GRID if adjacency == "change" else teachers * GRID)
    return TeacherLabels(
        0, SIGMA * length / 2, votes_per_unit=teachers, code=CODE, adjacency=adjacency
    )


def audited(
    patch: pytest.MonkeyPatch,
    adjacency: Adjacency = "change",
    *,
    runs: int = RUNS,
    queries: int = 1,
) -> Audit:
    patch.setattr(harness, "CALLS", 1)
    seed(patch, f"{CODE} {adjacency}")
    return audit_mechanism(
        mechanism(adjacency), SystemNoise(), queries=queries, runs=runs, delta=DELTA,
        confidence=CONFIDENCE,
        pairs=pairs_of_a_record() if adjacency == "change" else pairs_of_a_party(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "adjacency", others_slow(["change", "remove"], lambda adjacency: adjacency == "change")
)
def test_arrays_stand_and_are_attacked(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = pairs_of_a_record() if adjacency == "change" else pairs_of_a_party()
    charged = code_of(CODE).change(mechanism(adjacency).votes_per_unit, adjacency)
    reached = [np.square(each.votes - each.neighbour).sum() / charged.squared for each in pairs]
    assert reached[0] >= 0.85
    assert max(reached) <= 1
    found = audited(monkeypatch, adjacency, runs=60_000)
    assert found.holds
    assert found.lower_bound > 0.7 * found.claimed


def not_cut(whole: Any) -> Any:
    """Half as long again."""
    made: np.ndarray = np.trunc(whole * GRID * 1.5).astype(np.int64)
    return made


def in_the_order_of_the_file(records: Any, _hashes: Any, teachers: int, _key: Any) -> Any:
    """Each teacher has as many records in a row; the last one the rest."""
    some = len(records) // teachers
    return np.split(np.arange(len(records)), [some * at for at in range(1, teachers)])


def all_records_in_each(records: Any, _hashes: Any, teachers: int, _key: Any) -> Any:
    return [np.arange(len(records))] * teachers


@pytest.mark.parametrize("adjacency", ["change", "remove"])
def test_arrays_that_are_too_long_are_found(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "cut", not_cut)
    assert not audited(monkeypatch, adjacency).holds


@pytest.mark.parametrize("bug", [in_the_order_of_the_file, all_records_in_each])
def test_a_record_that_reaches_other_teachers_is_found(
    bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble, "split", bug)
    found = audited(monkeypatch)
    assert not found.holds
    assert found.pair != "one"


@pytest.mark.parametrize(
    ("adjacency", "squared"),
    [("change", GRID**2), ("remove", 2 * GRID**2)],
    ids=["as if a record's array only left", "as if two teachers' arrays were apart"],
)
def test_a_charge_for_a_shorter_distance_is_found(
    adjacency: Adjacency, squared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Code, "change", lambda *_: Change(4 * GRID, squared, 6))
    assert not audited(monkeypatch, adjacency).holds


@pytest.mark.parametrize("bug", [bugs.SMALL, bugs.FREE, bugs.NO_NOISE], ids=lambda bug: bug.name)
def test_noise_and_charges_that_are_too_small_are_found(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, bug, mechanism("change"), counted=True)
    assert not audited(monkeypatch, queries=2).holds
