"""An encoder's rows: one record at a time, whole numbers, of length 1; and what is refused."""

from __future__ import annotations

import json
import math
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pate.data.embeddings import UNIT
from pate.data.odd import Odd, UnusableRecordError
from pate.encoders import encoder as module
from pate.encoders.cache import Cache
from pate.encoders.description import FILE, Description
from pate.encoders.encoder import Encoder
from pate.encoders.trial import Limit, tried
from pate.errors import DataError
from tests.support.encoders import tiny_encoders as tiny


def pictures(count: int = 12, seed: int = 0) -> list[Any]:
    """Images of as many sizes, grey and in colour."""
    drawn = np.random.default_rng(seed)
    return [
        drawn.integers(0, 256, size=(8 + at, 30 - at, 1 if at % 3 == 0 else 3), dtype=np.uint8)
        for at in range(count)
    ]


@pytest.fixture
def opened(tmp_path: Path) -> Encoder:
    return Encoder.open(tiny.image_folder(tmp_path / "tiny"), trial=False)


def not_opened(folder: Path, why: str) -> None:
    with pytest.raises(DataError, match=why):
        Encoder.open(folder, trial=False)


def with_weights(graph: onnx.ModelProto, **weights: Any) -> onnx.ModelProto:
    for name, value in weights.items():
        graph.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return graph


def test_a_row_hangs_on_its_record_only(opened: Encoder) -> None:
    records = pictures()
    alone = np.stack([opened.row(each) for each in records])
    together, good = opened.rows(records, threads=1)
    assert good.all()
    assert np.array_equal(alone, together)
    order = np.random.default_rng(1).permutation(len(records))
    shuffled, _ = opened.rows((records[at] for at in order), threads=3)
    assert np.array_equal(alone[order], shuffled)
    assert len({row.tobytes() for row in alone}) == len(records)


def test_rows_have_length_one(opened: Encoder) -> None:
    values, _ = opened.rows(pictures())
    lengths = np.linalg.norm(values.astype(np.float64) / UNIT, axis=1)
    assert np.allclose(lengths, 1, atol=1e-3)
    made = opened.embeddings(values, window=(0, 4095))
    assert made.schema() == f"embeddings 6 by {opened.digest} of images window 0 4095"


def test_a_row_is_what_the_graph_says(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    opened = Encoder.open(folder, trial=False)
    image = pictures(1)[0][:8, :8]  # of the graph's own size: nothing is scaled
    weights = onnx.numpy_helper.to_array(tiny.image_model().graph.initializer[0])
    values = (np.repeat(image, 3, axis=2).transpose(2, 0, 1).ravel() / 255 - 0.5) / 0.25
    wanted = values @ weights.astype(np.float64)
    wanted *= UNIT / np.linalg.norm(wanted)
    assert np.abs(opened.row(image) - wanted).max() < 1


def test_texts_are_the_mean_of_their_words(tmp_path: Path) -> None:
    opened = Encoder.open(tiny.text_folder(tmp_path / "texts"), trial=False)
    table = onnx.numpy_helper.to_array(tiny.text_model().graph.initializer[0]).astype(np.float64)
    wanted = table[[4, 1, 3]].mean(axis=0)
    wanted *= UNIT / np.linalg.norm(wanted)
    assert np.abs(opened.row("a good film") - wanted).max() < 1
    texts = ["a good film", "the bad film", "good", "a film the film"]
    forth, back = opened.rows(texts)[0], opened.rows(texts[::-1])[0]
    assert np.array_equal(forth, back[::-1])
    # What is beyond the longest text does not count.
    assert np.array_equal(opened.row("good " * 16), opened.row("good " * 16 + "bad " * 50))


def test_unusable_records_are_left_out_or_an_error(tmp_path: Path) -> None:
    opened = Encoder.open(tiny.text_folder(tmp_path / "texts"), trial=False)
    records = ["good", "", "x" * (module.MOST_CHARACTERS + 1), "\ud800", "bad"]
    odd = Odd()
    values, good = opened.rows(records, odd=odd, place=lambda at: f"line {at}")
    assert good.tolist() == [True, False, False, False, True]
    assert not values[1:4].any()
    assert len(odd.reasons) == 3
    assert any("line 2" in line for line in odd.lines())
    with pytest.raises(UnusableRecordError, match="record 2: the text has no tokens"):
        opened.rows(records)


def test_numbers_that_are_none_are_unusable(tmp_path: Path) -> None:
    for value, first, second in (
        ("NaN", "Log", "Neg"), ("infinity", "Reciprocal", "Identity"), ("zero", "Identity", "Identity"),
    ):  # fmt: skip
        more = [
            helper.make_node("Sub", ["row", "row"], ["nothing"]),
            helper.make_node("Exp" if value == "NaN" else "Identity", ["nothing"], ["some"]),
            helper.make_node("Neg" if value == "NaN" else "Identity", ["some"], ["other"]),
            helper.make_node(first, ["other"], ["third"]),
            helper.make_node(second, ["third"], ["features"]),
        ]
        graph = tiny.image_model(more=more)
        folder = tiny.write(tmp_path / value, graph, tiny.image_description())
        why = "zeros only" if value == "zero" else "NaN"
        with pytest.raises(UnusableRecordError, match=why):
            Encoder.open(folder, trial=False).row(pictures(1)[0])
        with pytest.raises(DataError, match=f"{folder} cannot embed a trial input: .*{why}"):
            tried(folder)


def test_a_file_that_is_not_the_described_one_is_refused(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    content = bytearray((folder / "model.onnx").read_bytes())
    content[-5] ^= 1
    (folder / "model.onnx").write_bytes(content)
    not_opened(folder, r"model\.onnx is not the file .* its SHA-256 differs")


def test_a_file_of_two_gigabytes_is_not_read(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    os.truncate(folder / "model.onnx", 2 << 30)  # a sparse file
    not_opened(folder, "has 2147483648 bytes, at most")
    said = json.loads((folder / FILE).read_bytes())
    said["model"]["size"] = 2 << 30
    (folder / FILE).write_text(json.dumps(said))
    not_opened(folder, "larger than 1 GiB")


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    (folder / "model.onnx").unlink()
    os.mkfifo(folder / "model.onnx")
    not_opened(folder, "is no file")
    (folder / "model.onnx").unlink()
    not_opened(folder, "cannot read")
    with pytest.raises(DataError, match="takes an encoder's folder"):
        Encoder.open(folder / FILE)


def test_what_the_runtime_cannot_open_is_one_error_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    more = [helper.make_node("MatMul", ["row"], ["features"], name="named!")]
    content = tiny.image_model(more=more).SerializeToString()
    for made in (content, content.replace(b"named!", b"\xf0amed!")):  # a name that is not UTF-8
        with pytest.raises(DataError, match="ONNX Runtime cannot open the graph"):
            Encoder(tiny.image_description(), made, None)
    assert capfd.readouterr() == ("", "")


def test_an_output_of_another_rank_is_refused(tmp_path: Path) -> None:
    graph = tiny.image_model()
    described = replace(tiny.image_description(), pooling="mean")
    folder = tiny.write(tmp_path / "said", graph, described)
    not_opened(folder, "has 2 dimensions, the description's pooling needs 3 or 4")
    graph.graph.output[0].type.tensor_type.ClearField("shape")
    opened = Encoder.open(tiny.write(tmp_path / "unsaid", graph, described), trial=False)
    with pytest.raises(DataError, match="gives 1x6 for one input; its description says 6"):
        opened.row(pictures(1)[0])


def test_an_input_that_takes_a_minute_is_refused(tmp_path: Path) -> None:
    """Multiplications of large matrices: half a minute or more, of which a second is granted."""
    side = 2048
    nodes = [
        helper.make_node("Expand", ["one", "size"], ["m0"]),
        *(helper.make_node("MatMul", [f"m{at}", "m0"], [f"m{at + 1}"]) for at in range(400)),
        helper.make_node("ReduceMean", ["m400"], ["mean"], keepdims=1),
        helper.make_node("Mul", ["mean", "nothing"], ["zero"]),
        helper.make_node("Add", ["row", "zero"], ["features"]),
        helper.make_node("ReduceMax", ["flat"], ["largest"], keepdims=1),
        helper.make_node("Mul", ["largest", "thousandth"], ["one"]),
    ]
    nodes = [*nodes[-2:], *nodes[:-2]]
    graph = with_weights(
        tiny.image_model(more=nodes), size=np.array([side, side], dtype=np.int64),
        nothing=np.zeros(1, dtype=np.float32), thousandth=np.full(1, 1e-3, dtype=np.float32),
    )  # fmt: skip
    folder = tiny.write(tmp_path / "slow", graph, tiny.image_description())
    with pytest.raises(DataError, match="more than 1 seconds of processor time"):
        tried(folder, seconds=1)


def squares(count: int) -> onnx.ModelProto:
    """A graph that multiplies matrices of 256 x 256 so many times."""
    nodes = [helper.make_node("MatMul", ["one", "square"], ["m0"])]
    nodes += [
        helper.make_node("MatMul", [f"m{at}", "square"], [f"m{at + 1}"]) for at in range(count)
    ]
    nodes += [
        helper.make_node("ReduceMean", [f"m{count}"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "nothing"], ["zero"]),
        helper.make_node("Add", ["row", "zero"], ["features"]),
    ]
    first = [
        helper.make_node("ReduceMax", ["row"], ["most"], keepdims=0),
        helper.make_node("Expand", ["most", "size"], ["one"]),
    ]
    return with_weights(
        tiny.image_model(more=[*first, *nodes]), square=np.eye(256, dtype=np.float32),
        size=np.array([256, 256], dtype=np.int64), nothing=np.zeros((), dtype=np.float32),
    )  # fmt: skip


def test_a_record_that_takes_too_long_is_left_out_and_stays_so(tmp_path: Path) -> None:
    """Seconds of products, of which a hundredth is granted."""
    folder = tiny.write(tmp_path / "slow", squares(1_000), tiny.image_description())
    opened = Encoder.open(folder, trial=False, seconds=0.01)
    (image,) = pictures(1)
    with pytest.raises(UnusableRecordError, match="takes too long"):
        opened.rows([image], threads=1)
    odd = Odd()
    with Cache(tmp_path / "cache", opened.digest, opened.width) as cache:
        _, good = opened.rows([image, image], odd=odd, threads=1, cache=cache)
    assert not good.any()
    assert odd.reasons == ["the encoder takes too long for it"]
    # With more time it would have a row, but votes must not hang on how busy a machine is.
    patient = Encoder.open(folder, trial=False)
    with Cache(tmp_path / "cache", opened.digest, opened.width) as cache:
        assert not patient.rows([image], odd=Odd(), cache=cache)[1].any()
    assert patient.rows([image])[1].all()


def test_the_time_of_a_record_is_its_own_and_not_the_machine_s(tmp_path: Path) -> None:
    """A thread that waits, because others work, uses no time of its record."""
    over = threading.Event()
    with Limit(0.5, over.set):
        assert not over.wait(1.5)
    spent = Limit(0.05, over.set)
    with spent:
        while not over.is_set():
            sum(range(1_000))


@pytest.mark.parametrize("how", ["index", "places", "tokenizer"])
def test_what_fails_for_one_record_is_that_record_s(tmp_path: Path, how: str) -> None:
    if how == "tokenizer":  # it has no token for other words
        import tokenizers

        words = {word: at for at, word in enumerate(tiny.WORDS)}
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "none"))
        made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        folder = tiny.write(
            tmp_path / "e", tiny.text_model(), tiny.text_description(), made.to_str().encode()
        )
        records: list[Any] = ["a good film", "another film", "bad"]
    else:
        folder = tiny.spy_folder(tmp_path / "e", np.full((8, 8, 3), 77, np.uint8), how)
        others = np.random.default_rng(3).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
        records = [others[0], np.full((8, 8, 3), 77, np.uint8), others[1]]
    opened = Encoder.open(folder)  # its trial succeeds
    odd = Odd()
    values, good = opened.rows(records, odd=odd, place=lambda at: f"file {at}")
    assert good.tolist() == [True, False, True]
    assert np.array_equal(values[[0, 2]], opened.rows([records[0], records[2]])[0])
    assert odd.lines() == ["1 record (file 1) takes no part: the encoder cannot run on it"]
    with pytest.raises(UnusableRecordError, match="record 2: the encoder tiny"):
        opened.rows(records)


def test_an_input_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Expand", ["row", "size"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["mean"], keepdims=0, axes=[0, 1]),
        helper.make_node("Reshape", ["mean", "shape"], ["features"]),
    ]
    graph = with_weights(
        tiny.image_model(more=nodes), size=np.array([40_000, 40_000, 6]), shape=np.array([1, 6])
    )
    folder = tiny.write(tmp_path / "large", graph, tiny.image_description())
    with pytest.raises(DataError, match=r"cannot run|cannot be run|memory"):
        tried(folder)


def test_a_trial_measures_an_input(tmp_path: Path) -> None:
    found = tried(tiny.image_folder(tmp_path / "tiny"))
    assert 0 <= found.seconds < found.opening
    assert found.memory > 1 << 20


def test_images_are_no_texts(opened: Encoder, tmp_path: Path) -> None:
    with pytest.raises(UnusableRecordError, match="not texts"):
        opened.row("good")
    texts = Encoder.open(tiny.text_folder(tmp_path / "texts"), trial=False)
    with pytest.raises(UnusableRecordError, match="not images"):
        texts.row(pictures(1)[0])


def test_a_tokenizer_that_panics_leaves_one_text_out(tmp_path: Path) -> None:
    """Its regular expression gives up: that is an error of Rust, which is no Exception."""
    import tokenizers

    made = tokenizers.Tokenizer.from_str(tiny.tokenizer().decode())
    endless = tokenizers.Regex("film(a|a|b|aa)*!$")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(endless, "isolated")
    folder = tiny.write(
        tmp_path / "e", tiny.text_model(), tiny.text_description(), made.to_str().encode()
    )
    odd = Odd()
    texts = ["good", "film" + "a" * 30, "bad"]
    _, good = Encoder.open(folder, trial=False).rows(texts, odd=odd)
    assert good.tolist() == [True, False, True]
    assert len(odd.reasons) == 1


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (8, 8), (7, 9)])
def test_images_of_any_size_are_brought_to_one(fit: Any, size: tuple[int, int]) -> None:
    from pate.encoders.inputs import prepared

    steps = replace(tiny.STEPS, fit=fit, layout="last")
    made = prepared(np.full((*size, 1), 255, dtype=np.uint8), steps)
    assert made.shape == (1, 8, 8, 3)
    assert math.isclose(made.max(), 2.0, abs_tol=1e-6)
    assert (made.min() < 0) == (fit == "pad" and size[0] != size[1])


def test_only_the_middle_is_kept() -> None:
    from pate.encoders.inputs import prepared

    image = np.zeros((16, 32, 1), dtype=np.uint8)
    image[4:12, 12:20] = 255
    steps = replace(tiny.STEPS, crop=0.5)
    assert math.isclose(prepared(image, steps).min(), 2.0, abs_tol=1e-6)


def test_the_digest_does_not_hang_on_spaces(tmp_path: Path) -> None:
    folder = tiny.image_folder(tmp_path / "tiny")
    content = (folder / FILE).read_bytes()
    plain = Description.from_bytes(json.dumps(json.loads(content)).encode())
    assert plain.digest == Description.from_bytes(content).digest
    other = replace(plain, trained="somebody else")
    assert other.digest != plain.digest


def test_a_description_that_is_none_is_refused() -> None:
    for field, value, match in (
        ("width", 8192, "1 to 8191"), ("name", "two\nlines", "name must be one line"),
        ("trained", "", "trained must be one line"), ("images", None, "images or texts"),
        ("pooling", "max", "possible are none, mean, first"),
        ("model", {"file": "../model.onnx", "sha256": "00" * 32, "size": 1}, "no name of a file"),
        ("model", {"file": "model.onnx", "sha256": "00", "size": 1}, "SHA-256"),
        ("format", "pate-encoder/2", "another version"), ("licenec", "x", "unknown fields"),
    ):  # fmt: skip
        said = {**json.loads(tiny.image_description().to_bytes()), field: value}
        with pytest.raises(DataError, match=match):
            Description.from_bytes(json.dumps(said).encode())


def test_graph_inputs_must_fit_the_description(tmp_path: Path) -> None:
    described = tiny.image_description(pixels=16)
    folder = tiny.write(tmp_path / "tiny", tiny.image_model(pixels=8), described)
    not_opened(folder, "must take images as 1x3x16x16, it takes 'images' 1x3x8x8")
    graph = tiny.text_model()
    graph.graph.input.append(tiny.port("more", 1, kind=TensorProto.INT64))
    folder = tiny.write(tmp_path / "texts", graph, tiny.text_description(), tiny.tokenizer())
    not_opened(folder, "a graph of texts takes input_ids")


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "t", tiny.text_model(), tiny.text_description(), b"{}")
    not_opened(folder, "the tokenizer cannot be read")
