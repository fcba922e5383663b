"""The head of an encoder as one ONNX file with it: the same probabilities, from the encoder's own input."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pate.answers import NUMBER
from pate.data.encoded import Record
from pate.encoders.description import Description
from pate.encoders.encoder import Encoder
from pate.errors import SchemaError, UsageError
from student import onnx_head
from student.card import Provenance
from student.export import publish
from student.fit.encoding import EmbeddedRows
from student.fit.rows import HEAD, TableStudent, fit_head
from student.onnx_graph import can_write, write
from student.onnx_head import CLOSE
from tests.support.encoders import tiny_encoders as tiny
from tests.support.student_samples import PRIVACY

REAL = os.environ.get("PATE_TEST_ENCODERS")
TEXTS = ["good", "a good film", "the bad film a film", "bad", "the a the", "film good good bad a"]
PROVENANCE = Provenance("cd" * 16, "a trial", "ef" * 32, 90, 50, 3, {"trainer": "head", "seed": 0})


def pictures(count: int = 20) -> list[Any]:
    """Images of as many sizes."""
    drawn = np.random.default_rng(5)
    return [
        drawn.integers(0, 256, size=(8 + at, 40 - at, 3), dtype=np.uint8) // (1 + at % 3)
        for at in range(count)
    ]


def records(encoder: Encoder) -> list[Any]:
    return pictures() if encoder.source == "images" else TEXTS


def student_of(encoder: Encoder, classes: int = 3) -> TableStudent:
    """Return a head fitted to random probabilities of the records: one that is sure of itself."""
    rows = encoder.embeddings(encoder.rows(records(encoder))[0])
    drawn = np.random.default_rng(0).dirichlet(np.full(classes, 0.1), len(rows))
    head = fit_head(rows.points(), drawn, penalty=1e-4)
    names = tuple(f"class {at}" for at in range(classes))
    return TableStudent(EmbeddedRows(rows.schema()), {HEAD: head}, None, names, HEAD)


def by_the_file(path: Path, encoder: Encoder, which: list[Record]) -> Any:
    """Return the file's probabilities of records, each alone, as another program would ask for them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, encoder.prepared(each))[0] for each in which])


def both(folder: Path, path: Path, classes: int = 3) -> tuple[Any, Any]:
    """Return probabilities of the merged file, and of the pipeline."""
    encoder = Encoder.open(folder, trial=False)
    student = student_of(encoder, classes)
    assert write(student, path, folder).inside == encoder.description
    which = records(encoder)
    rows = encoder.embeddings(encoder.rows(which)[0])
    return by_the_file(path, encoder, which), student.predict_probabilities(rows)


def patches(width: int = 6, rank: int = 4) -> onnx.ModelProto:
    """A convolution, whose places are the image's: (1, width, 4, 4), or (1, 16, width)."""
    drawn = np.random.default_rng(1).normal(size=(width, 3, 2, 2)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["images", "filters"], ["places"], strides=[2, 2])]
    shape: list[int | str] = [1, width, 4, 4]
    if rank == 3:
        shape = [1, 16, width]
        nodes += [
            helper.make_node("Reshape", ["places", "flat"], ["listed"]),
            helper.make_node("Transpose", ["listed"], ["rows"], perm=[0, 2, 1]),
        ]
    return tiny.model(
        nodes, [tiny.port("images", 1, 3, 8, 8)],
        [tiny.port("places" if rank == 4 else "rows", *shape)],
        {"filters": drawn, **({"flat": np.array([1, width, 16])} if rank == 3 else {})},
    )  # fmt: skip


def masked() -> onnx.ModelProto:
    """A row of random numbers for each word; the mask is an input that nothing reads."""
    made = tiny.text_model()
    made.graph.input.append(tiny.port("attention_mask", "n", "t", kind=TensorProto.INT64))
    return made


def described(output: str, pooling: Any) -> Description:
    return replace(tiny.image_description(), output=output, pooling=pooling)


def made(kind: str, folder: Path) -> Path:
    if kind == "images":
        return tiny.image_folder(folder)
    if kind == "texts":
        return tiny.text_folder(folder)
    if kind == "texts with a mask":
        return tiny.write(folder, masked(), tiny.text_description(), tiny.tokenizer())
    if kind == "the first token":
        first = replace(tiny.text_description(), pooling="first")
        return tiny.write(folder, tiny.text_model(), first, tiny.tokenizer())
    if kind == "the mean of a picture":
        return tiny.write(folder, patches(), described("places", "mean"))
    return tiny.write(folder, patches(rank=3), described("rows", "mean"))


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(
    "kind",
    [
        "images", "texts", "texts with a mask", "the first token", "the mean of a picture",
        "the mean of tokens of a picture",
    ],
)  # fmt: skip
def test_the_file_takes_what_the_encoder_takes(kind: str, classes: int, tmp_path: Path) -> None:
    found, expected = both(made(kind, tmp_path / "encoder"), tmp_path / "m.onnx", classes)
    assert found.shape == expected.shape
    assert found.dtype == np.float32
    assert expected.std() > 0.1
    # Sums in float32, to 7 digits, move few coordinates, of 1/32767, to the next whole number.
    assert np.abs(found - expected).max() < CLOSE


@pytest.mark.skipif(REAL is None, reason="needs PATE_TEST_ENCODERS, a folder of encoders")
@pytest.mark.parametrize("name", ["lite0", "minilm"])
def test_a_real_encoder_and_its_head_are_one_file(name: str, tmp_path: Path) -> None:
    found, expected = both(Path(str(REAL)) / name, tmp_path / "m.onnx", 5)
    assert expected.std() > 0.1
    assert np.abs(found - expected).max() < CLOSE


def test_padded_texts_of_a_batch_count_by_their_mask(tmp_path: Path) -> None:
    import onnxruntime

    folder = made("texts with a mask", tmp_path / "encoder")
    encoder = Encoder.open(folder, trial=False)
    write(student_of(encoder), tmp_path / "m.onnx", folder)
    alone = by_the_file(tmp_path / "m.onnx", encoder, ["a good film"])
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (ids,) = (encoder.prepared("a good film")["input_ids"],)
    feed = {
        "input_ids": np.hstack([ids, np.full((1, 4), 2)]),
        "attention_mask": np.array([[1, 1, 1, 0, 0, 0, 0]]),
    }
    assert np.abs(session.run(None, feed)[0] - alone).max() < 1e-6


def test_whole_numbers_are_part_of_the_graph(tmp_path: Path) -> None:
    """Rows that the pipeline rounds to the same whole numbers have the same probabilities, to a bit."""
    import onnxruntime

    folder = tiny.image_folder(tmp_path / "encoder")
    encoder = Encoder.open(folder, trial=False)
    write(student_of(encoder), tmp_path / "head.onnx")
    session = onnxruntime.InferenceSession(
        tmp_path / "head.onnx", providers=["CPUExecutionProvider"]
    )
    row = np.zeros((1, 6), dtype=np.float32)
    row[0, 0], nearly = 1.0, np.float32(0.4 / 32767)
    near = row.copy()
    near[0, 3] = nearly
    far = row.copy()
    far[0, 3] = 2 * nearly
    one, same, other = (session.run(None, {"embeddings": each})[0] for each in (row, near, far))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_head_alone_takes_rows_of_any_length(tmp_path: Path) -> None:
    import onnxruntime

    encoder = Encoder.open(tiny.image_folder(tmp_path / "encoder"), trial=False)
    student = student_of(encoder)
    made = write(student, tmp_path / "head.onnx")
    assert made.inside is None
    assert "--encoder DIR" in made.alone
    rows = encoder.embeddings(encoder.rows(pictures())[0])
    session = onnxruntime.InferenceSession(
        tmp_path / "head.onnx", providers=["CPUExecutionProvider"]
    )
    expected = student.predict_probabilities(rows)
    for length in (1e-25, 1.0, 1e25):
        points = rows.points() * np.float32(length)
        (found,) = session.run(None, {"embeddings": points})
        assert np.abs(found - expected).max() < CLOSE
    said = session.get_modelmeta().custom_metadata_map
    assert said["encoder"] == encoder.digest
    assert said["classes"].splitlines() == ["class 0", "class 1", "class 2"]


def test_labels_have_probabilities_of_their_own(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "encoder")
    encoder = Encoder.open(folder, trial=False)
    one = student_of(encoder, 2)
    other = fit_head(one.encoding.encode(encoder.embeddings(encoder.rows(pictures())[0])),
                     np.tile([[0.9, 0.1], [0.2, 0.8]], (10, 1)))  # fmt: skip
    models = {"label-0": one.models[HEAD], "label-1": other}
    several = replace(one, models=models, answer="labels-2", thresholds=(0.5, 0.5))
    assert write(several, tmp_path / "m.onnx", folder).inside is not None
    rows = encoder.embeddings(encoder.rows(pictures())[0])
    found = by_the_file(tmp_path / "m.onnx", encoder, pictures())
    assert np.abs(found - several.predict_probabilities(rows)).max() < CLOSE
    assert np.abs(found.sum(axis=1) - 1).max() > 0.1


def test_an_encoder_that_does_not_fit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(graph: onnx.ModelProto, name: str, output: str = "features") -> str:
        folder = tiny.write(
            tmp_path / name, graph, replace(tiny.image_description(), output=output)
        )
        student = student_of(Encoder.open(folder, trial=False))
        written = write(student, tmp_path / f"{name}.onnx", folder)
        assert written.inside is None
        (port,) = onnx.load(tmp_path / f"{name}.onnx").graph.input
        assert port.name == "embeddings"
        return written.alone

    old = tiny.image_model()
    old.opset_import[0].version = 9
    assert "of version 9, the head's of 11" in alone(old, "old")
    clash = tiny.image_model()
    clash.graph.node[-1].output[0] = clash.graph.output[0].name = "probabilities"
    assert "a value called probabilities" in alone(clash, "clash", "probabilities")
    vague = tiny.image_model()
    vague.graph.output[0].type.tensor_type.ClearField("shape")
    assert "does not say what shape" in alone(vague, "vague")
    monkeypatch.setattr(onnx_head, "CLOSE", -1.0)
    assert "apart" in alone(tiny.image_model(), "apart")
    monkeypatch.setattr(onnx_head, "LARGEST", 2**20 - 1)
    large = tiny.image_model()
    large.graph.initializer.append(
        onnx.numpy_helper.from_array(np.zeros(2**18, dtype=np.float32), "more")
    )
    assert "has 1 MiB, and at most 0" in alone(large, "large")


def test_another_encoder_is_refused(tmp_path: Path) -> None:
    mine, other = (tiny.image_folder(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    student = student_of(Encoder.open(mine, trial=False))
    with pytest.raises(SchemaError, match="name the campaign's folder"):
        write(student, tmp_path / "m.onnx", other)
    assert not (tmp_path / "m.onnx").exists()


def test_values_of_the_encoder_keep_their_names(tmp_path: Path) -> None:
    graph = tiny.image_model(more=[helper.make_node("Identity", ["row"], ["student_0"]),
                                   helper.make_node("Identity", ["student_0"], ["features"])])  # fmt: skip
    folder = tiny.write(tmp_path / "encoder", graph, tiny.image_description())
    found, expected = both(folder, tmp_path / "m.onnx")
    assert np.abs(found - expected).max() < CLOSE


def test_constants_and_points_of_a_number_have_no_file(tmp_path: Path) -> None:
    student = student_of(Encoder.open(tiny.image_folder(tmp_path / "encoder"), trial=False))
    constant = replace(student, models={}, constant=1)
    points = replace(student, answer=NUMBER, classes=("1", "2", "3"))
    for each in (constant, points):
        assert not can_write(each)
        with pytest.raises(UsageError, match="no ONNX form"):
            write(each, tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["images", "texts"])
def test_a_published_student_says_what_is_inside(kind: str, tmp_path: Path) -> None:
    folder = made(kind, tmp_path / "encoder")
    encoder = Encoder.open(folder, trial=False)
    said: list[str] = []
    out = tmp_path / "out"
    stated = json.loads(PRIVACY) | {"encoder": encoder.description.statement()}
    files = publish(student_of(encoder), out, privacy=json.dumps(stated), provenance=PROVENANCE,
                    encoder=folder, say=said.append)  # fmt: skip
    assert files == ["README.md", "head.skops", "model.json", "model.onnx", "privacy.json"]
    assert not said
    card = (out / "README.md").read_text()
    assert f"| SHA-256 | `{encoder.digest}` |" in card
    assert "| trained by | nobody, on nothing: random numbers |" in card
    assert "| licence | Apache-2.0; `model.onnx` has its weights" in card
    assert ("tokenizer.json, which is no part of it" in " ".join(card.split())) == (kind == "texts")
    meta = {each.key: each.value for each in onnx.load(out / "model.onnx").metadata_props}
    assert json.loads(meta["encoder.json"])["name"] == "tiny"
    publish(student_of(encoder), out, privacy=json.dumps(stated), provenance=PROVENANCE,
            say=said.append)  # fmt: skip
    (line,) = said
    assert line.startswith("model.onnx has the head only: the encoder's folder was not named")
    card = " ".join((out / "README.md").read_text().split())
    assert f"`{encoder.digest}`; no weight of it is in this folder" in card
    assert "nothing here protects the records that it was trained on" in card


def test_an_encoder_that_changed_meanwhile_loses_no_training(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "encoder")
    student = student_of(Encoder.open(folder, trial=False))
    (folder / "model.onnx").unlink()
    said: list[str] = []
    files = publish(student, tmp_path / "out", privacy=PRIVACY, provenance=PROVENANCE,
                    encoder=folder, say=said.append)  # fmt: skip
    assert "model.onnx" in files
    assert said == [
        "model.onnx has the head only: the encoder's folder is not what it was when the training began"
    ]
