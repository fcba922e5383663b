"""The output of a command, for people and programs, and how often lasting states are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from rich.table import Table

from pate.runtime.log import LOG, Line
from pate.runtime.screen import EVERY, HOUR, MINUTE, Pace, Reminder, Screen

ROOT = Path(__file__).resolve().parents[3]
#: A program that says a line, logs, warns, and ends in the way that its argument names.
PROGRAM = """
import logging, threading, warnings
import typer
from pate.errors import LedgerError
from pate.runtime.command import run
from pate.runtime.options import ConfigOption
from pate.runtime.screen import Screen

app = typer.Typer(add_completion=False)

@app.callback()
def group() -> None:
    pass

@app.command()
def work(how: str, config: ConfigOption = None) -> None:
    Screen("pate-test").say("north has come")
    logging.getLogger("lib").warning("slow %s", "disk")
    warnings.warn("old name")
    votes = [987654321]
    if how == "ledger":
        raise LedgerError("entry 7 was altered")
    if how == "bug":
        raise RuntimeError("a bug")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "thread":
        def fall() -> None:
            raise RuntimeError("in a thread")
        worker = threading.Thread(target=fall)
        worker.start()
        worker.join()

run(app, "pate-test")
"""


def program(
    *arguments: str, form: str | None = None
) -> tuple[int, str, list[dict[str, object]] | None]:
    """Run it: exit code, what it said, and that as JSON objects if all lines are."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **({} if form is None else {LOG: form})},
    )
    assert done.stdout == ""
    try:
        found = [json.loads(line) for line in done.stderr.splitlines()]
    except json.JSONDecodeError:
        return done.returncode, done.stderr, None
    return done.returncode, done.stderr, found


def test_a_listener_hears_what_is_said_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    screen, heard = Screen("pate-server"), list[Line]()
    screen.say("before")
    end = screen.listen(heard.append)
    before = datetime.now(UTC)
    screen.say("[bold]north[/bold] has come", "warning")
    end()
    end()
    screen.say("after")
    (line,) = heard
    assert (line.program, line.text, line.level) == (
        "pate-server",
        "[bold]north[/bold] has come",
        "warning",
    )
    assert timedelta(0) <= line.time - before < timedelta(minutes=1)
    said = capsys.readouterr().err.splitlines()
    assert [text.partition(" ")[2] for text in said] == [
        "pate-server: before",
        "pate-server: [bold]north[/bold] has come",
        "pate-server: after",
    ]


def test_a_listener_that_fails_is_dropped_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    screen, heard, calls = Screen("pate-server"), list[Line](), list[Line]()

    def broken(line: Line) -> None:
        calls.append(line)
        raise ValueError("the page is gone")

    screen.listen(broken)
    screen.listen(heard.append)
    screen.say("one")
    screen.say("two")
    assert [line.text for line in heard] == ["one", "two"]
    assert len(calls) == 1
    assert "dropped" in caplog.text


def test_lines_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Line(datetime(2026, 1, 2), "pate", "x")  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ValueError, match="level"):
        Line(datetime.now(UTC), "pate", "x", "debug")


def test_json_lines_hold_one_object_each_whatever_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG, "json")
    screen = Screen("pate-party")
    screen.say('zwei\nZeilen, "ß"')
    table = Table("party", "teachers")
    table.add_row("north", "3")
    screen.show(table)
    with screen.bar("teachers ready") as move:
        move(1, 2)
    lines = capsys.readouterr().err.splitlines()
    first, drawn, bar = (json.loads(line) for line in lines)
    assert first["text"] == 'zwei\\nZeilen, "ß"'
    assert first["program"] == "pate-party"
    assert first["level"] == "info"
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    assert all(line.isascii() for line in lines)
    assert "north" in drawn["text"]
    assert bar["text"] == "teachers ready: 1 of 2"


@pytest.mark.parametrize("asked", ["option", "group", "environment", "file"])
def test_every_command_can_speak_json(asked: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('log = "json"\n')
    code, text, lines = {
        "option": lambda: program("work", "ledger", "--log", "json"),
        "group": lambda: program("--log", "json", "work", "ledger"),
        "environment": lambda: program("work", "ledger", form="json"),
        "file": lambda: program("work", "ledger", "--config", str(tmp_path / "c.toml")),
    }[asked]()
    assert lines is not None, text
    said, logged, warned, last = lines
    assert said["text"] == "north has come"
    assert (logged["level"], logged["text"], logged["logger"]) == ("warning", "slow disk", "lib")
    assert "old name" in str(warned["text"])
    assert code == last["exit_code"] == 22
    assert (last["level"], last["kind"], last["text"]) == (
        "error",
        "LedgerError",
        "entry 7 was altered",
    )


def test_the_option_wins_over_the_environment() -> None:
    code, text, lines = program("work", "ledger", "--log", "lines", form="json")
    assert lines is None
    assert code == 22
    assert text.endswith("pate-test: entry 7 was altered\n")


def test_a_form_that_is_none_is_refused() -> None:
    code, text, _ = program("work", "well", form="xml")
    assert code == 2
    assert "'lines', 'json'" in text


@pytest.mark.parametrize(
    ("how", "code", "kind"),
    [("bug", 1, "RuntimeError"), ("interrupt", 130, "Interrupted"), ("nonsense", 0, None)],
)
def test_every_end_is_json(how: str, code: int, kind: str | None) -> None:
    ended, text, lines = program("work", how, form="json")
    assert lines is not None, text
    assert ended == code
    assert lines[-1].get("kind") == kind
    assert lines[-1].get("exit_code", 0) == code


def test_an_error_in_a_thread_is_json() -> None:
    code, text, lines = program("work", "thread", form="json")
    assert lines is not None, text
    assert code == 0
    assert "in a thread" in str(lines[-1]["traceback"])


def test_an_unknown_option_is_json() -> None:
    code, _, lines = program("work", "well", "--nonsense", form="json")
    assert code == 2
    assert lines is not None
    assert lines[-1]["kind"] == "UsageError"
    assert "--nonsense" in str(lines[-1]["text"])


@pytest.mark.parametrize("form", ["lines", "json"])
def test_the_traceback_of_a_bug_shows_no_values(form: str) -> None:
    """Typer would print every local variable with it; a server's contain votes."""
    code, text, _ = program("work", "bug", form=form)
    assert code == 1
    assert "RuntimeError: a bug" in text
    assert "987654321" not in text


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_wait_of_a_day_is_some_thirty_lines(clock: Clock) -> None:
    said: list[float] = []
    reminder = Reminder(lambda _: said.append(clock.now), clock=clock)
    for second in range(24 * 3600):
        clock.now = float(second)
        reminder.tell("waiting for parties: 1 of 3 here")
    pauses = [later - earlier for earlier, later in pairwise(said)]
    assert said[0] == 0
    assert pauses[0] == MINUTE
    assert pauses == sorted(pauses)
    assert pauses[-1] == HOUR
    assert 24 <= len(said) <= 32


def test_a_change_is_said_at_once_or_after_the_least_pause(clock: Clock) -> None:
    said: list[str] = []
    at_once, slow = Reminder(said.append, clock=clock), Reminder(said.append, least=10, clock=clock)
    for reminder in (at_once, slow):
        clock.now = 0.0
        reminder.tell("0 of 3")
        clock.now = 1.0
        reminder.tell("1 of 3")
        clock.now = 11.0
        reminder.tell("2 of 3")
        clock.now = 11.0 + MINUTE
        reminder.tell("2 of 3")
    assert said == ["0 of 3", "1 of 3", "2 of 3", "2 of 3", "0 of 3", "2 of 3", "2 of 3"]


def test_what_is_no_news_may_change(clock: Clock) -> None:
    said: list[str] = []
    reminder = Reminder(said.append, clock=clock)
    for pause in (1, 2, 4):
        reminder.tell(f"no answer; again in {pause} s", about="no answer")
    assert said == ["no answer; again in 1 s"]


def test_teachers_that_are_stored_are_no_part_of_the_speed(clock: Clock) -> None:
    pace = Pace(clock)
    assert pace.left(3, 10) is None  # three were there
    clock.now = 20.0
    assert pace.left(4, 10) == 120.0
    clock.now = 40.0
    assert pace.left(5, 10) == 100.0


def test_lines_of_progress_say_what_is_left_once_each_and_ever_more_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    monkeypatch.setattr("time.monotonic", clock)
    with Screen("pate-student").bar("final student") as move:
        for step in range(3601):
            clock.now = float(step)
            move(step, 3600)
            move(step, 3600)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(set(lines))
    assert 30 < len(lines) < 80
    left = {line.split(": ", 2)[2].split(" of ")[0]: line.split(", ")[-1] for line in lines[1:-1]}
    assert left["6"] == "about 60 min left"
    assert all(" left" in line for line in left.values())
    assert lines[-1].endswith("final student: 3600 of 3600")


@pytest.mark.parametrize(("steps", "said"), [([(0, 4)], 0), ([(0, 4), (1, 4), (4, 4), (4, 4)], 1)])
def test_a_step_that_is_done_at_once_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[int, int]],
    said: int,
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    with Screen("pate-server").bar("keys from parties", timed=False) as move:
        for step in steps:
            move(*step)
    lines = capsys.readouterr().err
    assert lines.count("keys from parties: 4 of 4") == lines.count("\n") == said
    assert " left" not in lines


def test_a_step_that_waits_for_somebody_says_so_after_a_while(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    monkeypatch.setattr("time.monotonic", clock)
    with Screen("pate-server").bar("keys from parties", timed=False) as move:
        for done in (1, 2, 3, 3, 4):
            move(done, 4)
            clock.now += 2.0
    said = [line.rpartition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert said == ["3 of 4", "4 of 4"]


@pytest.mark.parametrize(("seconds", "said"), [(0.01, 0), (1.0, 1)])
def test_what_takes_a_moment_only_is_no_line_if_it_need_not_be(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    seconds: float,
    said: int,
) -> None:
    monkeypatch.delenv(EVERY, raising=False)
    monkeypatch.setattr("time.monotonic", clock)
    with Screen("pate-party").bar("describing inputs", percent=True, late=True) as move:
        for _ in range(2):  # twice, each from its beginning
            for done in range(10, 110, 10):
                clock.now += seconds
                move(done, 100)
    lines = capsys.readouterr().err.splitlines()
    assert (
        len([line for line in lines if "describing inputs: 60 %, about 4 s left" in line])
        == 2 * said
    )
    assert bool(lines) == bool(said)
