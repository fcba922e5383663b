"""A whole campaign through files only, and the server's options for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.exchange import folders
from aggregator_server.exchange.by_envelope import ByEnvelope, check_goes_by_envelope
from aggregator_server.exchange.presence import in_words
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE
from pate.envelopes import write as write_envelope
from pate.errors import UsageError
from pate.runtime.command import program_of
from tests.support.server.campaigns import make_spec
from tests.support.world.envelopes import NAMES, Play, StuckError
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def seldom(play: Play) -> Callable[[], bool]:
    """Return a carrier that comes each sixth time: in between the server gives up, and starts again."""
    turns = 0

    def carrier() -> bool:
        nonlocal turns
        turns += 1
        return play.carry() if turns % 6 == 5 else False

    return carrier


def test_five_parties_vote_through_files_only(play: Play) -> None:
    play.serve()
    assert play.responders() == NAMES
    play.carry()
    play.note()
    # Who are you, with the public set; votes; the end.
    for name in NAMES:
        files = [f"campaign-0f0f0f0f.round-{at}.for-{name}.pate" for at in (1, 2, 3)]
        assert sorted(each for each in play.files if each.endswith(f"for-{name}.pate")) == files
        (record,) = play.ledger(name).campaigns()
        assert [each.number for each in record.files.values()] == [1, 2, 3]
        assert record.ending is not None
        assert len(record.batches) == 1
    assert play.complaints() == []


MASKED: dict[str, Any] = {"aggregation": "masked", "min_parties": 4, "colluders": 1}


def test_a_lost_masked_answer_is_a_dropout_and_a_late_one_is_refused_for_good(
    tmp_path: Path,
) -> None:
    play = Play(tmp_path, **MASKED)
    late: dict[str, bytes] = {}

    def carrier() -> bool:
        masked = any("round-3" in name for name in play.files)
        if masked and not late and (path := play.outgoing("d")) is not None:
            done = play.answer(path, "d", play.root)
            late[done.path.name] = done.path.read_bytes()
        if play.carry(without=["d"] if masked else []):
            return True
        if not masked or not play.close_step(looked=True):
            return False
        for name, content in late.items():
            (play.folder / "in" / name).write_bytes(content)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert any("came too late" in line for line in play.lines.said)
    for name in play.responders():
        (record,) = play.ledger(name).campaigns()
        assert [each.survivors for each in record.opened] == [("a", "b", "c", "e")]


def test_a_server_that_starts_again_goes_on_with_the_same_masked_sum(tmp_path: Path) -> None:
    """Who are you; keys ahead; masked votes; who is in the sum; shares for one list; the end."""
    play = Play(tmp_path, **MASKED)
    play.carrier = seldom(play)
    for _ in range(30):
        try:
            play.serve()
        except StuckError:
            continue
        break
    assert play.responders() == NAMES
    rounds = {int(name.split(".")[1].removeprefix("round-")) for name in play.files}
    assert rounds == {1, 2, 3, 4, 5, 6}


def voting(play: Play) -> bool:
    """Whether votes are being asked for."""
    return any("round-2" in name for name in play.files)


def test_an_answer_after_the_step_was_closed_changes_nothing(play: Play) -> None:
    late: dict[str, bytes] = {}

    def carrier() -> bool:
        if voting(play) and not late and (path := play.outgoing("d")) is not None:
            # Answered in time, and under way for too long.
            done = play.answer(path, "d", play.root)
            late[done.path.name] = done.path.read_bytes()
        if play.carry(without=["d"] if voting(play) else []):
            return True
        if not play.close_step(looked=True):
            return False
        for name, content in late.items():
            (play.folder / "in" / name).write_bytes(content)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert any("came too late" in line for line in play.lines.said)
    (found,) = [each for each in play.folders().store.envelopes() if each.state == "late"]
    assert (found.party, found.number) == ("d", 2)
    assert in_words(found.facts()).endswith("too late: the answer is refused permanently")


def test_a_step_ends_at_the_date_of_its_envelopes(play: Play) -> None:
    play.days = 2.5

    def carrier() -> bool:
        if play.carry(without=["b"] if voting(play) else []):
            return True
        if not voting(play) or play.now.day > 1:
            return False
        play.now += timedelta(days=2.6)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "c", "d", "e")
    assert any("b: no answer until the date" in line for line in play.lines.said)


def test_some_are_online_and_the_others_come_by_envelope(play: Play) -> None:
    """One sum of both: nobody online is waited for longer than the slowest envelope."""
    play.by_envelope = ("c", "d", "e")
    for name in ("a", "b"):
        play.parties.start(name)
    play.serve()
    assert play.responders() == NAMES
    assert {name.split("-")[-1] for name in play.files} == {
        f"{name}.pate" for name in ("c", "d", "e")
    }
    assert {step for _, step in play.parties.asked} == {"describe", "public_piece", "ask", "finish"}


def test_a_server_that_starts_again_asks_nothing_twice(play: Play) -> None:
    """Its files are lost in between, in both folders: they come again, as they were."""
    play.carrier = seldom(play)
    for _ in range(20):
        try:
            play.serve()
        except StuckError:
            play.wipe("out")
            continue
        break
    assert play.responders() == NAMES
    assert {name.split(".")[1] for name in play.files} == {"round-1", "round-2", "round-3"}


def test_a_carrier_may_take_a_file_as_soon_as_it_appears(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves files, and does not copy them: the server needs none of them again."""
    write, bag = write_envelope, play.root / "bag"
    bag.mkdir()

    def taken(path: Path, *content: Any) -> None:
        write(path, *content)
        path.rename(bag / path.name)

    def carrier() -> bool:
        carried = sorted(bag.iterdir())
        for path in carried:
            play.answer(path, path.stem.rpartition(".for-")[2])
            path.unlink()
        return bool(carried)

    monkeypatch.setattr(folders, "write", taken)
    play.carrier = carrier
    play.serve()
    assert play.responders() == NAMES


def test_what_is_answered_while_the_server_is_dead_counts(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at the moment an envelope is outside; the answer is there when it starts again."""
    write, dead = write_envelope, set[str]()

    def died(path: Path, *content: Any) -> None:
        write(path, *content)
        if path.name not in dead:
            dead.add(path.name)
            raise Killed

    monkeypatch.setattr(folders, "write", died)
    for _ in range(30):
        try:
            play.serve()
        except Killed:
            play.carry()
            play.note()
            continue
        break
    assert play.responders() == NAMES
    assert len(dead) == 3 * len(NAMES)
    assert play.complaints() == []


NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NAMED = ("a", "b", "c")


def test_all_parties_or_some_of_them() -> None:
    spec = make_spec(parties=NAMED, min_parties=2)
    assert ByEnvelope(Path("x")).names(spec) == NAMED
    assert ByEnvelope(Path("x")).all_of(spec)
    some = ByEnvelope(Path("x"), ("b", "c"))
    assert some.names(spec) == ("b", "c")
    assert not some.all_of(spec)
    counted = make_spec(parties=3, min_parties=2)
    assert some.names(counted) == ("b", "c")


@pytest.mark.parametrize(
    ("chosen", "terms", "said"),
    [
        (None, {"parties": 3}, "each party must be named"),
        (None, {"parties": ("a", "b", "<i>c</i>")}, "by envelope: "),
        (("../d",), {"parties": 3}, "by envelope: "),
        (("b", "zoe"), {"parties": NAMED}, "--by-envelope names zoe, not in --parties"),
        (
            None,
            {"parties": NAMED, "aggregation": "masked", "vote_proofs": True},
            "proofs of votes need a connection",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    chosen: tuple[str, ...] | None, terms: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ByEnvelope(Path("x"), chosen).names(make_spec(**({"min_parties": 3} | terms)))


def test_a_campaign_by_envelope_goes_on_by_envelope(tmp_path: Path) -> None:
    check_goes_by_envelope(tmp_path, None)
    Store(tmp_path / FILE)
    check_goes_by_envelope(tmp_path, ByEnvelope(tmp_path))
    with pytest.raises(UsageError, match="--envelopes DIR"):
        check_goes_by_envelope(tmp_path, None)


def sent(folder: Path) -> Store:
    """The store of two envelopes that are out, to be answered until a date."""
    store = Store(folder / FILE, ("a", "b"), days=2, clock=lambda: NOW)
    for name in ("a", "b"):
        store.ask(name, name.encode(), b"body", "ask")
    for out in store.due():
        store.note(out, bytes(31) + out.party.encode())
    return store


def shown(*command: str) -> tuple[str, Any]:
    """What a command of the server prints on its screen, and as JSON."""
    said = CliRunner().invoke(program_of(app), command, prog_name="pate-server")
    assert said.exit_code == 0, said.output
    told = CliRunner().invoke(program_of(app), [*command, "--json"], prog_name="pate-server")
    return said.output, json.loads(told.stdout)


def test_what_is_out_and_in_is_listed_by_party_with_dates(tmp_path: Path) -> None:
    with Ledger.create(
        tmp_path / "trial" / LEDGER_FILE, make_spec(parties=("a", "b"), min_parties=2)
    ):
        store = sent(tmp_path / "trial")
    where = ("--home", str(tmp_path), "--campaign", "trial")
    until = "made 2026-11-01T12:00:00Z, not answered; may be answered until 2026-11-03T12:00:00Z"
    screen, told = shown("envelopes", "list", *where)
    assert f"a: envelope 1, {until}" in screen
    assert f"b: envelope 1, {until}" in screen
    first, second = told["envelopes"]
    assert first["file"] == f"{'00' * 31}61"
    assert (second["party"], second["answered"], second["over"]) == ("b", None, False)

    answered = store.envelopes()[0]
    assert store.take(answered, bytes(32), bytes(32), [b"votes"]) is not None
    screen, told = shown("status", *where)
    assert "a: envelope 1, made 2026-11-01T12:00:00Z, answered 2026-11-01T12:00:00Z" in screen
    assert f"b: envelope 1, {until}" in " ".join(screen.split())
    assert [each["answered"] for each in told["envelopes"]] == ["2026-11-01T12:00:00Z", None]


def test_closing_names_those_that_are_not_waited_for(tmp_path: Path) -> None:
    store = sent(tmp_path / "trial")
    where = ("--home", str(tmp_path), "--campaign", "trial")
    assert store.take(store.envelopes()[0], bytes(32), bytes(32), [b"votes"]) is not None
    screen, told = shown("envelopes", "close", *where)
    assert "no answer so far: b. A running server takes in what lies in its inbox" in screen
    assert told == {"closing": ["b"]}
    screen = shown("envelopes", "list", *where)[0]
    assert "b: envelope 1" in screen
    assert "the wait ends when the server next looks into its inbox" in screen
    assert store.close_due() == [("b", False)]
    store.due()
    assert "nothing of it is waited for" in shown("envelopes", "list", *where)[0]
    screen, told = shown("envelopes", "close", *where)
    assert "no votes are being waited for" in screen
    assert told == {"closing": []}


def test_names_and_days_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "public.npz").touch()
    for option in (["--by-envelope", "a"], ["--answer-days", "3"]):
        run = CliRunner().invoke(
            program_of(app),
            ["resume", *option, "--home", str(tmp_path), "--no-page"],
            prog_name="pate-server",
        )
        assert isinstance(run.exception, UsageError), run.output
        assert "need --envelopes DIR" in str(run.exception)
