"""A folder watched: each envelope answered once, whatever else lies there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from aggregator_server.exchange import exchange as exchange_module
from party.cli.main import app
from party.envelopes import Watch, answering
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.data.values import Dataset, Images
from pate.errors import DataError
from pate.runtime.command import program_of
from simulation.datasets import write_labelled
from tests.support.world.envelopes import Play, StuckError
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(exchange_module, "_FAREWELL_S", 0.1)
    play = Play(tmp_path)
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    for name in ("inbox", "outbox"):
        (tmp_path / name).mkdir()
    return play


def watch(play: Play, said: list[str]) -> Watch:
    return Watch(play.answers("a"), play.root / "inbox", play.root / "outbox", said.append)


def bring(play: Play, name: str) -> Path:
    path = play.outgoing(name)
    assert path is not None
    to = play.root / "inbox" / path.name
    to.write_bytes(path.read_bytes())
    return to


def test_each_envelope_is_answered_once(play: Play) -> None:
    said: list[str] = []
    bring(play, "a")
    assert watch(play, said).once() == []
    (answer,) = (play.root / "outbox").iterdir()
    answer.unlink()  # a robot took it
    assert watch(play, said).once() == []
    assert list((play.root / "outbox").iterdir()) == []
    assert len(said) == 1


def test_a_file_that_is_not_ours_or_half_written_is_named_once_and_tried_when_it_changes(
    play: Play,
) -> None:
    said: list[str] = []
    path = bring(play, "a")
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    bring(play, "b")
    watching = watch(play, said)
    errors = watching.once()
    assert [each.exit_code for each in errors] == [30, 32]
    assert watching.look() == []
    path.write_bytes(whole)
    assert watching.look() == []
    assert [each.name for each in (play.root / "outbox").iterdir()] == [
        "campaign-0f0f0f0f.round-1.from-a.pate"
    ]
    assert len(said) == 3


def test_an_answer_that_had_not_appeared_when_the_process_died_appears(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        if name == "envelope-recorded":
            raise Killed

    bring(play, "a")
    with monkeypatch.context() as patched:
        patched.setattr(answering, "reach", die)
        with pytest.raises(Killed):
            watch(play, []).once()
    assert list((play.root / "outbox").iterdir()) == []
    assert watch(play, []).once() == []
    assert len(list((play.root / "outbox").iterdir())) == 1
    assert len(play.ledger("a").campaigns()[0].files) == 1


def test_a_folder_must_be_there(play: Play) -> None:
    with pytest.raises(DataError, match="no folder"):
        Watch(play.answers("a"), play.root / "absent", play.root, lambda _: None)


def test_training_for_an_envelope_stores_teachers_and_answers_nothing(
    play: Play, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    held = Images(rng.integers(0, 255, (40, 4, 4, 1), dtype=np.uint8))
    write_labelled(tmp_path / "records.npz", Dataset(held, np.arange(40) % 2, ("x", "y")))
    policy, home = tmp_path / "policy.toml", tmp_path / "site"
    policy.write_text('campaigns = "any"\naggregation = ["plain"]\n')
    command = (
        "train", bring(play, "a"), "--data", tmp_path / "records.npz", "--teachers", "2",
        "--home", home, "--policy", policy, "--json",
    )  # fmt: skip
    for _ in range(2):  # the second time nothing is left to train
        done = CliRunner().invoke(program_of(app), [*map(str, command)], prog_name="pate-party")
        assert done.exit_code == 0, (done.output, done.exception)
        assert json.loads(done.stdout) == {"party": "a", "campaign": "0f" * 16}
    assert [path for path in (home / "teachers").rglob("*") if path.is_file()]
    assert PartyLedger(home / LEDGER_FILE).find("0f" * 16) is None
    assert not [*(home / "envelopes").glob("*.pate"), *(play.folder / "in").iterdir()]
