"""Neighbouring files of a party whose records vote, counted by the code with which a party counts.

Of all that a unit can change by its code and answer, these files change the most: a patient's records
move to the opposite side of the feature space, so to disjoint representatives, or in dense votes to
opposite directions, and say the same there with as much weight as an answer may have. The patient
has one record more than may vote, each with one label more than counts, or with a number beyond its
range. The other records are the same in both files; some are as near to one side as to the other.
Two pairs change less: one of several votes moves, which an even number of votes would hide; and the unit
that is the extreme of its party leaves records that lie in the middle, or in dense votes records that are
like no public row, so that the unit's arrays were the longest.

Of rounds one round is counted, in which a server shows the model that makes arrays the longest: it is
undecided everywhere, and cuts at the least length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from party.voting.neighbour import NeighbourVotes
from pate.answers import LABELS, NONE, NUMBER
from pate.auditing.neighbours import Pair
from pate.campaign.spec import MOST_VOTES
from pate.codes import DENSE
from pate.data.values import Dataset, Table
from pate.rounds.model import RoundModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.codes import Code
    from pate.votes import Counts

#: Records of others: a quarter on each side, half between them.
_OTHERS: Final = 15
#: How far off the unit is, in public spreads; features are cut nearer.
_FAR: Final = 100
#: The same for dense votes: what is far off is like no public row, on either side alike.
_AMONG: Final = 1
#: Places tried for the unit's records after the change: which labels count depends on the place.
_TRIED: Final = 32
#: The patient who is the unit, and the same one with other answers.
_UNIT, _OTHERWISE = -1, -2
_RANGE: Final = ("0", "14")
_KEY: Final = b"audit"


def record_pairs(code: Code, votes: int) -> tuple[Pair, ...]:
    """Return neighbours of the summed votes: a unit moves; it leaves; it says something else; and less.

    Files of the same records in another order are the same, so the unit is first in one and last in
    the other.

    ``code``: where records vote, and what they say.
    """
    dense = code.name == DENSE
    far, step = (_AMONG, 1 / 1024) if dense else (_FAR, 1)
    rest = _others(_FAR if dense else 0)
    if code.answer.in_rounds:  # all of one class, else residuals of both would cancel
        rest = [(2 * patient, place) for patient, place in rest]
    given = _counts(code, votes, _unit(votes, -far), _others())
    moved = max(
        (
            _counts(code, votes, _others(), _unit(votes, far + place * step))
            for place in range(_TRIED if code.answer.name == LABELS else 1)
        ),
        key=lambda other: int(np.square(other - given).sum()),
    )
    worlds = {
        "a unit moves to the opposite side": (given, moved),
        "a unit leaves": (given, _counts(code, votes, _others())),
        "a unit says something else": (
            given, _counts(code, votes, _others(), _unit(votes, -far, _OTHERWISE))
        ),
        "the extreme of the party leaves": (
            _counts(code, votes, _unit(votes, -far), rest), _counts(code, votes, rest)
        ),
    }  # fmt: skip
    if votes > 1:
        still = _unit(votes - 2, -far)
        worlds[f"one of {votes} votes moves"] = (
            _counts(code, votes, _unit(0, -far), still, _others()),
            _counts(code, votes, _others(), still, _unit(0, far)),
        )
    return tuple(
        Pair(here, there, None, name, of_records=True) for name, (here, there) in worlds.items()
    )


def _unit(votes: int, place: float, patient: int = _UNIT) -> list[tuple[int, float]]:
    """Return the patient and the place of each of the unit's records."""
    return [(patient, place)] * (votes + 1)


def _others(place: float | None = None) -> list[tuple[int, float]]:
    """Return the other records: on both sides and between them, or all at one place."""
    places = (-1.0, 0.0, 1.0, 0.0) if place is None else (place,)
    return [(at, places[at % len(places)]) for at in range(_OTHERS)]


def _counts(code: Code, votes: int, *parts: Sequence[tuple[int, float]]) -> Counts:
    """Return a party's votes, by its own code."""
    rows = [row for part in parts for row in part]
    columns, records = _records(code, rows)
    shown = None
    if code.answer.in_rounds:
        shown = RoundModel(np.zeros((code.places, len(columns)), np.int64), cut=1)
    return NeighbourVotes(records, _KEY).vote(
        _public(code),
        range(len(_public(code))),
        columns,
        votes_per_patient=votes,
        most_votes=MOST_VOTES,
        code=code,
        shown=shown,
    )


def _public(code: Code) -> Table:
    """Return the representatives: as many on one side as on the other."""
    many = code.places if code.name == DENSE else 2
    sides = [(1 + at // 2 / 1024) * (-1) ** (at + 1) for at in range(many)]
    return _table(sides)


def _table(places: Sequence[float]) -> Table:
    """Return rows of one number, their place."""
    return Table(("x",), (np.array(places, np.float64),))


def _records(code: Code, rows: Sequence[tuple[int, float]]) -> tuple[tuple[str, ...], Dataset]:
    """Return the campaign's columns, and the records with as much of an answer as may be."""
    inputs = _table([place for _, place in rows])
    patients = np.array([patient for patient, _ in rows])
    unit, groups = patients == _UNIT, patients.astype(np.str_)
    nothing = np.zeros(len(rows), np.int64)
    if code.answer.permission == LABELS:
        names = tuple(f"label {at}" for at in range(code.answer.most + 1))
        some = (patients[:, None] % 2 == np.arange(len(names)) % 2) & (patients >= 0)[:, None]
        return (*names, NONE), Dataset(inputs, nothing, names, groups, some | unit[:, None])
    if code.answer.name == NUMBER:
        numbers = np.select([unit, patients == _OTHERWISE], [-1e9, 1e9], patients % 20.0)
        return _RANGE, Dataset(inputs, nothing, (), groups, numbers)
    classes = ("0", "1")
    said = np.select([unit, patients == _OTHERWISE], [0, 1], patients % 2)
    return classes, Dataset(inputs, said, classes, groups)
