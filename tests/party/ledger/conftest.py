"""A party's ledger on disk, dated by a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from party.ledger.ledger import LEDGER_FILE, PartyLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / LEDGER_FILE


@pytest.fixture
def ledger(path: Path) -> PartyLedger:
    return PartyLedger(path, now=lambda: datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC))
