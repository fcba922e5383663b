"""Lasting states are reported on change and then ever more rarely; remaining time by measured speed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pate.runtime.screen import EVERY, HOUR, MINUTE, Pace, Reminder, Screen


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
