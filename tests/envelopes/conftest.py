"""For all tests of campaigns by envelope."""

from __future__ import annotations

import pytest

from aggregator_server.exchange import exchange


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the server's waits for parties at the end, which come by file."""
    monkeypatch.setattr(exchange, "_FAREWELL_S", 0.1)
    monkeypatch.setattr(exchange, "_RETURN_S", 0.1)
