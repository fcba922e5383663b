"""``pate encoder``: folders are described and checked, and drafted for the files of exporters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

from pate.data.embeddings import UNIT
from pate.encoders.description import FILE
from pate.encoders.encoder import Encoder
from pate.encoders.graph import checked_graph, output_of
from pate.encoders.inputs import prepared
from pate.errors import DataError, PateError, UsageError
from simulation.cli import app
from tests.support.encoders import tiny_encoders as tiny


def encoder(*options: str | Path) -> str:
    done = CliRunner().invoke(app, ["encoder", *map(str, options)])
    if isinstance(done.exception, PateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def said(*options: str | Path) -> dict[str, Any]:
    text = encoder(*options, "--json")
    found: dict[str, Any] = json.loads(text[text.index("{") :])
    return found


def fill_in(folder: Path) -> None:
    """What a person does with a draft."""
    fields = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps(fields | {"name": "n", "trained": "t", "licence": "l"}))


def test_a_folder_is_described(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    found = said("describe", folder)
    assert found["digest"] == Encoder.open(folder, trial=False).digest
    assert found["trained"] == "nobody, on nothing: random numbers"
    assert found["takes"].startswith("images of any size, brought to 8x8x3")
    (folder / "model.onnx").write_bytes(tiny.image_model(seed=1).SerializeToString())
    with pytest.raises(DataError, match="its SHA-256 differs"):
        encoder("describe", folder)


def test_a_bare_graph_gets_a_draft_that_a_person_completes(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(tiny.image_model().SerializeToString())
    assert said("describe", path)["inputs"] == "'images' 1x3x8x8"
    encoder("describe", path, "--out", tmp_path / "made")
    with pytest.raises(DataError, match="still to be filled in by a person"):
        Encoder.open(tmp_path / "made")
    fill_in(tmp_path / "made")
    assert Encoder.open(tmp_path / "made", trial=False).width == 6
    with pytest.raises(UsageError, match="is there already"):
        encoder("describe", path, "--out", tmp_path / "made")


def test_rows_are_checked(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    drawn = np.random.default_rng(0)
    for at in range(6):
        pixels = drawn.integers(0, 256, size=(9 + at, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / f"{at}.png")
    folder = tiny.image_folder(tmp_path / "tiny")
    found = said("check", folder, "--data", tmp_path / "data", "--records", "5")
    assert (found["records"], found["different_rows"]) == (5, 5)
    assert len(found["same_bits"]) >= 5
    assert all(found["same_bits"].values())
    assert len(found["rows"]) == 5
    texts = tiny.text_folder(tmp_path / "texts")
    (tmp_path / "lines.txt").write_text("good film\n\nbad film\n")
    assert said("check", texts, "--data", tmp_path / "lines.txt")["records"] == 2
    (tmp_path / "lines.txt").write_bytes(b"good\nb\xff\n")
    with pytest.raises(DataError, match="is not UTF-8"):
        encoder("check", texts, "--data", tmp_path / "lines.txt")


def test_an_encoder_whose_rows_hang_on_other_things_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.text_folder(tmp_path / "texts")
    (tmp_path / "lines.txt").write_text("good\nbad\nfilm\n")
    row, count = Encoder.row, iter(range(1000))
    monkeypatch.setattr(Encoder, "row", lambda self, record: row(self, record) + next(count))
    with pytest.raises(DataError, match="is not fit"):
        encoder("check", folder, "--data", tmp_path / "lines.txt")


def test_a_draft_of_a_model_of_texts_has_its_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny.text_model().SerializeToString())
    with pytest.raises(DataError, match=r"tokenizer\.json: No such file"):
        encoder("describe", tmp_path / "m.onnx", "--out", tmp_path / "made")
    assert not (tmp_path / "made").exists()
    (tmp_path / "tokenizer.json").write_bytes(tiny.tokenizer())
    encoder("describe", tmp_path / "m.onnx", "--out", tmp_path / "made")
    fill_in(tmp_path / "made")
    opened = Encoder.open(tmp_path / "made", trial=False)
    assert (opened.description.pooling, opened.width) == ("mean", 6)
    assert opened.row("a good film").any()


def test_a_sentence_has_the_width_of_its_tokens_if_the_file_leaves_it_open(tmp_path: Path) -> None:
    made = tiny.text_model()
    made.graph.node.append(
        onnx.helper.make_node("ReduceMean", ["rows", "1"], ["sentence_embedding"], keepdims=0)
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "1"))
    made.graph.output.append(tiny.port("sentence_embedding", "n", "width"))
    made.opset_import[0].version = 18  # whose ReduceMean takes its axes as an input
    output = output_of(checked_graph(made.SerializeToString()))
    assert output == ("sentence_embedding", "none", 6)


def test_a_network_that_pytorch_exports_becomes_an_encoder(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    ).eval()  # fmt: skip
    tiny.export(net, tmp_path / "m.onnx", (1, 3, 16, 16))
    encoder("describe", tmp_path / "m.onnx", "--out", tmp_path / "made")
    fill_in(tmp_path / "made")
    opened = Encoder.open(tmp_path / "made", trial=False)
    images = opened.description.images
    assert images is not None
    image = np.random.default_rng(0).integers(0, 256, size=(20, 16, 3), dtype=np.uint8)
    with torch.no_grad():
        wanted = net(torch.from_numpy(prepared(image, images)))[0].numpy()
    wanted = wanted / np.linalg.norm(wanted) * UNIT
    assert np.abs(opened.row(image) - wanted).max() < 5
