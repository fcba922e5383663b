"""``pate prepare``, ``pate schema draft`` and ``pate encoder``: folders and files that every role reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from typer.testing import CliRunner

from party.synthesis.schema import read
from pate.data.embeddings import UNIT
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images
from pate.encoders.description import FILE
from pate.encoders.encoder import Encoder
from pate.encoders.graph import checked_graph, output_of
from pate.encoders.inputs import prepared
from pate.errors import DataError, PateError, SchemaError, UsageError
from simulation.cli import app
from tests.support.encoders import tiny_encoders as tiny


def prepare(*options: str | Path) -> str:
    done = CliRunner().invoke(app, ["prepare", *map(str, options)])
    if isinstance(done.exception, PateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def animated(path: Path) -> None:
    frames = [Image.new("L", (6, 6), at * 40) for at in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "raw"
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
    Image.new("RGB", (30, 60), (200, 100, 0)).save(place / "cat" / "tall.jpg")
    Image.new("L", (64, 32), 90).save(place / "cat" / "wide.png")
    Image.new("CMYK", (40, 40), (0, 255, 255, 0)).save(place / "dog" / "print.jpg")
    animated(place / "dog" / "moving.gif")
    (place / "dog" / "broken.png").write_bytes(b"\x89PNG\r\n")
    return place


def test_a_folder_of_any_images_has_one_size_afterwards(folder: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*"))
    said = prepare(folder, tmp_path / "out", "--size", "32")
    assert "3 of 5 images, 32x32 pixels" in said
    assert "dog/moving.gif" in said
    assert "several frames" in said
    assert "dog/broken.png" in said
    assert "CMYK" in said
    data = read_dataset(tmp_path / "out")
    assert isinstance(data.inputs, Images)
    assert (data.inputs.size, data.classes) == ((32, 32, 3), ("cat", "dog"))
    tall = data.inputs.pixels[0]
    assert (tall[:, 0] == 0).all()  # it keeps its proportions
    assert tall[16, 16].tolist() == pytest.approx([200, 100, 0], abs=3)
    assert before == sorted(path.name for path in folder.rglob("*"))
    assert not list(tmp_path.glob(".prepare-*"))


def test_deep_images_are_windowed_and_colour_becomes_grey(tmp_path: Path) -> None:
    deep = np.linspace(0, 4095, 100).astype(np.uint16).reshape(10, 10)
    (tmp_path / "raw").mkdir()
    Image.fromarray(deep).save(tmp_path / "raw" / "x.png")
    with pytest.raises(DataError, match="more than 8 bits"):
        prepare(tmp_path / "raw", tmp_path / "out", "--size", "10")
    assert not (tmp_path / "out").exists()
    Image.new("RGB", (5, 5), (10, 20, 30)).save(tmp_path / "raw" / "c.png")
    prepare(tmp_path / "raw", tmp_path / "out", "--size", "8x10", "--window", "0", "4095", "--grey")
    inputs = read_inputs(tmp_path / "out")
    assert isinstance(inputs, Images)
    assert inputs.size == (8, 10, 1)
    assert inputs.pixels[1].min() < 20
    assert inputs.pixels[1].max() > 235


def test_which_side_is_up_is_kept_and_nothing_else_of_a_camera(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    image = Image.fromarray(np.repeat(np.array([[0], [255]], np.uint8), 20, 0).repeat(40, 1))
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    exif[0x010E] = "Jane Doe"
    image.save(tmp_path / "raw" / "p.jpg", exif=exif)
    prepare(tmp_path / "raw", tmp_path / "out", "--size", "40")
    made = tmp_path / "out" / "p.jpg.png"
    with Image.open(made) as image:
        assert not image.getexif()
        pixels = np.asarray(image)
    assert b"Jane" not in made.read_bytes()
    assert pixels[:, 5].max() == pytest.approx(255, abs=5)  # the halves stand side by side
    assert pixels[:, 35].max() == pytest.approx(0, abs=5)
    as_it_lies = read_inputs(tmp_path / "raw")
    assert isinstance(as_it_lies, Images)
    assert (as_it_lies.pixels[0, ..., 0] == pixels).all()


def test_what_makes_no_sense_is_refused_and_nothing_is_written(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    cases: list[tuple[type[PateError], tuple[str | Path, ...]]] = [
        (UsageError, (folder, tmp_path / "there", "--size", "8")),
        (UsageError, (folder, folder / "out", "--size", "8")),
        (UsageError, (folder, tmp_path / "out", "--size", "big")),
        (UsageError, (folder, tmp_path / "out", "--size", "8", "--window", "5", "5")),
        (DataError, (tmp_path / "nowhere", tmp_path / "out", "--size", "8")),
        (DataError, (tmp_path / "there", tmp_path / "out", "--size", "8")),
    ]
    for kind, options in cases:
        with pytest.raises(kind):
            prepare(*options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "there"]


def test_a_party_is_told_of_images_of_which_something_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    Image.new("CMYK", (6, 6), (0, 255, 255, 0)).save(tmp_path / "a" / "print.jpg")
    Image.new("P", (6, 6)).save(tmp_path / "a" / "still.gif")
    Image.new("RGBA", (6, 6)).save(tmp_path / "b" / "clear.png")
    animated(tmp_path / "b" / "moving.gif")
    odd = Odd()
    assert len(read_dataset(tmp_path, odd=odd)) == 4
    assert odd.lines() == [
        "1 record (a/print.jpg): each has the colours CMYK: red, green and blue are approximate",
        "1 record (b/clear.png): each has transparent parts: they are read as black",
        "1 record (b/moving.gif): each has several frames: only the first one is read",
    ]


def draft(out: Path, *options: str | Path) -> str:
    done = CliRunner().invoke(app, ["schema", "draft", "--out", str(out), *map(str, options)])
    if isinstance(done.exception, PateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def columns(path: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(path.read_text())["columns"]}


def test_a_public_tables_columns_and_what_a_person_has_to_say(tmp_path: Path) -> None:
    rows = "".join(
        f"{20 + at},{at / 7:.3f},{'fm'[at % 2]},note {at},{at % 3}\n" for at in range(120)
    )
    (tmp_path / "public.csv").write_text(f"age,crp,sex,note,stage\n{rows},NA,,x,1\n")
    out = tmp_path / "s.json"
    said = draft(out, "--public", tmp_path / "public.csv", "--label", "sex")
    assert "to be filled in by a person: note, min_rows" in said
    made = columns(out)
    assert made["age"]["integer"] is True
    assert (made["age"]["edges"][0], made["age"]["edges"][-1]) == (20, 140)
    assert made["crp"]["integer"] is False
    assert made["sex"] == {"name": "sex", "kind": "category", "codes": ["f", "m"], "missing": True}
    with pytest.raises(SchemaError, match="'note' is not filled in yet: TODO"):
        read(out)
    fields = json.loads(out.read_text())
    fields["columns"] = [each for each in fields["columns"] if each["name"] != "note"]
    out.write_text(json.dumps(fields))
    with pytest.raises(SchemaError, match="min_rows is not filled in yet: TODO"):
        read(out)
    out.write_text(json.dumps(fields | {"min_rows": 50}))
    domain = read(out)
    assert domain.names == ("age", "crp", "sex", "stage")
    assert (domain.label, domain.min_rows) == ("sex", 50)


def test_a_codebook_is_a_schema_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text(
        "column,kind,values,missing\nage,whole,17..93,\ncrp,number,0|5|10.5,yes\n"
        "sex,category,female|male,no\nward,category,,\n"
    )
    out = tmp_path / "s.json"
    said = draft(out, "--codebook", tmp_path / "book.csv", "--min-rows", "200", "--label", "sex")
    assert "by a person: ward" in said
    made = columns(out)
    assert made["age"]["edges"] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert made["crp"] == {
        "name": "crp", "kind": "number", "integer": False, "edges": [0, 5, 10.5], "missing": True
    }  # fmt: skip
    out.write_text(out.read_text().replace(json.dumps(made["ward"]["codes"]), '["1", "2"]'))
    assert len(read(out)) == 4


@pytest.mark.parametrize(
    ("book", "why"),
    [
        ("name,kind\na,whole\n", "no codebook: it has no column column, values"),
        ("column,kind,values\na,text,\n", "line 2: the kind 'text'"),
        ("column,kind,values\na,whole,9..1\n", "line 2: '9..1' is no range"),
        ("column,kind,values\na,whole,1..2\na,whole,1..2\n", "line 3: 'a' is no name, or is there"),
    ],
)
def test_a_codebook_that_cannot_be_read_names_its_line(tmp_path: Path, book: str, why: str) -> None:
    (tmp_path / "book.csv").write_text(book)
    with pytest.raises(DataError, match=why):
        draft(tmp_path / "s.json", "--codebook", tmp_path / "book.csv")
    assert not (tmp_path / "s.json").exists()


def test_one_source_and_no_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("column,kind,values\na,whole,1..2\n")
    for options in ((), ("--public", tmp_path / "book.csv", "--codebook", tmp_path / "book.csv")):
        with pytest.raises(UsageError, match="one of --public and --codebook"):
            draft(tmp_path / "s.json", *options)
    (tmp_path / "s.json").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        draft(tmp_path / "s.json", "--codebook", tmp_path / "book.csv")
    assert (tmp_path / "s.json").read_text() == "mine"


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
