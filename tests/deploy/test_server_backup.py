"""A campaign's backup: consistent while it runs, and never restored over a newer ledger."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.ledger.backup import back_up, restore
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.results.report import LEDGER_FILE
from pate.errors import LedgerError, StateError, UsageError
from pate.mechanisms import Outcome
from pate.storage.hash_chain import Head
from pate.storage.manifest import MANIFEST
from tests.support.server.campaigns import label, make_spec, start


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with three copies: after the votes, after some labels, and when it was finished."""
    root = tmp_path_factory.mktemp("kept")
    folder = root / "server" / "trial"
    folder.mkdir(parents=True)
    (folder / "public.bin").write_bytes(b"the public set")
    with start(folder / LEDGER_FILE) as ledger:
        back_up(folder, root / "voted")
        charge = ledger.charge([0, 1])
        back_up(folder, root / "charged")
        label(ledger)
        ledger.end_round(wants_predictions=False)
        back_up(folder, root / "labelled")
        ledger.finish()
        back_up(folder, root / "finished")
        assert charge.entry < ledger.state().head.seq
    return root


@pytest.fixture
def root(kept: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(kept, copy)
    return copy


def alone(root: Path, name: str) -> Path:
    """One of the copies, without the others in its folder."""
    place = root / "only" / name
    shutil.copytree(root / name, place)
    return place


def head_of(folder: Path) -> Head:
    return verify(folder / LEDGER_FILE).head


def test_copies_taken_while_labels_are_released_are_each_one_moment_of_the_campaign(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "trial"
    folder.mkdir()
    enough = threading.Event()
    with start(folder / LEDGER_FILE, make_spec(epsilon=100.0)) as ledger:

        def work() -> None:
            for query in range(200):
                if enough.is_set():
                    return
                charge = ledger.charge([query])
                ledger.release(charge, [Outcome(None, None, charge.events[:1])])

        worker = threading.Thread(target=work)
        worker.start()
        try:
            heads: list[Head] = []
            while len(set(heads)) < 4:
                assert worker.is_alive(), "it ended before copies fell on four moments"
                back_up(folder, tmp_path / f"copy-{len(heads)}")
                heads.append(head_of(tmp_path / f"copy-{len(heads)}"))
        finally:
            enough.set()
            worker.join()
        assert heads == sorted(heads, key=lambda head: head.seq)
        for head in heads:
            verify(folder / LEDGER_FILE, head)  # each is an entry of the chain as it came to be


def test_a_copy_is_one_private_file_and_the_ledger_is_untouched(root: Path) -> None:
    before = head_of(root / "server" / "trial")
    made = back_up(root / "server" / "trial", root / "again")
    assert sorted(path.name for path in (root / "again").iterdir()) == [
        MANIFEST, LEDGER_FILE, "public.bin",
    ]  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in [root / "again", *root.glob("again/*")])
    assert made["head"] == str(before) == str(head_of(root / "server" / "trial"))
    with closing(sqlite3.connect(root / "again" / LEDGER_FILE)) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with pytest.raises(StateError, match="nothing is overwritten"):
        back_up(root / "server" / "trial", root / "again")


def test_a_finished_campaign_comes_back_as_it_was(root: Path) -> None:
    folder = root / "elsewhere" / "trial"
    done = restore(root / "finished", folder, head=None, close=False)
    assert done["phase"] == "finished"
    assert head_of(folder) == head_of(root / "server" / "trial")
    assert (folder / "public.bin").read_bytes() == b"the public set"
    assert folder.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in folder.iterdir()) == [LEDGER_FILE, "public.bin"]


def test_a_campaign_that_may_have_gone_on_needs_a_word(root: Path) -> None:
    place, folder = alone(root, "voted"), root / "elsewhere" / "trial"
    with pytest.raises(UsageError, match=r"spending .*--head.*--close"):
        restore(place, folder, head=None, close=False)
    assert not folder.exists()
    assert not list(folder.parent.iterdir())


def test_a_copy_older_than_the_head_that_is_known_is_refused(root: Path) -> None:
    place, folder = alone(root, "voted"), root / "elsewhere" / "trial"
    newest = str(head_of(root / "server" / "trial"))
    for close in (False, True):
        with pytest.raises(LedgerError, match="was in this ledger and is missing"):
            restore(place, folder, head=newest, close=close)
    assert not folder.exists()


def test_a_head_of_another_history_is_refused(root: Path) -> None:
    """As of a ledger that went on after an old copy was put back: same numbers, other entries."""
    place, folder = alone(root, "labelled"), root / "elsewhere" / "trial"
    held = head_of(place)
    other = Head(held.seq, bytes(32))
    with pytest.raises(LedgerError, match="differs from the expected"):
        restore(place, folder, head=str(other), close=False)
    assert not folder.exists()


def test_with_the_newest_head_it_goes_on(root: Path) -> None:
    place, folder = alone(root, "voted"), root / "elsewhere" / "trial"
    head = head_of(place)
    assert restore(place, folder, head=str(head), close=False)["phase"] == "labelling"
    with Ledger.open(folder / LEDGER_FILE) as ledger:
        assert label(ledger).labels > 0


def test_closed_it_keeps_its_labels_and_answers_nothing_more(root: Path) -> None:
    place, folder = alone(root, "charged"), root / "elsewhere" / "trial"
    done = restore(place, folder, head=None, close=True)
    assert done["phase"] == "finished"
    found = verify(folder / LEDGER_FILE, head_of(place))
    assert found.head.seq == head_of(place).seq + 1
    assert found.wasted > 0  # the charge that stood open stays spent
    with Ledger.open(folder / LEDGER_FILE) as ledger, pytest.raises(StateError):
        ledger.charge([5])
    # The copy itself is as it was, for another look.
    assert verify(place / LEDGER_FILE).phase == "labelling"


def test_nothing_is_put_in_the_place_of_a_ledger(root: Path) -> None:
    folder = root / "server" / "trial"
    with pytest.raises(StateError, match=r"its ledger verifies.*there is nothing to restore"):
        restore(alone(root, "finished"), folder, head=None, close=False)
    (folder / LEDGER_FILE).write_bytes(b"\0" * 100)
    with pytest.raises(StateError, match="damaged, move it away, but keep it"):
        restore(root / "finished", folder, head=None, close=False)
    assert (folder / LEDGER_FILE).read_bytes() == b"\0" * 100


def test_a_manifest_that_lies_about_its_ledger_is_refused(root: Path) -> None:
    place = alone(root, "voted")
    fields = json.loads((place / MANIFEST).read_text())
    fields["head"] = f"999:{'0' * 64}"
    (place / MANIFEST).write_text(json.dumps(fields))
    with pytest.raises(LedgerError, match="not the one that its manifest names"):
        restore(place, root / "elsewhere", head=None, close=True)


def test_the_commands_say_what_they_did(root: Path) -> None:
    home = str(root / "server")

    def does(*arguments: str) -> dict[str, object]:
        done = CliRunner().invoke(app, ["ledger", *arguments, "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    made = does("backup", "--out", str(root / "new"), "--home", home, "--campaign", "trial")
    back = does("restore", str(root / "new"), "--home", str(root / "second"))
    assert back["head"] == made["head"]
    assert back["folder"] == str(root / "second" / "trial")
