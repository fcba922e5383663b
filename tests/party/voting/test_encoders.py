"""An encoder that a server sends in pieces: taken if the policy accepts it, whole, small and safe to run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from PIL import Image

from party.policy.policy import Policy
from party.voting.own_data import OwnVoters
from party.voting.own_file import OwnFile
from party.voting.received import Encoders
from pate.data.encoded import NoEncoderError
from pate.data.schema import Schema
from pate.encoders.description import FILE
from pate.encoders.encoder import Encoder, read_description
from pate.encoders.reading import Reader
from pate.errors import DataError, ProtocolError
from protos.bounds import MAX_ENCODER_PIECES, PIECE_BYTES
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedEncoder
from tests.support.campaign_messages import campaign_message
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.dicom_files import dicom
from tests.support.encoders.dicom_files import write as write_film
from tests.support.party.asked import Asked, describe

CLASSES = ("dark", "light")
#: So many that the weights are three pieces.
WIDTH = 700


def opened(folder: Path) -> Reader:
    """Open a folder without the trial in another process."""
    return Reader(Encoder.open(folder, trial=False))


def photographs(folder: Path) -> Path:
    """Class folders of JPEGs, each of its own size."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for at in range(4):
            pixels = rng.integers(128 * label, 128 + 128 * label, (9 + at, 20 - at, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{at}.jpg")
    return folder


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server's encoder."""
    return tiny.image_folder(tmp_path_factory.mktemp("server") / "encoder", 16, WIDTH)


class Party(Asked):
    """A party over photographs, and the server that asks it."""

    def __init__(
        self,
        place: Path,
        sent: Path,
        *,
        policy: Policy | None = None,
        own: bool = False,
        opens: bool = True,
    ) -> None:
        said: list[str] = []
        home, data = place / "home", place / "data"
        reader = opened(sent)
        self.opened: list[Path] = []

        def opening(folder: Path) -> Reader:
            self.opened.append(folder)
            if not opens:
                raise DataError("the encoder takes more than 20 seconds")
            return opened(folder)

        self.own = OwnVoters(
            OwnFile(
                data=data if data.exists() else photographs(data), encoder=reader if own else None
            ),
            training=None, records=True, key=b"k" * 32, say=said.append, warn=said.append,
            encoders=None if own else Encoders(home / "encoders", opening),
        )  # fmt: skip
        super().__init__(home, self.own, policy=policy, said=said)
        pixels = np.random.default_rng(1).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
        public = reader.encoder.embeddings(reader.encoder.rows(pixels)[0])
        self.campaign = campaign_message(
            public, classes=CLASSES, aggregator="neighbour", most_votes=100
        )

    def describe(self, *, sends: bool = True) -> vote_pb2.Reply:
        return self.tell(describe(sends_encoder=sends), self.campaign)

    def send(self, index: int, pieces: int, content: bytes) -> vote_pb2.Reply:
        request = vote_pb2.PartyRequest()
        request.public_piece.index, request.public_piece.pieces = index, pieces
        request.public_piece.content, request.public_piece.encoder = content, True
        return self.tell(request, self.campaign)

    def send_all(self, folder: Path, order: list[int] | None = None) -> list[vote_pb2.Reply]:
        packed = PackedEncoder(folder)
        at = range(len(packed)) if order is None else order
        return [self.send(each, len(packed), packed[each]) for each in at]

    @property
    def stored(self) -> list[str]:
        folder = self.home / "encoders"
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_it_is_taken_in_any_order_and_kept(tmp_path: Path, sent: Path) -> None:
    party = Party(tmp_path, sent)
    assert party.own.ahead(None, None) is None
    assert any("read once a campaign is known" in line for line in party.said)
    assert party.describe().WhichOneof("body") == "wanted"
    packed = PackedEncoder(sent)
    assert len(packed) == 4
    replies = party.send_all(sent, [3, 1, 1, 0, 2])  # one of them twice
    digest = bytes.fromhex(read_description(sent).digest)
    assert [each.receipt.encoder for each in replies] == [b""] * 4 + [digest]
    assert party.describe().description.classes == list(CLASSES)
    assert party.stored == [f"{digest.hex()}/{FILE}", f"{digest.hex()}/model.onnx"]
    assert any("nothing here protects the records" in line for line in party.said)
    again = Party(tmp_path, sent)  # a new process has it, and is sent nothing
    assert again.describe().WhichOneof("body") == "description"
    assert again.opened == [party.home / "encoders" / digest.hex()]
    later = again.send_all(sent)[0]
    assert later.receipt.encoder == digest


def test_rows_are_those_of_the_same_folder_by_its_option(tmp_path: Path, sent: Path) -> None:
    found = []
    for own in (False, True):
        (tmp_path / str(own)).mkdir()
        party = Party(tmp_path / str(own), sent, own=own)
        if not own:
            party.describe()
            party.send_all(sent)
        party.describe()
        voters = party.own.read(party.campaign.announced)
        assert voters is not None
        found.append(voters.records.inputs.values)  # type: ignore[union-attr]  # embeddings
    np.testing.assert_array_equal(found[0], found[1])


def test_who_has_a_folder_is_sent_nothing_and_takes_nothing(tmp_path: Path, sent: Path) -> None:
    party = Party(tmp_path, sent, own=True)
    assert party.describe().WhichOneof("body") == "description"
    assert party.send(0, 4, PackedEncoder(sent)[0]).refusal.kind == "RefusedError"
    assert party.stored == []


def test_a_server_that_sends_none_is_told_what_is_missing(tmp_path: Path, sent: Path) -> None:
    party = Party(tmp_path, sent)
    assert party.describe(sends=False).refusal.kind == "RefusedError"
    assert "--encoder" in party.said[-1]


@pytest.mark.parametrize("listed", [(), ("ab" * 32,)])
def test_an_encoder_that_the_policy_does_not_list_is_not_taken(
    tmp_path: Path, sent: Path, listed: tuple[str, ...]
) -> None:
    policy = dataclasses.replace(Policy.default(loopback=True), encoders=listed)
    party = Party(tmp_path, sent, policy=policy)
    assert party.describe().refusal.kind == "RefusedError"
    assert {each.refusal.kind for each in party.send_all(sent)} == {"RefusedError"}
    assert not (party.home / "encoders").exists()
    assert party.opened == []


def test_an_encoder_that_the_policy_lists_is_taken(tmp_path: Path, sent: Path) -> None:
    listed = (read_description(sent).digest,)
    policy = dataclasses.replace(Policy.default(loopback=True), encoders=listed)
    party = Party(tmp_path, sent, policy=policy)
    assert party.send_all(sent)[-1].receipt.encoder.hex() == listed[0]


def test_the_description_of_another_encoder_is_refused_at_once(tmp_path: Path, sent: Path) -> None:
    other = tiny.image_folder(tmp_path / "other", 16, WIDTH, seed=1)
    party = Party(tmp_path, sent)
    replies = party.send_all(other)
    assert replies[0].refusal.kind == "RefusedError"
    assert "another digest than announced" in party.said[0]
    assert party.stored == []


@pytest.mark.parametrize("how", ["altered", "short", "long", "missing", "exchanged"])
def test_files_that_are_not_the_described_ones_are_not_stored(
    tmp_path: Path, sent: Path, how: str
) -> None:
    party = Party(tmp_path, sent)
    packed = list(PackedEncoder(sent))
    count = len(packed)
    if how == "altered":
        packed[2] = packed[2][:7] + bytes([packed[2][7] ^ 1]) + packed[2][8:]
    elif how == "short":
        packed[3] = packed[3][:-1]
    elif how == "long":
        packed[3] += b"0"
    elif how == "missing":
        count = 3
    else:
        packed[1], packed[2] = packed[2], packed[1]
    replies = [party.send(at, count, each) for at, each in enumerate(packed[:count])]
    wrong = replies[0] if how == "missing" else replies[-1]
    assert wrong.refusal.kind == "RefusedError"
    assert party.stored == []
    # What was wrong is forgotten: the right pieces do, in one go.
    assert party.send_all(sent)[-1].receipt.encoder.hex() == read_description(sent).digest


def test_pieces_of_another_number_begin_anew(tmp_path: Path, sent: Path) -> None:
    party = Party(tmp_path, sent)
    packed = PackedEncoder(sent)
    for at in (1, 2):
        party.send(at, 4, packed[at])
    party.send(3, 5, packed[3])
    assert party.send(0, 4, packed[0]).receipt.encoder == b""
    assert party.stored == []
    assert party.send_all(sent)[-1].receipt.encoder.hex() == read_description(sent).digest


@pytest.mark.parametrize(
    ("pieces", "size"), [(MAX_ENCODER_PIECES + 1, 1), (4, PIECE_BYTES + 1), (0, 1)]
)
def test_more_than_an_encoder_can_have_is_no_request(
    tmp_path: Path, sent: Path, pieces: int, size: int
) -> None:
    with pytest.raises(ProtocolError, match="piece"):
        Party(tmp_path, sent).send(0, pieces, bytes(size))


def test_a_graph_that_may_not_run_is_not_stored_though_its_digest_is_accepted(
    tmp_path: Path,
) -> None:
    more = [helper.make_node("Gelu", ["row"], ["features"], domain="com.microsoft")]
    described = tiny.image_description(16, WIDTH)
    hostile = tiny.write(tmp_path / "hostile", tiny.image_model(16, WIDTH, more=more), described)
    party = Party(tmp_path, tiny.image_folder(tmp_path / "good", 16, WIDTH))
    digest = read_description(hostile).digest
    party.campaign.schema = party.campaign.schema.replace(
        read_description(tmp_path / "good").digest, digest
    )
    assert party.send_all(hostile)[-1].refusal.kind == "RefusedError"
    assert "not of ONNX's own set" in party.said[-1]
    assert isinstance(party.voter.refusal, DataError)  # the party ends with that line
    assert party.stored == []


def test_an_encoder_that_fails_its_trial_ends_the_party(tmp_path: Path, sent: Path) -> None:
    party = Party(tmp_path, sent, opens=False)
    party.send_all(sent)
    assert party.describe().refusal.kind == "RefusedError"
    assert isinstance(party.voter.refusal, DataError)


def test_a_damaged_copy_is_asked_for_again(tmp_path: Path, sent: Path) -> None:
    Party(tmp_path, sent).send_all(sent)
    (stored,) = (tmp_path / "home" / "encoders").glob("*/model.onnx")
    stored.write_bytes(stored.read_bytes()[:-1])
    party = Party(tmp_path, sent)
    assert party.describe().WhichOneof("body") == "wanted"
    assert party.stored == []
    party.send_all(sent)
    assert party.describe().WhichOneof("body") == "description"


def test_a_few_are_kept_and_what_a_killed_process_left_is_removed(
    tmp_path: Path, sent: Path
) -> None:
    encoders = Encoders(tmp_path / "encoders", opened)
    torn = tmp_path / "encoders" / ("cd" * 32)
    torn.mkdir(parents=True)
    (torn / "model.onnx").write_bytes(b"half")
    digests = []
    for seed in range(6):
        folder = tiny.image_folder(tmp_path / f"e{seed}", seed=seed)
        packed = PackedEncoder(folder)
        digests.append(read_description(folder).digest)
        for at, content in enumerate(packed):
            piece = vote_pb2.PublicPiece(
                index=at, pieces=len(packed), content=content, encoder=True
            )
            encoders.take(digests[-1], piece)
        stored = {each.name for each in (tmp_path / "encoders").iterdir()}
        assert torn.name not in stored
        assert len(stored) == min(seed + 1, 4)
        assert digests[-1] in stored
    assert encoders.find(digests[-1]) is not None
    assert encoders.find(digests[0]) is None


@pytest.mark.parametrize("kind", ["texts", "a column of texts", "films", "photographs"])
def test_what_only_an_encoder_reads_waits_for_it(tmp_path: Path, kind: str) -> None:
    path, text = tmp_path / "data", None
    if kind == "texts":
        for name in CLASSES:
            (path / name).mkdir(parents=True)
            (path / name / "1.txt").write_text("a good film")
    elif kind == "a column of texts":
        path, text = tmp_path / "data.csv", "note"
        path.write_text("note,class\na good film,light\na bad film,dark\n")
    elif kind == "films":
        for name in CLASSES:
            write_film(path / name / "1.dcm", dicom(np.zeros((4, 4), np.uint8)))
    else:
        photographs(path)
    file = OwnFile(data=path, text=text, label="class" if text else None)
    assert file.needs_encoder
    source = "texts" if "texts" in kind else "images"
    schema = Schema.parse(f"embeddings 6 by {'ab' * 32} of {source}")
    with pytest.raises(NoEncoderError, match="name its folder with --encoder"):
        file.read(schema, CLASSES)


def test_images_of_one_size_and_tables_wait_for_none(tmp_path: Path) -> None:
    for name in CLASSES:
        (tmp_path / "images" / name).mkdir(parents=True)
        for at in range(2):
            pixels = np.full((5, 4, 3), at, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{at}.png")
    (tmp_path / "table.csv").write_text("age,class\n1,light\n2,dark\n")
    assert not OwnFile(data=tmp_path / "images").needs_encoder
    assert not OwnFile(data=tmp_path / "table.csv", label="class").needs_encoder
