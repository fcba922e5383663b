"""A campaign of a series at the server: its specification, its terms and its statement."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aggregator_server.identities import Identities
from aggregator_server.reaching import Listening
from aggregator_server.results.report import describe_state, show
from aggregator_server.results.statement import privacy_statement
from aggregator_server.session import require_same_series, start_campaign
from pate.campaign.offer import Offer
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.errors import StateError, UsageError
from pate.formats.privacy_statement import PrivacyStatement, adjacency_of
from pate.runtime.screen import Screen
from tests.aggregator_server.campaign.test_matrix_campaign import (
    SHARES,
    matrix_spec,
    release,
    start,
)
from tests.support.server.campaigns import make_spec


def series_spec(**changes: Any) -> CampaignSpec:
    return matrix_spec(**(SHARES | {"series": "monthly"} | changes))


def test_a_campaign_without_a_series_has_the_texts_that_it_always_had() -> None:
    spec = matrix_spec(**SHARES)
    assert "series" not in spec.to_dict()
    assert "series" not in Offer(key=bytes(32), announced=spec.announced).text
    assert CampaignSpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(UsageError, match="omitted"):
        CampaignSpec.from_dict(spec.to_dict() | {"series": None})


def test_the_series_is_in_the_specification_and_in_the_terms() -> None:
    spec = series_spec()
    assert spec.to_dict()["series"] == "monthly"
    assert CampaignSpec.from_dict(spec.to_dict()) == spec
    assert spec.announced.series == "monthly"
    for first, then in ((spec, matrix_spec(**SHARES)), (matrix_spec(**SHARES), spec)):
        with pytest.raises(StateError, match="series"):
            first.require_same(then)
    spec.require_same(series_spec(id="ab" * 16))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"series": ""}, "series must be a line"),
        ({"series": "a\nb"}, "series must be a line"),
        ({"series": "x" * 65}, "series must be a line"),
        ({"noise": "central"}, "noise by the parties"),
        ({"schema": f"embeddings 7 by {'ab' * 32} of images"}, "protect patients"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        series_spec(**changes)


def test_teachers_have_no_series() -> None:
    with pytest.raises(UsageError, match="for neighbour votes"):
        make_spec(series="monthly")


def test_the_option_is_for_neighbour_votes_and_gets_into_the_specification() -> None:
    from pate.campaign.options import MechanismOptions
    from tests.aggregator_server.campaign.test_matrix_campaign import QUERIES, ROWS
    from tests.party.voting.test_neighbour_voter import PUBLIC

    assert len(ROWS) < QUERIES
    with pytest.raises(UsageError, match="--series is for --aggregator neighbour"):
        spec_of(MechanismOptions(series="monthly"), PUBLIC)
    options = MechanismOptions(
        aggregator="neighbour", series="monthly", representatives=3, classes="a,b"
    )
    assert spec_of(options, PUBLIC).series == "monthly"


def test_a_trial_has_no_series_and_leaves_nothing(tmp_path: Path) -> None:
    """Its key does not last: to the parties each campaign would be of another series."""
    from tests.party.voting.test_neighbour_voter import PUBLIC

    listening = Listening(host="127.0.0.1", port=0, student_port=0, patience=1.0, linger=0.0)
    folder = tmp_path / "campaign"
    with pytest.raises(UsageError, match="pate-server init"):
        start_campaign(folder, series_spec(), PUBLIC, listening, Screen("pate-server"))
    assert not list(folder.iterdir())


def test_a_campaign_of_a_series_has_the_terms_of_those_before(tmp_path: Path) -> None:
    """Parties would refuse it, after they have joined: unit, votes of a unit, and law of noise."""
    from tests.party.voting.test_neighbour_voter import PUBLIC

    now = datetime(2027, 1, 1, tzinfo=UTC)
    identities = Identities.create(tmp_path / "identities", [], 9092, now)
    key = identities.signing_key.public_key().public_bytes_raw().hex()
    usual: dict[str, Any] = {"series": "monthly", "series_key": key}
    begun = start(tmp_path / "begun" / "ledger.db", **SHARES, **usual, delta=0.0)
    with begun, start(tmp_path / "january" / "ledger.db", **SHARES, **usual) as ledger:
        release(ledger)  # the other one was charged for nothing
    listening = Listening(
        host="127.0.0.1", port=0, student_port=0, patience=1.0, linger=0.0, identities=identities
    )
    others = (
        ({"delta": 0.0}, "--noise-law geometric"),
        ({"unit": "patient"}, "--unit patient"),
        ({"unit": "patient", "votes_per_patient": 2}, "--votes-per-patient 2"),
    )
    february = tmp_path / "february"
    for changes, words in others:
        with pytest.raises(UsageError, match=f"--noise-law gaussian since .*trial.*{words}"):
            start_campaign(february, series_spec(**changes), PUBLIC, listening, Screen("s"))
        assert not list(february.iterdir())
        require_same_series(february, series_spec(**changes, series_key="ab" * 32))
    require_same_series(february, series_spec(**usual, epsilon=2.0, classes=None))


def test_the_statement_is_about_the_whole_series(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known: dict[str, Any] = {"series": "monthly", "series_key": "ab" * 32}
    with start(tmp_path / "ledger.db", **SHARES, **known) as ledger:
        made = privacy_statement(ledger.state())
        found = describe_state(ledger.state())
    assert made.series == "monthly"
    assert made.adjacency == adjacency_of("record", records_vote=True, series=True)
    for each in made.statements:
        assert "'monthly'" in each.meaning
        assert "this campaign alone" not in each.meaning
    text = made.to_json()
    assert json.loads(text)["series"] == "monthly"
    assert PrivacyStatement.from_json(text) == made
    show(found)
    assert "monthly: in all its campaigns" in " ".join(capsys.readouterr().out.split())
    with start(tmp_path / "other.db", **SHARES) as ledger:
        assert "series" not in json.loads(privacy_statement(ledger.state()).to_json())


def test_a_statement_of_teachers_has_no_series(tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.support.server.campaigns import start as begin

    with begin(tmp_path / "ledger.db") as ledger:
        made = privacy_statement(ledger.state())
    with pytest.raises(UsageError, match="a series is of neighbour votes"):
        replace(made, series="monthly")
