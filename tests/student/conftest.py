"""The student's command in the process of a test."""

from __future__ import annotations

import sys

import pytest


class Here:
    """The command in this process: importing everything anew each time would take long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Return exit code, standard output and standard error."""
        from student import cli

        self._monkeypatch.setattr(sys, "argv", ["pate-student", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return (ended.value.code, *self._capsys.readouterr())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)
