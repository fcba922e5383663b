"""The file of an envelope: read back as written, or one clear error."""

from __future__ import annotations

import json
import os
import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate import envelopes as form
from pate.envelopes import (
    FIRST_LINE,
    TAG_BYTES,
    Manifest,
    Part,
    date_of,
    opened,
    seal,
    unseal,
    write,
)
from pate.errors import DataError, DiskError, ProtocolError
from pate.masking.keys import KeyPair

if TYPE_CHECKING:
    from pathlib import Path


KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MESSAGES = [b"a", b"bc" * 5000, bytes(77)]
MUTANTS = 700


def manifest(**changes: object) -> Manifest:
    made = Manifest(
        campaign="66" * 16,
        direction="for",
        party="hospital_a",
        number=1,
        answers=b"",
        until="2026-12-24T18:00:00Z",
        key=KEY.public_key().public_bytes_raw(),
        seal=bytes(range(32)),
        parts=tuple(map(Part.of, MESSAGES)),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def written(path: Path, **changes: object) -> Path:
    write(path / "one.pate", manifest(**changes), KEY, MESSAGES)
    return path / "one.pate"


def meaning(path: Path) -> tuple[Manifest, list[bytes]]:
    with opened(path) as envelope:
        return envelope.manifest, [*envelope.messages()]


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert meaning(path) == (manifest(), MESSAGES)
    with opened(path) as envelope:
        assert envelope.size == path.stat().st_size
        assert len(envelope) == 3
    assert manifest().file_name == "campaign-66666666.round-1.for-hospital_a.pate"


def test_the_same_messages_give_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path).read_bytes()
    assert written(tmp_path).read_bytes() == first


def test_nothing_appears_if_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DiskError):
        write(tmp_path / "no" / "one.pate", manifest(), KEY, MESSAGES)
    with pytest.raises(ValueError, match="other messages"):
        write(tmp_path / "one.pate", manifest(), KEY, [b"x", *MESSAGES[1:]])
    with pytest.raises(ValueError, match="another key"):
        write(tmp_path / "one.pate", manifest(), Ed25519PrivateKey.generate(), MESSAGES)
    assert list(tmp_path.iterdir()) == []


def mutated(content: bytes, dice: random.Random) -> bytes:
    at, to = sorted(dice.sample(range(len(content) + 1), 2))
    match dice.randrange(8):
        case 0:
            return content[:at]
        case 1:
            return content + dice.randbytes(dice.randrange(1, 50))
        case 2:
            return content[:at] + dice.randbytes(dice.randrange(1, 9)) + content[at:]
        case 3:
            return content[:at] + content[to:]
        case 4:
            return content[:at] + content[at:to] + content[at:to] + content[to:]
        case 5:
            return content + content
        case 6:  # in the head, where everything has a meaning
            at = dice.randrange(min(len(content), 900))
            return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]
        case _:
            at = dice.randrange(len(content))
            return content[:at] + bytes([dice.randrange(256)]) + content[at + 1 :]


def test_an_altered_file_is_an_error_or_means_the_same(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole, dice = path.read_bytes(), random.Random(19)  # noqa: S311 - mutants, no secrets
    refused = longest = 0
    for _ in range(MUTANTS):
        altered = mutated(whole, dice)
        path.write_bytes(altered)
        try:
            found = meaning(path)
        except ProtocolError as error:
            refused += 1
            longest = max(longest, len(str(error)))
            continue
        assert altered == whole
        assert found == (manifest(), MESSAGES)
    assert refused > MUTANTS * 9 // 10
    assert longest < 600


@pytest.mark.parametrize(
    "changes",
    [
        {"campaign": "66" * 15},
        {"campaign": "../../x"},
        {"party": "../up"},
        {"party": "a/b"},
        {"number": 0},
        {"number": 10**7},
        {"answers": bytes(32)},
        {"until": "tomorrow"},
        {"until": "2026-12-24"},
        {"key": b""},
        {"seal": bytes(31)},
        {"parts": ()},
        {"parts": (Part(0, bytes(32)),)},
        {"parts": (Part(form.MOST_MESSAGE + 1, bytes(32)),)},
        {"parts": (Part(1, bytes(31)),)},
        {"parts": (Part(1, bytes(32)),) * (form.MOST_MESSAGES + 1)},
        {"parts": (Part(form.MOST_MESSAGE, bytes(32)),) * 100},
        {"direction": "from", "answers": bytes(32)},
    ],
    ids=str,
)
def test_a_manifest_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        manifest(**changes)


def lines(fields: bytes, key: Ed25519PrivateKey = KEY) -> bytes:
    """A file with this manifest, signed whatever it says."""
    signature = key.sign(b"pate/v1/envelope\0" + fields)
    return FIRST_LINE + fields + signature.hex().encode() + b"\n" + b"".join(MESSAGES)


def test_a_manifest_has_one_text(tmp_path: Path) -> None:
    path = tmp_path / "one.pate"
    good = manifest().line
    path.write_bytes(lines(good))
    assert meaning(path)[1] == MESSAGES
    fields = json.loads(good)
    for text in (
        json.dumps(fields).encode() + b"\n",
        good.replace(b'{"answers"', b'{"more":1,"answers"'),
        good.replace(b'"number":1', b'"number":1,"number":1'),
        good.replace(b'"number":1', b'"number":true'),
        good.replace(b'"number":1', b'"number":1.0'),
        good.replace(b'"number":1', b'"number":' + b"1" * 5000),
        good.replace(b'"direction":"for"', b'"direction":"to"'),
        b"[" * 100_000 + b"\n",
        b"x" * (form.MOST_MANIFEST + 5),
        b"\xff\n",
        b"\n",
    ):
        assert text != good
        path.write_bytes(lines(text))
        with pytest.raises(ProtocolError):
            meaning(path)


def test_a_signature_of_another_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.pate"
    path.write_bytes(lines(manifest().line, Ed25519PrivateKey.generate()))
    with pytest.raises(ProtocolError, match="altered on its way"):
        meaning(path)


def test_a_pipe_a_link_a_folder_and_a_giant_are_refused(tmp_path: Path) -> None:
    pipe, link, giant = tmp_path / "pipe", tmp_path / "link", tmp_path / "giant"
    os.mkfifo(pipe)
    link.symlink_to(written(tmp_path))
    with giant.open("wb") as file:
        file.truncate(2**33)  # sparse
    for path in (pipe, link, tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError), opened(path):
            pass
    with pytest.raises(ProtocolError, match="too large"), opened(giant):
        pass


def test_a_file_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    with opened(path) as envelope:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"x")
        assert envelope.message(0) == MESSAGES[0]
        with pytest.raises(ProtocolError, match="changed while it was read"):
            envelope.message(2)


def test_dates_are_whole_seconds_of_utc() -> None:
    assert date_of("2026-12-24T18:00:00Z").utcoffset().total_seconds() == 0  # type: ignore[union-attr]
    for text in ("2026-12-24T18:00:00", "2026-12-24T18:00:00+01:00", "26-12-24T18:00:00Z", "x"):
        with pytest.raises(ProtocolError):
            date_of(text)


def test_only_the_server_opens_an_answer() -> None:
    server, own = KeyPair.make(secrets.token_bytes), KeyPair.make(secrets.token_bytes)
    draft = manifest(direction="from", answers=secrets.token_bytes(32), until="", seal=own.public)
    sealed = seal(own, server.public, draft.about, MESSAGES)
    assert [len(each) for each in sealed] == [len(each) + TAG_BYTES for each in MESSAGES]
    whole = replace(draft, parts=tuple(map(Part.of, sealed)))
    assert [unseal(server, whole, at, each) for at, each in enumerate(sealed)] == MESSAGES
    wrong = [
        (KeyPair.make(secrets.token_bytes), whole, 0, sealed[0]),  # another server
        (server, whole, 1, sealed[0]),  # in another place
        (server, replace(whole, party="b"), 0, sealed[0]),  # as another party's
        (server, replace(whole, number=2), 0, sealed[0]),
        (server, replace(whole, answers=bytes(32)), 0, sealed[0]),
        (server, replace(whole, campaign="77" * 16), 0, sealed[0]),
        (server, whole, 0, sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])),
    ]
    for arguments in wrong:
        with pytest.raises(ProtocolError, match="does not open"):
            unseal(*arguments)


def test_a_sealing_key_of_low_order_is_refused() -> None:
    with pytest.raises(ProtocolError, match="low order"):
        seal(KeyPair.make(secrets.token_bytes), bytes(32), b"", [b"x"])
