"""The texts of mechanisms and of their events: ledgers store them and terms are signed, so none may change.

texts.txt has one mechanism a line, with the events of its most expensive outcome.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

from pate.mechanisms import (
    MECHANISMS,
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedNeighbour,
    DistributedTeacherLabels,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
    Neighbour,
    TeacherLabels,
    mechanism_from_dict,
)

F = Fraction
TEXTS = Path(__file__).with_name("texts.txt").read_text().splitlines()
#: Those of the lines of texts.txt, in order.
MADE: tuple[Mechanism, ...] = (
    LNMax(F(20), 1),
    LNMax(F(5, 64), 3),
    GNMax(F(40), 1),
    GNMax(F(129, 64), 250),
    ConfidentGNMax(200, F(150), F(40), 1),
    ConfidentGNMax(-3, F(1, 3), F(7, 2), 2),
    InteractiveGNMax(5, F(150), F(40), F(3, 5), 1),
    InteractiveGNMax(0, F(9), F(5, 2), F(0), 4),
    DistributedGNMax(F(10), 16, 1),
    DistributedConfidentGNMax(10, F(661, 64), 15, 2),
    DistributedInteractiveGNMax(5, F(10), 16, F(3, 5), 1),
    Neighbour(3, F(40), 1),
    Neighbour(114, votes_per_unit=2, scale=F(20)),
    Neighbour(0, F(87, 2), 1, code="dense-64"),
    DistributedNeighbour(3, F(10), 4, 1),
    DistributedNeighbour(80, None, 3, 1, F(20)),
    TeacherLabels(0, F(40), 1, code="each-100 labels-14-of-14"),
    DistributedTeacherLabels(0, F(21, 2), 4, 2, code="each-100 labels-14-of-14"),
    TeacherLabels(80, F(40), 1, code="each-100"),
    DistributedTeacherLabels(0, F(2500), 4, 2, code="axes-32", adjacency="remove"),
)


def test_texts_are_what_they_were() -> None:
    assert {mechanism.name for mechanism in MADE} == set(MECHANISMS)
    for mechanism, line in zip(MADE, TEXTS, strict=True):
        stored = (mechanism, *mechanism.worst)
        assert " | ".join(json.dumps(each.to_dict()) for each in stored) == line
        assert mechanism_from_dict(json.loads(line.split(" | ")[0])) == mechanism
