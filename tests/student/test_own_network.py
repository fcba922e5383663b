"""An own network: votes over embeddings, taught to a network that sees the images; and data embedded once."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pate.campaign.representatives import choose as choose_rows
from pate.data.embeddings import Embeddings
from pate.data.read import read_inputs
from pate.data.values import Images
from pate.encoders.encoder import Encoder
from pate.encoders.reading import Reader
from pate.errors import DataError, UsageError
from pate.formats.labels import LabelRow, LabelSet
from student.lesson import Effort, Lesson, Student
from student.reading import labelled_data
from student.session import follow, identify
from student.training import choose, train
from tests.student.conftest import Here
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.embedded import embedding_arrays
from tests.support.student_samples import (
    PRIVACY,
    ScriptedServer,
    campaign_end,
    connected,
    digits,
    label,
    noisy_votes,
    round_end,
)

#: Public images, and of them those where records vote.
IMAGES, PLACES = 450, 80


def images_of(inputs: Any) -> Images:
    return inputs  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, images to learn from and to test on, and votes over embeddings."""
    folder = tmp_path_factory.mktemp("own")
    encoder = Encoder.open(tiny.image_folder(folder / "encoder", width=32), trial=False)
    public, others = digits()
    public = public.take(range(IMAGES))
    np.savez(folder / "public.npz", images=images_of(public.inputs).pixels)
    np.savez(folder / "test.npz", images=images_of(others.inputs).pixels[600:],
             labels=np.array(others.classes)[others.labels[600:]],
             groups=np.array([f"site {at % 3}" for at in range(297)]),
             who=np.array([f"patient {at // 3}" for at in range(297)]))  # fmt: skip
    seen, voting = (
        encoder.embeddings(encoder.rows(images_of(each.inputs).pixels[:600])[0])
        for each in (public, others)
    )
    np.savez(folder / "embeddings.npz", **embedding_arrays(seen))  # type: ignore[arg-type]
    at = np.array(choose_rows(seen, PLACES, lambda _: None))
    noisy = noisy_votes(seen, voting, others.labels[:600], "nearest", at, 1.0, classes=10, noise=0)
    best = noisy.counts.argmax(axis=1)
    rows = tuple(LabelRow(int(query), int(best[row]), 1, "records") for row, query in enumerate(at))
    labels = LabelSet(
        b"c" * 16, public.classes, identify(seen).content_hash, IMAGES, rows,
        json.dumps(json.loads(PRIVACY) | {"encoder": encoder.description.statement()}), noisy,
    )  # fmt: skip
    (folder / "labels.json").write_text(labels.to_json(), encoding="utf-8")
    return folder


def test_votes_over_embeddings_teach_a_network_that_needs_no_encoder(
    place: Path, here: Here
) -> None:
    out = place / "student"
    code, printed, shown = here(
        "train", "--labels", place / "labels.json", "--public",
        place / "public.npz", "--encoder", place / "encoder", "--model", "propagation", "--steps", 90,
        "--test", place / "test.npz", "--out", out, "--device", "cpu", "--json",
    )  # fmt: skip
    assert code == 0, shown
    found = json.loads(printed)["evaluation"]["accuracy"]
    assert found > 0.65  # ten classes; the head of all these votes has 0.89
    described = json.loads((out / "model.json").read_text())
    assert (described["kind"], described["schema"]) == ("propagation", "images 8x8x1")
    (port,) = onnx.load(out / "model.onnx").graph.input
    assert port.name == "images"
    card = " ".join((out / "README.md").read_text().split())
    assert "no weight of the encoder is in this folder, and none is needed" in card
    assert "The privacy statement says of it: tiny, SHA-256" in card
    predicted = place / "predicted.csv"
    given = ("predict", "--model", out, "--data", place / "test.npz", "--out", predicted)
    assert here(*given)[0] == 0
    with predicted.open() as file:
        said = [row["predicted"] for row in csv.DictReader(file)]
    truth = np.load(place / "test.npz")["labels"]
    assert float(np.mean(np.array(said) == truth)) == pytest.approx(found)


@pytest.mark.parametrize(
    ("public", "more", "code", "why"),
    [
        ("embeddings.npz", (), 2, "learns from the public images themselves"),
        ("embeddings.npz", ("--encoder", "encoder"), 2, "learns from the public images themselves"),
        ("test.npz", ("--encoder", "encoder"), 11, "give --public the same files"),
        ("public.npz", ("--encoder", "texts"), 2, "learns from the public images themselves"),
    ],
)
def test_one_line_without_the_images(
    public: str,
    more: tuple[str, ...],
    code: int,
    why: str,
    place: Path,
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    if "texts" in more and not (place / "texts").exists():
        tiny.text_folder(place / "texts")
    got, _, shown = here(
        "train", "--labels", "labels.json", "--public", public, "--model",
        "propagation", "--out", "new", *more,
    )  # fmt: skip
    assert (got, why in " ".join(shown.split())) == (code, True), shown
    assert not (place / "new").exists()


def test_the_network_learns_what_the_votes_say_and_not_what_images_show() -> None:
    """Embeddings of which the images know nothing but their brightness."""
    from student.fit.network import ImageStudent

    drawn = np.random.default_rng(0)
    classes = np.arange(120) % 2
    pixels = np.where(classes, 170, 60)[:, None, None, None] + drawn.integers(0, 40, (120, 8, 8, 1))
    angle = np.where(classes, 0.3, 2.5) + drawn.normal(0, 0.05, 120)
    rows = np.rint(np.stack([np.cos(angle), np.sin(angle)], axis=1) * 32767).astype(np.int16)
    labelled = np.array([0, 1, 2, 3])
    from pate.data.values import Images

    lesson = Lesson(Embeddings(rows, "images", "ab" * 32), labelled, classes[labelled], ("no", "yes"),
                    pixels=Images(pixels.astype(np.uint8)))  # fmt: skip
    assert choose("propagation", lesson.public) == "propagation"
    student = train(lesson, model="propagation", seed=0, device="cpu", effort=Effort(steps=60))
    assert isinstance(student, ImageStudent)
    assert lesson.pixels is not None
    assert (student.predict(lesson.pixels) == classes).mean() > 0.95
    with pytest.raises(UsageError, match="the public images themselves"):
        train(
            Lesson(lesson.public, labelled, classes[labelled], ("no", "yes")),
            model="propagation",
            seed=0,
        )
    with pytest.raises(DataError, match="119 images of 120"):
        Lesson(lesson.public, labelled, classes[labelled], ("no", "yes"),
               pixels=lesson.pixels.take(range(119)))  # fmt: skip


class Parrot:
    """Says that it was asked about images."""

    kind, classes, schema = "parrot", ("a", "b"), "images 8x8x1"

    def predict_probabilities(self, inputs: Any) -> Any:
        assert inputs.schema() == self.schema
        return np.tile(np.array([0.25, 0.75], dtype=np.float32), (len(inputs), 1))


def test_predictions_for_a_server_are_of_the_images(place: Path) -> None:
    seen = read_inputs(place / "embeddings.npz")
    pixels = read_inputs(place / "public.npz")
    events = [label(1, 5, 1), round_end(2, 1, wants=True), campaign_end(3, 1)]
    server = ScriptedServer(seen, ("a", "b"), events)

    def trained(*_: object) -> Student:
        return Parrot()  # type: ignore[return-value]

    with connected(server, seen) as client:
        follow(client, seen, trained, say=lambda _: None, seen=pixels)
    assert len(server.submitted[2].probabilities) == IMAGES * 2 * 4


def test_labelled_data_are_embedded_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0
    before = Encoder.row

    def counted(self: Encoder, record: Any) -> Any:
        nonlocal runs
        runs += 1
        return before(self, record)

    monkeypatch.setattr(Encoder, "row", counted)
    read = (place / "test.npz", None, "groups", "who")
    found = labelled_data(*read, encoder=place / "encoder")
    assert runs == len({row.tobytes() for row in np.load(place / "test.npz")["images"]})
    assert found.records.groups is not None
    assert found.patients is not None
    again = Reader(Encoder.open(place / "encoder"))
    plain = again.encoder.rows(np.load(place / "test.npz")["images"])[0]
    assert np.array_equal(found.records.inputs.values, plain)  # type: ignore[union-attr]
