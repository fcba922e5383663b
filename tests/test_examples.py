"""Tests with examples, on a busy machine."""

from __future__ import annotations

from hypothesis import settings

#: As they are when the file is imported, which a test keeps.
SETTINGS = settings.default


def test_examples_have_no_deadline() -> None:
    assert SETTINGS is not None
    assert SETTINGS.deadline is None
