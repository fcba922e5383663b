"""A lying carrier, a lying server, a careless hand, and folders that are watched: all without effect."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.exchange import exchange as exchange_module
from party import envelopes
from party.cli.main import app
from party.envelopes import Watch
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.data.values import Dataset, Images
from pate.envelopes import Part, opened, text_of, write
from pate.errors import DataError, ProtocolError, RefusedError
from pate.runtime.command import program_of
from protos import wire
from simulation.datasets import write_labelled
from tests.support.campaign_messages import SERVER_KEY
from tests.support.world.envelopes import NAMES, NOW, Play, StuckError, refused
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return begun(Play(tmp_path_factory.mktemp("first")))


@pytest.fixture
def play(first: Play, tmp_path: Path) -> Play:
    """A campaign whose first envelopes are out, and nothing else has happened."""
    return first.copied(tmp_path)


def begun(play: Play) -> Play:
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    play.carrier = play.carry
    return play


def out(play: Play, name: str) -> Path:
    path = play.outgoing(name)
    assert path is not None
    return path


def forged(play: Play, path: Path, key: Ed25519PrivateKey = SERVER_KEY, **changes: object) -> Path:
    """An envelope with another manifest, signed again: by a server that lies, or by a stranger."""
    with opened(path) as envelope:
        public = key.public_key().public_bytes_raw()
        manifest = replace(envelope.manifest, key=public, **changes)  # type: ignore[arg-type]
        messages = [*envelope.messages()]
    if "parts" in changes:
        raise TypeError("give other messages to `rewritten`")
    write(play.root / "forged.pate", manifest, key, messages)
    return play.root / "forged.pate"


def rewritten(play: Play, path: Path, messages: list[bytes]) -> Path:
    with opened(path) as envelope:
        manifest = replace(envelope.manifest, parts=tuple(map(Part.of, messages)))
    write(play.root / "rewritten.pate", manifest, SERVER_KEY, messages)
    return play.root / "rewritten.pate"


# Requests, on their way to a party.


def test_another_partys_envelope_is_refused(play: Play) -> None:
    error = refused(play, out(play, "b"), "a")
    assert isinstance(error, RefusedError)
    assert str(error) == "this envelope is for b, and this is a"


def test_an_altered_or_cut_envelope_is_refused(play: Play) -> None:
    path = out(play, "a")
    whole = path.read_bytes()
    for content in (
        whole[:-1],
        whole + b"x",
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole[:300],
        b"",
    ):
        path.write_bytes(content)
        assert isinstance(refused(play, path, "a"), ProtocolError)


def test_an_answer_brought_to_a_party_is_refused(play: Play) -> None:
    done = play.answer(out(play, "b"), "b")
    assert "this is an answer of b" in str(refused(play, done.path, "a"))


def test_a_message_of_another_campaign_or_key_is_refused(play: Play, tmp_path: Path) -> None:
    other = begun(Play(tmp_path / "other", id="1e" * 16))
    path = out(play, "a")
    with opened(path) as envelope:
        own = [*envelope.messages()]
    with opened(out(other, "a")) as envelope:
        foreign = [*envelope.messages()]
    error = refused(play, rewritten(play, path, [*own, foreign[0]]), "a")
    assert "of another campaign than the envelope" in str(error)
    stranger = Ed25519PrivateKey.generate()
    request = wire.read_request(own[0])[1]
    request.ClearField("digest")  # which reading adds
    error = refused(play, rewritten(play, path, [wire.sign_request(request, stranger)]), "a")
    assert "signed by another key" in str(error)


def test_a_strangers_envelope_is_refused_by_the_key_of_the_enrolment(play: Play) -> None:
    pinned = SERVER_KEY.public_key().public_bytes_raw()
    path = forged(play, out(play, "a"), Ed25519PrivateKey.generate())
    with pytest.raises(RefusedError, match="the server of our enrolment has"):
        play.answers("a", pinned).answer(path, play.root)
    assert play.ledger("a").campaigns() == ()


def test_replies_in_place_of_requests_are_refused(play: Play) -> None:
    path = out(play, "a")
    error = refused(play, rewritten(play, path, [b"no request"]), "a")
    assert isinstance(error, ProtocolError)


@pytest.mark.parametrize("years", [3, 30])
def test_a_clock_years_ahead_refuses_and_one_behind_does_not(tmp_path: Path, years: int) -> None:
    play = Play(tmp_path)
    play.days = 14
    begun(play)
    path = out(play, "a")
    play.now = NOW + timedelta(days=365 * years)
    error = refused(play, path, "a")
    assert text_of(NOW + timedelta(days=14)) in str(error)
    assert "correct this machine's clock" in str(error)
    play.now = NOW - timedelta(days=365 * years)
    play.answer(path, "a")


def test_an_answered_envelope_is_answered_again_whatever_the_date(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.days = 14
    path = out(begun(play), "a")
    first = play.answer(path, "a").path.read_bytes()
    play.now += timedelta(days=100)
    again = play.answer(path, "a", play.root)
    assert again.again
    assert again.path.read_bytes() == first
    assert len(play.ledger("a").campaigns()[0].files) == 1


def test_of_two_envelopes_with_one_number_the_second_is_refused(play: Play) -> None:
    """A server that forks: it learns nothing from the second."""
    path = out(play, "a")
    play.answer(path, "a")
    fork = forged(play, path, until=text_of(NOW + timedelta(days=5)))
    assert "an old one, or one of two" in str(refused(play, fork, "a"))
    later = forged(play, path, number=7)
    play.answer(later, "a", play.root)
    old = forged(play, path, number=6)
    assert "envelope 7 of campaign 0f0f0f0f was answered before" in str(refused(play, old, "a"))


# Answers, on their way back.


def brought(play: Play, content: bytes) -> None:
    """Bring a file to the server, under any name, and let it look."""
    place = play.folder / "in"
    (place / f"{len([*place.iterdir()])}.pate").write_bytes(content)
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()


def answered(play: Play, name: str) -> bytes:
    return play.answer(out(play, name), name, play.root).path.read_bytes()


def known(play: Play) -> set[str]:
    """Parties that the server has heard of."""
    return {each.party for each in play.folders().store.envelopes() if each.answered}


def test_an_altered_answer_is_not_taken_and_the_true_one_is(play: Play) -> None:
    whole = answered(play, "a")
    for at in (5, 200, 700, len(whole) - 5):
        brought(play, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert known(play) == set()
    assert len({line.split()[0] for line in play.complaints()}) == 4
    brought(play, whole)
    assert known(play) == {"a"}


def test_an_answer_of_another_campaign_is_not_taken(play: Play, tmp_path: Path) -> None:
    other = begun(Play(tmp_path / "other", id="1e" * 16))
    brought(play, answered(other, "a"))
    assert "of campaign 1e1e1e1e, not of this one" in play.complaints()[0]
    assert known(play) == set()


def test_an_answer_to_another_envelope_or_of_a_stranger_is_not_taken(play: Play) -> None:
    content = answered(play, "a")
    path = play.root / "answer.pate"
    path.write_bytes(content)
    key = identity_key(play.home("a"))
    brought(play, forged(play, path, key, answers=bytes(32)).read_bytes())
    brought(play, forged(play, path, key, party="b").read_bytes())
    brought(play, forged(play, path, key, party="zoe").read_bytes())
    brought(play, forged(play, path, key, campaign="1e" * 16).read_bytes())
    assert known(play) == set()
    assert len({line.split()[0] for line in play.complaints()}) == 4


def test_with_enrolment_only_the_partys_own_key_counts(tmp_path: Path) -> None:
    play = Play(tmp_path)
    keys = {
        name: identity_key(play.home(name)) for name in NAMES if not play.ledger(name).campaigns()
    }
    play.enrolled = lambda: {n: k.public_key().public_bytes_raw() for n, k in keys.items()}
    begun(play)
    content = answered(play, "a")
    (play.root / "answer.pate").write_bytes(content)
    # A stranger signs what it found on its way: the seal is not of its key, and neither is the name.
    brought(
        play, forged(play, play.root / "answer.pate", Ed25519PrivateKey.generate()).read_bytes()
    )
    assert "not signed by the enrolled key of a" in play.complaints()[0]
    brought(play, content)
    assert known(play) == {"a"}


def test_a_second_answer_does_not_take_the_place_of_the_first(play: Play) -> None:
    path = play.root / "request.pate"
    path.write_bytes(out(play, "a").read_bytes())
    brought(play, answered(play, "a"))
    shutil.rmtree(play.home("a"))  # the same name, from a home that knows of nothing
    brought(play, play.answer(path, "a", play.root).path.read_bytes())
    assert "another answer of a to envelope 1 came before" in play.complaints()[0]


def test_what_a_carrier_carries_says_nothing_of_the_votes(tmp_path: Path) -> None:
    """The votes of a plain campaign are in no file, in either direction."""
    play = Play(tmp_path)
    play.serve()
    assert play.responders() == NAMES
    votes = bytes([25, 0] * 6)
    assert not any(votes in content for content in play.files.values())
    # At the party they are deleted with the end of the campaign; only the last answer is left.
    assert len(list((play.home("a") / "envelopes").glob("*.reply"))) == 1
    play.answer(out(play, "a"), "a", play.root)
    left = {each.suffix for each in (play.home("a") / "envelopes").iterdir()}
    assert left == {".pate", ".sent"}
    assert len(list((play.home("a") / "envelopes").glob("*.pate"))) == 1


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(exchange_module, "_FAREWELL_S", 0.1)
    watched = Play(tmp_path)
    watched.carrier = lambda: False
    with pytest.raises(StuckError):
        watched.serve()
    for name in ("inbox", "outbox"):
        (tmp_path / name).mkdir()
    return watched


def watch(watched: Play, said: list[str]) -> Watch:
    return Watch(watched.answers("a"), watched.root / "inbox", watched.root / "outbox", said.append)


def bring(watched: Play, name: str) -> Path:
    path = watched.outgoing(name)
    assert path is not None
    to = watched.root / "inbox" / path.name
    to.write_bytes(path.read_bytes())
    return to


def test_each_envelope_is_answered_once(watched: Play) -> None:
    said: list[str] = []
    bring(watched, "a")
    assert watch(watched, said).once() == []
    (answer,) = (watched.root / "outbox").iterdir()
    answer.unlink()  # a robot took it
    assert watch(watched, said).once() == []
    assert list((watched.root / "outbox").iterdir()) == []
    assert len(said) == 1


def test_a_file_that_is_not_ours_or_half_written_is_named_once_and_tried_when_it_changes(
    watched: Play,
) -> None:
    said: list[str] = []
    path = bring(watched, "a")
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    bring(watched, "b")
    watching = watch(watched, said)
    errors = watching.once()
    assert [each.exit_code for each in errors] == [30, 32]
    assert watching.look() == []
    path.write_bytes(whole)
    assert watching.look() == []
    assert [each.name for each in (watched.root / "outbox").iterdir()] == [
        "campaign-0f0f0f0f.round-1.from-a.pate"
    ]
    assert len(said) == 3


def test_an_answer_that_had_not_appeared_when_the_process_died_appears(
    watched: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        if name == "envelope-recorded":
            raise Killed

    bring(watched, "a")
    with monkeypatch.context() as patched:
        patched.setattr(envelopes, "reach", die)
        with pytest.raises(Killed):
            watch(watched, []).once()
    assert list((watched.root / "outbox").iterdir()) == []
    assert watch(watched, []).once() == []
    assert len(list((watched.root / "outbox").iterdir())) == 1
    assert len(watched.ledger("a").campaigns()[0].files) == 1


def test_a_folder_must_be_there(watched: Play) -> None:
    with pytest.raises(DataError, match="no folder"):
        Watch(watched.answers("a"), watched.root / "absent", watched.root, lambda _: None)


def test_training_for_an_envelope_stores_teachers_and_answers_nothing(
    watched: Play, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    held = Images(rng.integers(0, 255, (40, 4, 4, 1), dtype=np.uint8))
    write_labelled(tmp_path / "records.npz", Dataset(held, np.arange(40) % 2, ("x", "y")))
    policy, home = tmp_path / "policy.toml", tmp_path / "site"
    policy.write_text('campaigns = "any"\naggregation = ["plain"]\n')
    command = (
        "train", bring(watched, "a"), "--data", tmp_path / "records.npz", "--teachers", "2",
        "--home", home, "--policy", policy, "--json",
    )  # fmt: skip
    for _ in range(2):  # the second time nothing is left to train
        done = CliRunner().invoke(program_of(app), [*map(str, command)], prog_name="pate-party")
        assert done.exit_code == 0, (done.output, done.exception)
        assert json.loads(done.stdout) == {"party": "a", "campaign": "0f" * 16}
    assert [path for path in (home / "teachers").rglob("*") if path.is_file()]
    assert PartyLedger(home / LEDGER_FILE).find("0f" * 16) is None
    assert not [*(home / "envelopes").glob("*.pate"), *(watched.folder / "in").iterdir()]
