"""``pate.simulate``: from arrays of three parties to a student; what makes no sense is refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate.errors import DataError, PateError, SchemaError, UsageError

NAMES = np.array(["benign", "malignant"])


def blobs(number: int, seed: int) -> tuple[Any, Any]:
    """Points around two centres, eight standard deviations apart: a frame, and their classes by name."""
    import pandas as pd

    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, number)
    points = random.normal(size=(number, 2)) + 8 * labels[:, None]
    return pd.DataFrame({"size": points[:, 0], "depth": points[:, 1]}), NAMES[labels]


@pytest.fixture(scope="module")
def parties() -> dict[str, tuple[Any, Any]]:
    return {name: blobs(200, at) for at, name in enumerate(("north", "south", "west"))}


@pytest.fixture(scope="module")
def done(
    parties: dict[str, tuple[Any, Any]], tmp_path_factory: pytest.TempPathFactory
) -> pate.SimulatedCampaign:
    public, truth = blobs(150, 7)
    return pate.simulate(
        parties, public, epsilon=2.0, delta=0.0, expected_records=60, public_labels=truth,
        test=blobs(200, 8), out=tmp_path_factory.mktemp("library") / "out",
    )  # fmt: skip


def test_a_student_of_three_parties_tells_two_clouds_apart(done: pate.SimulatedCampaign) -> None:
    """600 records vote at 20 places, thirty at each; noise of a standard deviation of 2 decides few of them.

    That half of a cloud's places have the other's label has a chance below 1e-9.
    """
    assert done.student is not None
    points, names = blobs(400, 9)
    assert np.mean(done.student.predict(points) == names) > 0.9
    assert done.student.predict_proba(points.to_numpy()).shape == (400, 2)
    assert set(done.labels.values()) == {"benign", "malignant"}
    assert done.figures.parties == 3
    assert (done.figures.label_accuracy or 0) > 0.7
    assert (done.figures.student_accuracy or 0) > 0.9


def test_its_statement_is_that_of_the_servers_ledger(done: pate.SimulatedCampaign) -> None:
    made = done.statement
    assert (made.unit, made.observer, made.aggregation) == ("record", "public", "masked")
    assert 1.9 < made.epsilon <= 2.0
    assert made.adjacency.startswith("one record added, removed or altered")
    assert "simulated" not in made.noise
    assert done.student is not None
    assert done.student.statement["epsilon"] == made.epsilon


def test_a_notebook_shows_it(done: pate.SimulatedCampaign) -> None:
    said = r"\d+ labels of \d+ queries asked; epsilon (2|1\.9\d*) at delta 0 \(unit: record; "
    assert re.match(said, repr(done))
    assert done._repr_html_().startswith("<p>")
    assert done._repr_png_().startswith(b"\x89PNG")


def test_the_folder_has_what_the_command_leaves(done: pate.SimulatedCampaign) -> None:
    from pathlib import Path

    from aggregator_server.results.report import verify

    out = Path(done.figures.files["folder"])
    assert {each.name for each in out.iterdir()} == {"campaign", "campaign.png", "student"}
    assert verify(out / "campaign", None)["queries_asked"] == done.statement.queries_asked
    assert pate.load_student(out / "student").classes == ("benign", "malignant")


def test_records_of_a_table_vote_in_rounds_if_delta_allows_it(
    parties: dict[str, tuple[Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """600 records at epsilon 8 and two clouds apart: the share of errors has a margin of a tenth."""
    done = pate.simulate(
        parties, blobs(150, 7)[0], epsilon=8.0, expected_records=600, rounds=2, verbose=True
    )
    said = " ".join(capsys.readouterr().err.split())
    assert "if 600 records vote (your guess), the noise in each is" in said
    assert done.student is not None
    points, names = blobs(400, 9)
    assert np.mean(done.student.predict(points) == names) > 0.9
    assert not done.labels
    assert re.match(
        r"a model in \d+ directions, after class counts and 2 rounds; epsilon ", repr(done)
    )
    assert "in each round it casts one array" in done.statement.adjacency
    assert done.picture.startswith(b"\x89PNG")


LABELS = ("fever", "cough")


def patients(number: int, seed: int) -> tuple[Any, Any]:
    """Two numbers each, and a label where the first, or the second, is above 0."""
    import pandas as pd

    points = np.random.default_rng(seed).uniform(-1, 1, (number, 2))
    return pd.DataFrame(points, columns=["heat", "noise"]), points > 0


def test_records_with_several_labels_vote_in_rounds() -> None:
    """900 records at epsilon 50, labels in columns of the frame: an area of 0.9 has a wide margin."""

    def columns(number: int, seed: int) -> Any:
        x, flags = patients(number, seed)
        return x.assign(fever=flags[:, 0], cough=np.where(flags[:, 1], "yes", "no"))

    done = pate.simulate(
        {"a": columns(450, 1), "b": columns(450, 2)}, patients(100, 3)[0], epsilon=50.0,
        label=LABELS, test=columns(300, 4), expected_records=900, rounds=4,
    )  # fmt: skip
    assert done.student is not None
    assert done.student.classes == LABELS
    x, flags = patients(300, 4)
    found = done.student.predict(x)
    assert found.shape == (300, 2)
    assert np.mean(found == flags) > 0.8
    assert done.figures.student_figures["macro_auc"]["value"] > 0.9
    assert {*done.figures.student_figures["labels"]} == {*LABELS}
    assert done.figures.student_accuracy is None
    assert not done.labels
    assert "in each round it casts one array" in done.statement.adjacency
    assert done.picture.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "it casts one vote, for up to 2 labels,"),
        ({"most_labels": 1}, "it casts one vote, for up to 1 label,"),
        ({"rounds": 1}, "in each round it casts one array"),
    ],
)
def test_labels_of_an_array_have_one_release_unless_rounds_are_stated(
    more: dict[str, Any], said: str
) -> None:
    parties = {name: patients(40, at) for at, name in enumerate("abc")}
    done = pate.simulate(
        parties, patients(30, 9)[0], epsilon=50.0, classes=LABELS, student=False,
        expected_records=120, **more,
    )  # fmt: skip
    assert said in done.statement.adjacency
    assert done._released.classes == (*LABELS, "none")


def test_records_with_a_number() -> None:
    """600 records at epsilon 50 whose number is that of their column: the error has a wide margin."""
    points = np.random.default_rng(4).uniform(0, 10, (900, 1))
    parties = {name: (points[at:600:2], points[at:600:2, 0]) for at, name in enumerate("ab")}
    done = pate.simulate(
        parties, points[600:700], epsilon=50.0, range=(0, 5, 10), expected_records=600,
        test=(points[700:], points[700:, 0]),
    )  # fmt: skip
    assert done.student is not None
    found = done.student.predict(points[700:]).astype(np.float64)
    assert np.abs(found - points[700:, 0]).mean() < 2
    assert done.figures.student_figures["r2"]["value"] > 0.5
    assert "divided between two points of a range" in done.statement.adjacency
    assert done.picture.startswith(b"\x89PNG")


def test_teachers_votes_of_all_queries_are_one_release(parties: dict[str, tuple[Any, Any]]) -> None:
    """Sixty teachers that agree, and noise of a standard deviation below 1."""
    done = pate.simulate(
        parties,
        blobs(60, 7)[0],
        epsilon=50.0,
        aggregator="gnmax",
        release="counts",
        student=False,
        teachers=20,
    )
    assert [each["code"] for each in done.statement.mechanism] == ["each-60"]
    assert len(done.labels) == 60


def test_teachers_vote_for_arrays_of_images(tmp_path: Path) -> None:
    """Black and white squares: no teacher can err, so each label is right."""
    labels = np.arange(60) % 2
    images = np.broadcast_to(labels[:, None, None] * 255, (60, 8, 8)).astype(np.uint8)
    grain = np.random.default_rng(0).integers(0, 40, (60, 8, 8)).astype(np.uint8)
    images = np.where(labels[:, None, None] == 1, images - grain, images + grain)
    done = pate.simulate(
        {"a": (images, labels), "b": (images[::-1], labels[::-1])}, images, epsilon=1e4,
        aggregator="gnmax", teachers=3, student=False,
    )  # fmt: skip
    assert done.student is None
    assert done.statement.teachers == 6
    assert len(done.labels) > 20
    assert all(name == str(labels[query]) for query, name in done.labels.items())


def test_no_argument_seeds_the_noise() -> None:
    seeds = {name for name in inspect.signature(pate.simulate).parameters if "seed" in name}
    assert seeds == {"seed"}, "which is of the student"
    text = inspect.getsource(inspect.getmodule(pate.simulate))  # type: ignore[arg-type]
    assert "SimulatedNoise" not in text


@pytest.mark.parametrize(
    ("more", "kind", "why"),
    [
        ({"parties": {}}, UsageError, "at least one party"),
        ({"parties": {"a/b": blobs}}, UsageError, "cannot name a party"),
        ({"parties": {"a": [1, 2]}}, DataError, r"give \(X, y\)"),
        ({"parties": {"a": (1, 2, 3, 4)}}, UsageError, "not 4 parts"),
        ({"parties": {"a": (np.eye(3), [0, 1, 1])}}, SchemaError, "columns"),
        ({"unit": "patient"}, UsageError, "the group of each record"),
        ({"classes": ["benign", "other"]}, SchemaError, "malignant"),
        ({"epsilon": 0.0}, UsageError, "epsilon"),
        ({"delta": 0.0, "aggregator": "gnmax"}, UsageError, "delta 0 is for neighbour votes"),
        ({"rounds": 2, "delta": 0.0}, UsageError, "rounds"),
        ({"release": "counts"}, UsageError, "release"),
        ({"aggregator": "interactive-gnmax", "student": False}, UsageError, "asks a student"),
        ({"parties": {"a": (np.eye(2), [0.5, 1])}}, UsageError, "fractions: state range"),
        ({"range": (0, 1), "classes": ["a", "b"]}, UsageError, "one number a record"),
        ({"range": (0, 1), "parties": {"a": (np.eye(2), np.eye(2))}}, DataError, "2 columns"),
        ({"range": (1, 0), "parties": {"a": (np.eye(2), [0, 1])}}, UsageError, "ascend"),
        ({"label": ["none", "fever"]}, UsageError, "named twice, or 'none'"),
        ({"parties": {"a": (np.eye(2), np.eye(2) * 2)}}, DataError, "neither yes nor no"),
        (
            {"parties": {"a": (np.eye(2), np.eye(2)), "b": (np.eye(2), [0, 1])}},
            DataError,
            "1 columns",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    parties: dict[str, Any], more: dict[str, Any], kind: type[PateError], why: str
) -> None:
    with pytest.raises(kind, match=why):
        pate.simulate(**{"parties": parties, "public": blobs(20, 7)[0]} | more)
