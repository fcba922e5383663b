"""One record more changes nothing of what a party answers before it votes, and no other record's vote.

The server chooses the encoder, the public set, the schema and the class list, and is hostile. One arbitrary
record is added to a party's file: any bytes as an image, any text, any cells. Before any record is read the
party says that it prepares, or refuses; then it describes itself, or refuses; both alike without and with the
record. In the votes is that record's own, at most. 40 examples of each kind, and the records that each
encoder looks for.
"""

from __future__ import annotations

import contextlib
import csv
import io
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from party.voting.own_data import OwnVoters, Training
from party.voting.own_file import OwnFile
from pate.codes import code_of
from pate.data.values import Images, Inputs, Table
from pate.encoders.encoder import Encoder
from pate.encoders.reading import Reader
from pate.mechanisms import Neighbour
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import (
    TermsMessage,
    campaign_message,
    terms_message,
)
from tests.support.encoders import tiny_encoders as tiny
from tests.support.party.asked import Asked, ask, describe, tell

KEY: Final = b"k" * 32
MOST: Final = 1000
CLASSES: Final = ("a", "b")
PIXELS: Final = np.random.default_rng(4).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
PATIENT: Final = np.full((8, 8, 3), 77, dtype=np.uint8)
TEXTS: Final = ("a good film", "the bad film", "good", "bad a film")
some = settings(max_examples=40, deadline=None)


class Answers:
    """What a party answered: its replies before the terms, and its votes or how it refused them.

    Args:
        file: of the party.
        public: of the campaign.
        classes: of the campaign.
        teachers: k; None: its records vote.
        changes: of the campaign.
    """

    def __init__(
        self,
        file: OwnFile,
        public: Inputs,
        classes: Sequence[str] = CLASSES,
        *,
        teachers: int | None = None,
        **changes: Any,
    ) -> None:
        with tempfile.TemporaryDirectory() as place:
            home = Path(place)
            self.said: list[str] = []
            training = Training(
                teachers=teachers or 0, model="linear", device="cpu", home=home,
                shown=lambda: contextlib.nullcontext(lambda *_: None),
            )  # fmt: skip
            self.own = OwnVoters(
                file, training=None if teachers is None else training, records=teachers is None,
                key=KEY, say=self.said.append, warn=self.said.append,
            )  # fmt: skip
            party = Asked(home, self.own, public=public, said=self.said)
            self.voter = party.voter
            self.public, self.classes, self.changes = public, tuple(classes), changes
            self.weight = MOST if teachers is None else teachers
            joining = self.voter._joining
            begin, joining.begin = joining.begin, lambda: None  # type: ignore[method-assign]
            self.first = self.tell(describe(at_once=True), None)
            assert self.own._held is None, "a record was read before the first reply"
            begin()
            self.before = self.first
            if self.first.WhichOneof("body") == "preparing":
                self.before = self.tell(describe(), None)
            self.kind, self.votes = "", None
            if self.before.WhichOneof("body") == "refusal":
                return
            members = [("a", party.key, self.weight)]
            terms = (
                terms_message(members)
                if teachers
                else terms_message(members, [Neighbour(3, Fraction(40), 1)])
            )
            request = ask(public)
            reply = self.tell(request, terms)
            self.kind = reply.WhichOneof("body") + reply.refusal.kind
            if self.kind == "votes":
                self.votes = wire.read_votes(
                    reply.votes, teachers=self.weight, classes=len(classes), queries=len(public),
                    batch=request.ask.batch.digest,
                    code=code_of("nearest") if teachers is None else None,
                )  # fmt: skip

    def tell(self, request: vote_pb2.PartyRequest, terms: TermsMessage | None) -> vote_pb2.Reply:
        fields: dict[str, Any] = {"classes": self.classes, **self.changes}
        if self.weight == MOST:
            fields |= {"aggregator": "neighbour", "most_votes": MOST}
        campaign = campaign_message(self.public, terms, **fields)
        return tell(self.voter, request, campaign, nonce=b"n" * 16)


def check(without: Answers, with_it: Answers, *, moved: int = 1) -> None:
    """Check that one record more is at most its own votes."""
    assert without.first == with_it.first, (without.said, with_it.said)
    assert without.before == with_it.before, (without.said, with_it.said)
    assert without.kind == with_it.kind, (without.said, with_it.said)
    if without.votes is not None and with_it.votes is not None:
        change = with_it.votes - without.votes
        assert np.abs(change).sum() <= moved
        assert moved > 1 or change.min() >= 0


def as_png(pixels: np.ndarray[Any, Any]) -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, "PNG")
    return made.getvalue()


def folders(place: Path, more: bytes | None = None, name: str = "more.png") -> Path:
    for label, each in enumerate(CLASSES):
        (place / each).mkdir(parents=True)
        for at in range(4):
            (place / each / f"{at}.png").write_bytes(as_png(PIXELS[4 * label + at]))
    if more is not None:
        (place / "a" / name).write_bytes(more)
    return place


def public_of(encoder: Reader) -> Inputs:
    """Three queries of the encoder's space."""
    rows = np.random.default_rng(6).integers(-20_000, 20_000, (3, encoder.width))
    return encoder.encoder.embeddings(rows.astype(np.int16))


@pytest.mark.parametrize("how", ["index", "places", "alone"])
@pytest.mark.parametrize("teachers", [None, 3])
def test_an_encoder_that_looks_for_one_image_learns_nothing(
    tmp_path: Path, how: str, teachers: int | None
) -> None:
    reader = Reader(Encoder.open(tiny.spy_folder(tmp_path / "spy", PATIENT, how)))  # trial included
    found = [
        Answers(
            OwnFile(data=folders(tmp_path / str(at), more), encoder=reader), public_of(reader),
            teachers=teachers,
        )
        for at, more in enumerate([None, as_png(PATIENT)])
    ]  # fmt: skip
    check(*found, moved=1 if teachers is None else 2 * len(public_of(reader)))
    assert found[0].before.WhichOneof("body") == "description"
    assert found[1].kind == "votes"
    own = any("the encoder cannot run on it" in line for line in found[1].said)
    assert own == (how != "alone")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(Encoder.open(tiny.image_folder(tmp_path_factory.mktemp("e") / "i"), trial=False))


@pytest.fixture(scope="module")
def without_image(images: Reader, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    data = folders(tmp_path_factory.mktemp("without") / "images")
    return Answers(OwnFile(data=data, encoder=images), public_of(images))


GOOD: Final = as_png(PIXELS[0])
NASTY: Final = [
    b"", GOOD[:-30], GOOD[:20], b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(20), b"%!PS-Adobe-3.0 EPSF-3.0\n",
    bytes(128) + b"DICM" + bytes(40), b"II*\x00" + b"\xff" * 60, b"RIFF\xff\xff\xff\xffWEBPVP8 ",
    as_png(np.zeros((1, 900, 3), np.uint8)), as_png(np.full((6, 6), 3000, np.uint16)),
]  # fmt: skip


@some
@given(
    content=st.one_of(
        st.sampled_from(NASTY),
        st.binary(max_size=60),
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
            lambda change: GOOD[: change[0]] + bytes([change[1]]) + GOOD[change[0] + 1 :]
        ),
    ),
    name=st.sampled_from(["0x.png", "zz.tiff", "a.webp", "x.jpg", "notes.txt", "y.dcm"]),
)
def test_any_bytes_as_an_image(
    images: Reader, without_image: Answers, content: bytes, name: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = OwnFile(data=folders(Path(place) / "images", content, name), encoder=images)
        check(without_image, Answers(file, public_of(images)))
    assert without_image.before.WhichOneof("body") == "description"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """An encoder of texts that has no token for other words."""
    import tokenizers

    vocabulary = {word: at for at, word in enumerate(tiny.WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "none"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tiny.write(
        tmp_path_factory.mktemp("e") / "t", tiny.text_model(), tiny.text_description(),
        made.to_str().encode(),
    )  # fmt: skip
    return Reader(Encoder.open(folder))


def lines(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    made = io.StringIO(newline="")
    csv.writer(made).writerows(rows)
    path.write_bytes(made.getvalue().encode(errors="surrogatepass"))
    return path


@some
@given(text=st.one_of(st.sampled_from(["good", "a film of hepatitis", "\0", "x" * 150_000, "\ud800"]),
                      st.text(max_size=30)))  # fmt: skip
def test_any_text(words: Reader, without_text: Answers, text: str) -> None:
    with_it = notes(words, [text, "a"])
    check(without_text, with_it)
    assert with_it.before.WhichOneof("body") == "description"
    assert with_it.kind == "votes"


def notes(words: Reader, *more: Sequence[str]) -> Answers:
    rows = [["note", "sick"], *([text, CLASSES[at % 2]] for at, text in enumerate(TEXTS * 2))]
    with tempfile.TemporaryDirectory() as place:
        data = lines(Path(place) / "notes.csv", [*rows, *more])
        file = OwnFile(data=data, label="sick", text="note", encoder=words)
        return Answers(file, public_of(words))


@pytest.fixture(scope="module")
def without_text(words: Reader) -> Answers:
    return notes(words)


TABLE: Final = Table(
    ("lab", "kind"), (np.array([1.5, 2.0, 7.5, 40.0]), np.array(["x", "y", "x", "7"]))
)
ROWS: Final = [[f"{0.5 * at:g}", "xy7"[at % 3], CLASSES[at % 2]] for at in range(12)]
cells = st.one_of(
    st.sampled_from(["", "?", ">150", "nan", "1e400", "a", "q", "\0", "x" * 300, "1" * 5_000, "true"]),
    st.text(max_size=8),
)  # fmt: skip


@some
@given(
    row=st.lists(cells, max_size=5),
    # Of the second list no record has a class, but perhaps the one that is asked about.
    classes=st.sampled_from([CLASSES, ("q", "r"), ("1", "x")]),
    teachers=st.sampled_from([None, 3]),
    changes=st.sampled_from([
        {}, {"schema": "table other:number"}, {"schema": "table lab:category, kind:number"},
        {"schema": "images 9x9x1"}, {"unit": "patient"},
    ]),
)  # fmt: skip
def test_any_cells(
    row: list[str], classes: tuple[str, ...], teachers: int | None, changes: dict[str, str]
) -> None:
    without = without_row(classes, teachers, tuple(changes.items()))
    with_it = of_rows(classes, teachers, changes, row)
    check(without, with_it, moved=1 if teachers is None else 2 * len(TABLE))
    if not changes:
        assert without.before.WhichOneof("body") == "description"


def of_rows(
    classes: tuple[str, ...], teachers: int | None, changes: dict[str, str], *more: list[str]
) -> Answers:
    with tempfile.TemporaryDirectory() as place:
        data = lines(Path(place) / "rows.csv", [["lab", "kind", "y"], *ROWS, *more])
        return Answers(OwnFile(data=data, label="y"), TABLE, classes, teachers=teachers, **changes)


@cache
def without_row(
    classes: tuple[str, ...], teachers: int | None, changes: tuple[tuple[str, str], ...]
) -> Answers:
    return of_rows(classes, teachers, dict(changes))


@pytest.mark.parametrize("teachers", [None, 3])
def test_a_class_list_that_fits_one_record_only_learns_nothing(
    tmp_path: Path, teachers: int | None
) -> None:
    found = [
        Answers(
            OwnFile(
                data=lines(tmp_path / f"{at}.csv", [["lab", "kind", "y"], *ROWS, *more]), label="y"
            ),
            TABLE, ("q", "r"), teachers=teachers,
        )
        for at, more in enumerate([[], [["1", "x", "q"]]])
    ]  # fmt: skip
    check(*found, moved=1 if teachers is None else 2 * len(TABLE))
    assert found[0].kind == "votes"
    assert any("none of our records can take part" in line for line in found[0].said)


@pytest.mark.parametrize("teachers", [None, 3])
def test_an_image_size_that_fits_one_record_only_learns_nothing(
    tmp_path: Path, teachers: int | None
) -> None:
    public = Images(np.random.default_rng(2).integers(0, 256, (3, 9, 9, 3), dtype=np.uint8))
    found = [
        Answers(OwnFile(data=folders(tmp_path / str(at), more)), public, teachers=teachers)
        for at, more in enumerate([None, as_png(np.full((9, 9, 3), 7, np.uint8))])
    ]
    check(*found, moved=1 if teachers is None else 2 * len(public))
    assert found[0].kind == "votes"


def test_there_is_one_kind_of_refusal_before_the_terms(tmp_path: Path, images: Reader) -> None:
    """Whether the file, its options, the encoder or an error of ours is the reason."""
    data = folders(tmp_path / "images")
    table = lines(tmp_path / "t.csv", [["lab", "kind", "y"], *ROWS])
    lost = Encoder.open(tiny.image_folder(tmp_path / "other", seed=5), trial=False)
    public = public_of(images)
    refused = [
        Answers(OwnFile(data=table, label="none"), TABLE),
        Answers(OwnFile(data=table, label="y"), public),
        Answers(OwnFile(data=data), public),
        Answers(OwnFile(data=data, encoder=Reader(lost)), public),
        Answers(OwnFile(data=data, classes=("a", "c"), encoder=images), public),
        Answers(OwnFile(data=table, label="y", reading=None), TABLE),  # type: ignore[arg-type]
    ]
    assert {each.before.WhichOneof("body") for each in refused} == {"refusal"}
    assert {each.before.refusal.kind for each in refused} == {"RefusedError"}
