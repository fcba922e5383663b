"""Terms that do not fit together, and whatever else a lying server sends."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from party.ledger import entries, state
from party.voting import site
from pate.accounting.events import GatedBatch
from pate.codes import GRID
from pate.errors import ProtocolError
from pate.mechanisms import (
    DistributedGNMax,
    DistributedNeighbour,
    GNMax,
    Mechanism,
    Neighbour,
    TeacherLabels,
)
from tests.party.voting.test_neighbour_voter import (
    CLASSES,
    COLUMNS,
    DENSE,
    MOST,
    ONE,
    PUBLIC,
    of_patients,
)
from tests.support.campaign_messages import campaign_message, terms_message
from tests.support.needs import others_slow
from tests.support.party.hostile import KINDS, Hostile, noted

#: With every change; with all tests more.
FEW = 2
WORLDS = int(os.environ.get("PATE_HISTORIES", "14"))
#: Of each world: histories, and things that happen in each.
HISTORIES, STEPS = 6, 14
#: Worlds in which a rule that was taken out must be missed.
TRIED = 40


def played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kinds: Sequence[str] = KINDS
) -> Counter[str]:
    """Play the histories of a world, check what came of them, and return what was answered."""
    root = tmp_path / str(seed)
    with noted(monkeypatch) as secrets:
        world = Hostile(root, seed, secrets, kinds)
        for _ in range(HISTORIES):
            world.play(STEPS)
        world.check()
    shutil.rmtree(root)
    return world.outcomes + Counter(unmasked=len(world.released()))


@pytest.mark.parametrize(
    "seeds",
    others_slow((range(FEW), range(FEW, WORLDS)), lambda seeds: seeds == range(FEW)),
    ids=len,
)
def test_no_request_gets_more_than_is_charged_or_a_sum_of_too_few(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    seeds: range,
) -> None:
    outcomes = Counter[str]()
    for seed in seeds:
        outcomes += played(tmp_path, monkeypatch, seed)
    record_property("counts", f"{len(seeds) * HISTORIES} histories: {dict(outcomes)}")
    # One in which nothing left says nothing.
    assert min(outcomes["masked"], outcomes["masked_ahead"], outcomes["opening"]) >= len(seeds)
    assert outcomes["refusal"] > len(seeds) * HISTORIES


def uncharged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.Site, "answer", lambda *_: None)


def any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.Campaign, "_check_round", lambda *_: None)


def any_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (
        (entries, "check_unmasking"), (entries, "check_exact"),
        (state.Campaign, "check_unmasking"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, lambda *_, **__: None)


@pytest.mark.parametrize(
    # The first is one that finds it, as things are, so that few are played.
    ("without", "kind", "first", "why"),
    [
        (uncharged, "noisy", 0, "uncharged"),
        (any_round, "rounds", 3, "twice in a round"),
        (any_survivors, "exact", 0, "votes on"),
    ],
)
def test_without_one_of_the_rules_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: Any, kind: str, first: int, why: str
) -> None:
    without(monkeypatch)
    for seed in range(first, first + TRIED):
        try:
            played(tmp_path, monkeypatch, seed, (kind,))
        except AssertionError as error:
            assert why in str(error)  # noqa: PT017
            return
    pytest.fail(f"{TRIED} worlds, and nothing is found")


GN = GNMax(Fraction(40), 1)
GEOMETRIC = Neighbour(3, votes_per_unit=1, scale=Fraction(20))
PURE = {"composition": "pure", "cap": "1/10", "epsilon": 0.1, "delta": 0.0}
LABELS = TeacherLabels(0, Fraction(60), 1, code="each-4 labels-2-of-3")
TEACHERS = {
    "aggregator": "gnmax", "code": LABELS.code, "classes": ("a", "b", "c"), "most": 3, "most_votes": 0,
}  # fmt: skip

#: Of records: mechanisms, and what else is changed.
OF_RECORDS: list[tuple[Mechanism | list[Mechanism], dict[str, Any], str]] = [
    (GN, {}, ""),
    ([ONE, GN], {}, ""),
    (ONE, {"aggregator": "gnmax"}, ""),
    (ONE, {"aggregator": "gnmax", "most_votes": 0}, ""),
    (GN, {"aggregator": "gnmax", "most_votes": MOST}, ""),
    (GN, {"aggregator": "gnmax", "most_votes": 0, "delta": 0.0}, "delta 0 is for neighbour votes"),
    (ONE, {"most_votes": 0}, ""),
    (ONE, {"most_votes": MOST - 1}, ""),
    (ONE, {"most_votes": 2**31}, ""),
    (ONE, {"unit": "party"}, ""),
    (ONE, {"rounds": 2}, ""),
    (ONE, {"vote_proofs": True, "aggregation": "masked"}, ""),
    (ONE, {"noise": "distributed", "aggregation": "masked"}, ""),
    (DistributedNeighbour(3, Fraction(40), 1, 1), {}, ""),
    (DistributedGNMax(Fraction(20), 2, 1), {"noise": "distributed", "aggregation": "masked"}, ""),
    # The own figure is at most the cap, so it would be too little for what is asked for.
    (of_patients(4), {"unit": "patient"}, "costs more than the campaign's cap"),
    (of_patients(1000), {"unit": "patient"}, "costs more than the campaign's cap"),
    # What is charged is the code that records vote by.
    (ONE, {"code": "dense-4"}, "records vote by the code"),
    (DENSE, {"code": ""}, "records vote by the code"),
    (DENSE, {"code": "dense-3"}, "records vote by the code"),
    *((ONE, {"code": code}, r"a code|announced\.code") for code in ("nearest", "far", "dense-1")),
    # Pure epsilon is of geometric noise, at its own cost.
    (ONE, PURE, ""),
    (ONE, PURE | {"composition": "gdp"}, ""),
    (GEOMETRIC, PURE | {"delta": 1e-5}, ""),
    (GEOMETRIC, PURE | {"composition": "zcdp"}, ""),
    (GEOMETRIC, PURE | {"composition": "gdp"}, ""),
    (GEOMETRIC, PURE | {"cap": "1/11"}, ""),
    (Neighbour(3, votes_per_unit=1, scale=Fraction(19)), PURE, ""),
]  # fmt: skip
#: Of teachers that vote for several labels.
OF_LABELS: list[tuple[Mechanism, dict[str, Any], str]] = [
    (LABELS, {"code": "each-4 labels-2-of-4"}, "class list"),
    (LABELS, {"classes": ()}, "--classes"),
    (LABELS, {"classes": ("a", "none", "c")}, "class list"),
    (LABELS, {"aggregator": "confident-gnmax"}, "do not vote by the code"),
    (LABELS, {"aggregator": "neighbour", "most_votes": 3}, "records do not vote by the code"),
    (LABELS, {"code": "nearest labels-2"}, "do not vote by the code"),
    (LABELS, {"code": "dense-4"}, "do not vote by the code"),
    (LABELS, {"rounds": 2}, "one round"),
    (LABELS, {"code": ""}, "not for votes of teachers"),
    (LABELS, {"code": "each-4 labels-3-of-3"}, "teachers vote by the code"),
    (LABELS, {"code": "each-3 labels-2-of-3"}, "teachers vote by the code"),
    (GN, {}, "votes of teachers in one release"),
    (Neighbour(2, Fraction(60), 1, code=LABELS.code), {}, "votes of teachers in one release"),
]
#: Answers that no server asks records for: a code, and its columns.
ANSWERS: list[tuple[str, tuple[str, ...]]] = [
    ("nearest poem", CLASSES),
    ("nearest class", CLASSES),
    ("nearest labels-0", COLUMNS),
    ("nearest labels-65", COLUMNS),
    ("nearest labels-2", ("u", "none")),
    ("nearest labels-3", ("u", "v", "none")),
    ("nearest labels-2", ("u", "v", "w")),
    ("nearest labels-2", (*(f"label {at}" for at in range(10_000)), "none")),
    ("nearest number", ("5", "5")),
    ("nearest number", ("10", "0")),
    ("nearest number", ("nan", "1")),
    ("nearest number", ("0", "1e309")),
    ("nearest number", ("-1e308", "1e308")),
    ("nearest number", ("0", "5", "5", "10")),
    ("nearest number", tuple(map(str, range(65)))),
    ("nearest ordered", ()),
    ("dense-1025 number", ("0", "10")),
]


def refused(mechanisms: Any, changes: dict[str, Any], why: str = "") -> None:
    """Check that no campaign is read from these terms, whether its roster is known or not."""
    fields: dict[str, Any] = {
        "aggregator": "neighbour", "most": MOST, "classes": CLASSES, "composition": "gdp",
        "cap": "1/100", **changes,
    }  # fmt: skip
    most = fields.pop("most")
    member = ("a", b"k" * 32, most)
    each = mechanisms if isinstance(mechanisms, list) else [mechanisms]
    terms = terms_message([member], each, fields.pop("composition"), fields.pop("cap"))
    campaign = campaign_message(PUBLIC, terms, **{"most_votes": most} | fields)
    with pytest.raises(ProtocolError, match=why or None):
        campaign.offer()


def test_terms_that_do_not_fit_together_are_no_campaign() -> None:
    for row in OF_RECORDS:
        refused(*row)
    for mechanism, changes, why in OF_LABELS:
        refused(mechanism, TEACHERS | changes, why)


def test_an_answer_that_no_server_asks_for_is_no_campaign() -> None:
    for code, columns in ANSWERS:
        refused(ONE, {"code": code, "classes": columns})
        campaign = campaign_message(
            PUBLIC, aggregator="neighbour", most_votes=MOST, code=code, classes=columns
        )
        with pytest.raises(ProtocolError):
            campaign.offer()
    teachers = campaign_message(PUBLIC, aggregator="gnmax", code="dense-4", classes=CLASSES)
    with pytest.raises(ProtocolError, match="teachers do not vote by the code dense-4"):
        teachers.offer()
    wide = Neighbour(3, Fraction(88 * GRID), 1, code="dense-4")
    assert campaign_message(
        PUBLIC, terms_message([("a", b"k" * 32, MOST)], [wide]), aggregator="neighbour",
        most_votes=MOST, code="dense-4", classes=CLASSES,
    ).offer()  # fmt: skip


def test_a_gate_in_front_of_neighbour_votes_is_refused() -> None:
    """It would count as what was announced, whatever the noise; there is nothing to gate."""
    terms = terms_message([("a", b"k" * 32, MOST)], [ONE], composition="gate")
    terms.gate = GatedBatch(Fraction(10), Fraction(17, 20), Fraction(3, 20), Fraction(1, 100_000))
    campaign = campaign_message(
        PUBLIC, terms, aggregator="neighbour", most_votes=MOST, classes=CLASSES
    )
    with pytest.raises(ProtocolError, match="cannot be gated"):
        campaign.offer()
