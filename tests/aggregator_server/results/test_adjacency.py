"""Every screen and file of a server states the same neighbouring relation.

The party's screens: tests/party/test_adjacency.py; the student's last line: tests/student/test_telling.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aggregator_server.monitoring.metrics import render
from aggregator_server.monitoring.status import Status
from aggregator_server.results.report import describe_state, show
from aggregator_server.results.statement import privacy_statement
from pate.formats.privacy_statement import PrivacyStatement
from student.card import Provenance, write_card
from tests.aggregator_server.campaign import test_matrix_campaign as voting
from tests.support.server.campaigns import label, make_spec, start
from tests.support.student_samples import Parrot

ALTERED, MOVED = "one record added, removed or altered", "one record added or removed"


@pytest.mark.parametrize("records_vote", [True, False])
def test_status_page_statement_and_card_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], records_vote: bool
) -> None:
    path = tmp_path / "ledger.db"
    with voting.start(path) if records_vote else start(path, make_spec()) as ledger:
        (voting.release if records_vote else label)(ledger)
        state, overview = ledger.state(), Status(ledger).overview()
        ledger.finish()
    statement = privacy_statement(state).to_json()
    show(describe_state(state))
    status = " ".join(capsys.readouterr().out.replace("│", " ").split())
    bare = Provenance("cd" * 16, "x", "ef" * 32, 900, 50, 0, {})
    card = write_card(Parrot(), bare, json.loads(statement), None)
    assert overview.budget is not None
    words, others = (ALTERED, MOVED) if records_vote else (MOVED, ALTERED)
    for screen in (status, overview.budget.adjacency, card, statement):
        assert words in screen
        assert others not in screen
    # In a campaign that has none, teachers are on no screen.
    assert ("teacher" in status, "teacher" in card) == (not records_vote,) * 2
    teachers = 0 if records_vote else state.teachers
    assert overview.teachers == PrivacyStatement.from_json(statement).teachers == teachers
    assert f"pate_teachers {teachers}.0" in render(overview).decode()
