"""``pate encoder``: folders are described, checked, and made of local files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from pate.encoders.description import FILE, Description
from pate.encoders.encoder import Encoder
from pate.encoders.making import Card, from_hugging_face
from pate.errors import DataError, PateError, UsageError
from simulation.cli import app
from tests.support.encoders import tiny_encoders as tiny

if TYPE_CHECKING:
    from pathlib import Path

CARD = ("--name", "tiny", "--trained", "nobody, on nothing", "--licence", "MIT")


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
    fields = json.loads((tmp_path / "made" / FILE).read_text())
    fields |= {"name": "n", "trained": "t", "licence": "l"}
    (tmp_path / "made" / FILE).write_text(json.dumps(fields))
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


def sentence_model(folder: Path, pooling: str = "pooling_mode_mean_tokens") -> Path:
    (folder / "onnx").mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(tiny.text_model().SerializeToString())
    (folder / "tokenizer.json").write_bytes(tiny.tokenizer())
    (folder / "config.json").write_text('{"max_position_embeddings": 32}')
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({pooling: True, "dim": 6}))
    return folder


def test_a_sentence_model_becomes_an_encoder(tmp_path: Path) -> None:
    encoder("from-hf", sentence_model(tmp_path / "hf"), "--out", tmp_path / "made", *CARD)
    opened = Encoder.open(tmp_path / "made", trial=False)
    texts, pooling = opened.description.texts, opened.description.pooling
    assert texts is not None
    assert (texts.longest, pooling, opened.width) == (32, "mean", 6)
    assert opened.row("a good film").any()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("1_Pooling/config.json", '{"pooling_mode_max_tokens": true}'), "is not supported"),
        (("modules.json", '[{"type": "sentence_transformers.models.Dense"}]'), "further layers"),
        (("config.json", "{}"), "does not say how long"),
        (("tokenizer.json", None), "cannot read"),
        (("onnx/model.onnx", None), "models are not converted here"),
    ],
)
def test_a_model_that_is_not_supported_is_refused(
    tmp_path: Path, change: tuple[str, str | None], match: str
) -> None:
    folder = sentence_model(tmp_path / "hf")
    name, content = change
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(DataError, match=match):
        encoder("from-hf", folder, "--out", tmp_path / "made", *CARD)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("said_there", "fit", "crop", "resample"),
    [
        ({"size": {"height": 8, "width": 8}, "resample": 2}, "stretch", 1.0, "bilinear"),
        (
            {"size": {"shortest_edge": 10}, "do_center_crop": True, "resample": 3,
             "crop_size": {"height": 8, "width": 8}},
            "crop", 0.8, "bicubic",
        ),
        ({"size": 8, "resample": 1}, "stretch", 1.0, "lanczos"),
    ],
)  # fmt: skip
def test_a_vision_model_has_its_steps(
    tmp_path: Path, said_there: dict[str, Any], fit: str, crop: float, resample: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(tiny.image_model().SerializeToString())
    steps = {**said_there, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(steps))
    made = from_hugging_face(tmp_path, Card("n", "t", "l"))[0]
    assert isinstance(made, Description)
    assert made.images is not None
    assert (made.images.fit, made.images.crop, made.images.resample) == (fit, crop, resample)
    assert made.images.mean == (0.5, 0.5, 0.5)
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"longest_edge": 8}}')
    with pytest.raises(DataError, match="is not supported"):
        from_hugging_face(tmp_path, Card("n", "t", "l"))


@pytest.mark.slow
def test_a_network_of_torchvision_becomes_an_encoder(tmp_path: Path) -> None:
    import torch
    import torchvision
    from safetensors.torch import save_file

    torch.manual_seed(0)
    net = torchvision.models.shufflenet_v2_x0_5(weights=None).eval()
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    torch.save(net.state_dict(), tmp_path / "w.pth")
    more = CARD[2:]
    for name in ("w.safetensors", "w.pth"):
        out = tmp_path / f"{name}.made"
        encoder("from-torchvision", "shufflenet_v2_x0_5", "--weights", tmp_path / name,
                "--out", out, "--pixels", "64", *more)  # fmt: skip
        opened = Encoder.open(out, trial=False)
        assert opened.width == 1024
    image = np.random.default_rng(0).integers(0, 256, size=(64, 64, 3), dtype=np.uint8)
    images = opened.description.images
    assert images is not None
    from pate.encoders.pictures import prepared

    net.fc = torch.nn.Identity()  # as the command does
    with torch.no_grad():
        wanted = net(torch.from_numpy(prepared(image, images)))[0].numpy()
    wanted = wanted / np.linalg.norm(wanted) * 32767
    assert np.abs(opened.row(image) - wanted).max() < 5


def test_weights_that_are_more_than_tensors_are_refused(tmp_path: Path) -> None:
    import torch

    torch.save(torch.nn.Linear(2, 2), tmp_path / "w.pth")  # a whole network: code by name
    with pytest.raises(DataError, match="no file of tensors only"):
        encoder("from-torchvision", "shufflenet_v2_x0_5", "--weights", tmp_path / "w.pth",
                "--out", tmp_path / "made", *CARD[2:])  # fmt: skip
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "w.pth")
    with pytest.raises(DataError, match="has not the weights of"):
        encoder("from-torchvision", "shufflenet_v2_x0_5", "--weights", tmp_path / "w.pth",
                "--out", tmp_path / "made", *CARD[2:])  # fmt: skip
    with pytest.raises(UsageError, match="no classifier of images"):
        encoder("from-torchvision", "nosuchnet", "--weights", tmp_path / "w.pth",
                "--out", tmp_path / "made", *CARD[2:])  # fmt: skip
