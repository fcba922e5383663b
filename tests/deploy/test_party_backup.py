"""The backup of a party's ledger: with the noise of every answer, never silently outdated."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from party.backup import NOISE_FILE, back_up, restore
from party.cli.main import app
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.voting.casting import NoiseShares
from pate.errors import LedgerError, RefusedError, StateError, UsageError
from pate.runtime.home import locked
from tests.support.party.offers import SIX, answer_and_open, joining, queries, settled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: A campaign whose shares were drawn before the first copy was taken.
CAMPAIGN, BATCH = bytes(16), bytes(32)
VOTES = np.ones((2, 3), dtype=np.int64)


def drawn(number: int) -> NDArray[np.int64]:
    return np.arange(number, dtype=np.int64)


def never(number: int) -> NDArray[np.int64]:
    raise AssertionError(f"{number} fresh draws for votes that were hidden before")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A party's home with copies of its ledger before and after its second unmasking."""
    home = tmp_path / "home"
    ledger = PartyLedger(home / LEDGER_FILE)
    NoiseShares(home / NOISE_FILE).share(CAMPAIGN, BATCH, VOTES, drawn, answered=False)
    ledger.join(joining())
    answer_and_open(ledger, settled(), queries(0, 2))
    back_up(home, tmp_path / "copies" / "first")
    answer_and_open(ledger, settled(), queries(2, 2))
    back_up(home, tmp_path / "copies" / "second")
    return tmp_path


def alone(root: Path, name: str) -> Path:
    place = root / "only" / name
    shutil.copytree(root / "copies" / name, place)
    return place


def head_of(home: Path) -> str:
    return PartyLedger(home / LEDGER_FILE, read_only=True).head


def test_with_its_newest_head_a_party_knows_all_it_knew(root: Path) -> None:
    home, head = root / "new", head_of(root / "home")
    assert restore(root / "copies" / "second", home, head=head)["head"] == head
    with pytest.raises(RefusedError, match="unmasked with other parties before"):
        answer_and_open(PartyLedger(home / LEDGER_FILE), settled(), queries(2, 2), SIX[:5])
    again = NoiseShares(home / NOISE_FILE).share(CAMPAIGN, BATCH, VOTES, never, answered=False)
    assert again.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not list(home.glob(".*"))


def test_a_ledger_out_of_date_forgets_and_are_refused_unless_that_is_said(root: Path) -> None:
    place, home, head = alone(root, "first"), root / "new", head_of(root / "home")
    with pytest.raises(UsageError, match=r"made to answer twice.*--head.*--entries-lost"):
        restore(place, home, head=None)
    for entries_lost in (False, True):
        with pytest.raises(LedgerError, match="was in this ledger and is missing"):
            restore(place, home, head=head, entries_lost=entries_lost)
    assert not (home / LEDGER_FILE).exists()
    restore(place, home, head=None, entries_lost=True)
    assert head_of(home) == head_of(place)


def test_a_head_of_another_history_is_refused(root: Path) -> None:
    head = head_of(root / "home")
    number = int(head.partition(":")[0])
    for other, error in (
        (f"{number}:{'0' * 64}", LedgerError),
        (f"{number - 1}:{'0' * 64}", LedgerError),
        ("the newest", UsageError),
    ):
        with pytest.raises(error):
            restore(alone(root, "second"), root / "new", head=other)
        shutil.rmtree(root / "only")
    earlier = head_of(root / "copies" / "first")
    restore(alone(root, "second"), root / "new", head=earlier)  # it is in the chain
    assert head_of(root / "new") == head


@pytest.mark.parametrize("held", [LEDGER_FILE, NOISE_FILE, f"{LEDGER_FILE}-wal"])
def test_nothing_is_overwritten(root: Path, held: str) -> None:
    home = root / "new"
    home.mkdir()
    (home / held).write_bytes(b"whatever")
    with pytest.raises(StateError, match="nothing is overwritten"):
        restore(root / "copies" / "second", home, head=head_of(root / "home"))
    assert [path.name for path in home.iterdir() if path.name != "lock"] == [held]


#: Restores, and is killed as by `kill -9` when the ledger is about to get its name.
_KILLED = """
import os, signal, sys
from pathlib import Path
from party.backup import restore

real = os.link
def link(source, target):
    if target.name == "ledger.db":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(source, target)
os.link = link
restore(Path(sys.argv[1]), Path(sys.argv[2]), head=sys.argv[3])
"""


def test_a_restore_that_is_killed_half_way_can_be_done_again(root: Path) -> None:
    place, home, head = root / "copies" / "second", root / "new", head_of(root / "home")
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(place), str(home), head], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert (home / NOISE_FILE).exists()
    assert not (home / LEDGER_FILE).exists()
    with pytest.raises(LedgerError, match="is missing"):
        PartyLedger(home / LEDGER_FILE)
    assert restore(place, home, head=head)["head"] == head
    again = NoiseShares(home / NOISE_FILE).share(CAMPAIGN, BATCH, VOTES, never, answered=False)
    assert again.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(StateError, match=r"ledger.db exists already"):
        restore(place, home, head=head)


def test_noise_of_another_moment_stays_though_there_is_no_ledger(root: Path) -> None:
    home = root / "home"
    NoiseShares(home / NOISE_FILE).share(CAMPAIGN, bytes([1]) * 32, VOTES, drawn, answered=False)
    head = head_of(home)
    for path in home.glob(f"{LEDGER_FILE}*"):
        path.unlink()
    with pytest.raises(StateError, match=r"noise.db exists already"):
        restore(root / "copies" / "second", home, head=head)


def test_not_under_the_feet_of_a_party_that_runs(root: Path) -> None:
    home = root / "new"
    with locked(home / "lock", "a pate-party"), pytest.raises(StateError, match="in use"):
        restore(root / "copies" / "second", home, head=head_of(root / "home"))


def test_copies_taken_while_a_party_answers_have_the_noise_of_every_answer(root: Path) -> None:
    """Noise is written before the answer that it goes out with: so must the copies be taken."""
    home, enough = root / "home", threading.Event()
    ledger, noise = PartyLedger(home / LEDGER_FILE), NoiseShares(home / NOISE_FILE)

    def work() -> None:
        for at in range(10, 1000):
            if enough.is_set():
                return
            noise.share(CAMPAIGN, at.to_bytes(32, "big"), VOTES, drawn, answered=False)
            answer_and_open(ledger, settled(), queries(at, 1))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        counts: list[int] = []
        while len(set(counts)) < 3:
            assert worker.is_alive(), "it ended before copies fell on three moments"
            copy = root / f"copy-{len(counts)}"
            back_up(home, copy)
            (campaign,) = PartyLedger(copy / LEDGER_FILE, read_only=True).campaigns()
            counts.append(len(campaign.batches))
            held = NoiseShares(copy / NOISE_FILE)
            for at in range(10, 10 + len(campaign.batches) - 2):
                held.share(CAMPAIGN, at.to_bytes(32, "big"), VOTES, never, answered=False)
    finally:
        enough.set()
        worker.join()


def test_the_commands_say_what_they_did(root: Path) -> None:
    def does(*arguments: str) -> dict[str, object]:
        done = CliRunner().invoke(app, [*arguments, "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    made = does("backup", "--out", str(root / "new"), "--home", str(root / "home"))
    back = does(
        "restore", str(root / "new"), "--home", str(root / "b"), "--head", str(made["head"])
    )
    assert back["head"] == made["head"]
