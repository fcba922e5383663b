"""A mechanism in words contains everything in its text form."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from fractions import Fraction

import pytest

from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import adjacency_of, code_of_statement
from pate.mechanisms import MECHANISMS, MatrixMechanism, Mechanism, Neighbour
from pate.mechanisms.matrix import DistributedTeacherLabels, TeacherLabels

#: A figure for each parameter that a mechanism of ours may have; no two are alike.
FIGURES: dict[str, int | Fraction | str] = {
    "threshold": 45, "sigma": Fraction(15, 2), "sigma1": Fraction(31), "sigma2": Fraction(11),
    "scale": Fraction(20), "share": Fraction(241, 64), "honest": 3, "votes_per_unit": 6,
    "confidence": Fraction(7, 8), "code": "dense-7", "adjacency": "change",
}  # fmt: skip
#: Teachers with several labels: no query gets one label, and the noise is Gaussian.
SEVERAL: dict[str, int | Fraction | str] = {"threshold": 0, "code": "each-7 labels-2-of-3"}
SHOWN = {"code": "7", "sigma": "7.5", "share": "3.765625", "confidence": "87.5 %"}


def of_kind(kind: type[Mechanism]) -> list[Mechanism]:
    """A mechanism of that kind; of neighbour votes one for each law of their noise."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    laws = names & {"sigma", "share", "scale"}
    each = laws if issubclass(kind, MatrixMechanism) else {""}
    figures = FIGURES
    if issubclass(kind, TeacherLabels | DistributedTeacherLabels):
        figures, each = FIGURES | SEVERAL, laws - {"scale"}
    return [
        kind(**{name: figures[name] for name in names - (laws - {law} if law else set())})
        for law in sorted(each)
    ]


@pytest.mark.parametrize(
    "mechanism", [each for kind in MECHANISMS.values() for each in of_kind(kind)], ids=str
)
def test_every_mechanism_has_words_with_all_its_figures(mechanism: Mechanism) -> None:
    text = mechanism.to_dict()
    words = mechanism_in_words(text)
    for name, value in text.items():
        if name != "mechanism" and (name, value) != ("threshold", 0):
            figure = SHOWN.get(name, str(FIGURES[name]))
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", words), (name, words)
    assert "_" not in words
    assert "/" not in words.replace("1/1024", "")


ROUND = "in each round it casts one array of at most one vote's length"
#: By code: what is said of a record, and the end of what is said of the mechanism.
CODES = {
    "nearest": ("it votes once, for one class at one query, so it moves one vote of the", "at most 1"),
    "dense-8": ("it casts one vote, counted in 8 directions, and changes no", "1/1024 of a vote"),
    "nearest labels-2": ("it casts one vote, for up to 2 labels, and changes no", "1/2 of a vote"),
    "nearest number": ("divided between two points of a range, and", "1/64 of a vote"),
    "nearest ordered": ("it casts one vote, for classes in their order, and", "order"),
    "dense-8 residual-labels": (ROUND, "of a vote"), "dense-8 residual": (ROUND, "of a vote"),
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_a_vote_by_each_code_is_described_as_it_is(code: str) -> None:
    record, words = CODES[code]
    labelled = not code.endswith(("labels-2", "number", "residual", "residual-labels"))
    rounds = "residual" in code
    noise = {"sigma" if rounds else "scale": Fraction(640)}
    mechanism = Neighbour(4 if labelled else 0, votes_per_unit=1, code=code, **noise).to_dict()
    said = mechanism_in_words(mechanism)
    assert said.endswith(words)
    assert said.startswith("records vote in rounds: " if rounds else "neighbour votes: ")
    assert ("leads by 4 or more gets a label" in said) == labelled
    assert record in adjacency_of("record", records_vote=True, code=code)
    # A threshold that a stranger states is not left out.
    if not labelled:
        words = "threshold 9" if rounds else "leads by 9 or more"
        assert words in mechanism_in_words({**mechanism, "threshold": 9})


def test_teachers_votes_for_a_class_in_one_release_are_described() -> None:
    gets = "leads by 9 or more gets a label; teachers that one unit changes: 2, 7 queries"
    among = "an answer to the whole public set in 8 directions; counts and noise are in units"
    for code, threshold, words in (
        ("each-7", 9, gets), ("axes-8", 0, among),
        ("each-7 balanced", 9, "for the class that is probable compared with its mean"),
    ):  # fmt: skip
        changed = TeacherLabels(threshold, Fraction(60), 2, code=code)
        removed = replace(changed, adjacency="remove")
        assert words in mechanism_in_words(changed.to_dict())
        said = mechanism_in_words(removed.to_dict())
        assert "a unit is added or removed with its teachers" in said
        assert removed.worst[0].rho < changed.worst[0].rho
        stated = adjacency_of("party", records_vote=False, code=code)
        assert stated.startswith("all data of one party added or removed: without data")
        assert "altering its data" in stated
        assert code_of_statement([removed.to_dict()]) == code


def test_steps_are_told_in_turn() -> None:
    gate = {"mechanism": "gate", "order": "3", "target": "1/3", "test": "1/2", "failure": "1/7"}
    first, second = mechanism_in_words([{"mechanism": "mine"}, gate]).split("; then ")
    assert first == "mine"
    assert all(figure in second for figure in ("order 3", "target 1/3", "test 0.5", "failure 1/7"))


def test_what_is_not_known_is_given_as_it_stands() -> None:
    """Parameters that words have no place for, or lack: nothing is left out, and none is made up."""
    known = {"mechanism": "gnmax", "sigma": "3"}
    strange: tuple[tuple[object, str], ...] = (
        (known, "gnmax (sigma 3)"), ({"sigma": "3"}, "see privacy.json (sigma 3)"),
        (known | {"votes_per_unit": 1, "more": 2}, "gnmax (sigma 3, votes_per_unit 1, more 2)"),
        ("a text", "a text"), (7, "7"),
    )  # fmt: skip
    for each, told in strange:
        assert mechanism_in_words(each) == told
    for figure in ("{sigma}", "1e400", "9" * 400, "1/0", "-1", {"a": 1}, None, True, "٣"):
        said = mechanism_in_words({"mechanism": "gnmax", "sigma": figure, "votes_per_unit": 1})
        assert f"sigma {figure} on" in said
