"""Records' votes in the server's ledger: geometric noise at delta 0, and campaigns of one series."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.campaign.runner import require_reachable
from aggregator_server.identities import Identities
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.reaching import Listening
from aggregator_server.results.report import describe_state, show
from aggregator_server.results.statement import privacy_statement, server_epsilon
from aggregator_server.session import require_same_series, start_campaign
from pate.campaign.offer import Offer
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.errors import LedgerError, StateError, UsageError
from pate.formats.privacy_statement import PrivacyStatement, adjacency_of
from pate.mechanisms import DistributedNeighbour, Neighbour
from pate.runtime.screen import Screen
from tests.aggregator_server.campaign.test_matrix_campaign import (
    MOST,
    ROWS,
    SHARES,
    exact_counts,
    matrix_spec,
    release,
    start,
)
from tests.support.server.campaigns import make_spec
from tests.support.tampering import forged

#: Scale 2: standard deviation 2.8.
PURE: dict[str, Any] = {"epsilon": 1.0, "delta": 0.0}
CASES = [PURE, PURE | {"aggregation": "masked", "colluders": 1}, PURE | SHARES]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.parametrize("changes", CASES, ids=["plain", "masked", "shares"])
def test_one_charge_of_epsilon_pays_for_all_rows_at_delta_0(
    path: Path, changes: dict[str, Any]
) -> None:
    with start(path, **changes) as ledger:
        summary = release(ledger)
        state = ledger.state()
        assert (summary.asked, summary.exhausted) == (len(ROWS), False)
        assert state.currency.name == "pure"
        assert state.spent == state.cap == 1
        assert state.epsilon == 1.0
        assert {q: x.label for q, x in state.labels.items()} == {
            row: at % 3 for at, row in enumerate(ROWS)
        }
        said = privacy_statement(state)
        assert (said.epsilon, said.delta, said.composition, said.cap) == (1.0, 0.0, "pure", "1")
        assert PrivacyStatement.from_json(said.to_json()) == said
        if state.spec.sums.distributed:
            assert server_epsilon(state) == 1.0
            assert "of which 2 are counted" in said.noise
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    assert len(verify(path).labels) == len(ROWS)
    with Ledger.open(path) as ledger:
        assert ledger.state().currency.name == "pure"
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour | DistributedNeighbour)
        assert mechanism.scale == 2


def test_the_released_counts_carry_the_noise_that_is_said(path: Path) -> None:
    with start(path, **PURE) as ledger:
        release(ledger)
        noisy = ledger.state().noisy
    assert noisy is not None
    assert noisy.sigma == pytest.approx(2.7987, rel=1e-3)
    apart = np.abs(noisy.counts - exact_counts())
    assert 0 < apart.max() < 90  # 24 counts of scale 2 pass 45 scales with probability below 1e-17
    with start(path.with_name("shares.db"), **(PURE | SHARES)) as ledger:
        release(ledger)
        carried = ledger.state().noisy
    assert carried is not None
    assert carried.sigma == pytest.approx(2**0.5 * 2.7987, rel=1e-3)  # four shares, two counted


def test_a_patient_with_more_votes_needs_noise_in_proportion(path: Path) -> None:
    with start(path, unit="patient", votes_per_patient=5, **PURE) as ledger:
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour)
        assert mechanism.scale == 10
        assert ledger.state().cap == 1


def test_a_threshold_out_of_reach_is_refused(path: Path) -> None:
    """By the tail of geometric noise, which is heavier than that of Gaussian noise."""
    far = 4 * MOST + 300
    with (
        start(path, voted=False, threshold=Fraction(far), **PURE) as ledger,
        pytest.raises(UsageError, match="never reach the threshold"),
    ):
        require_reachable(ledger.state())
    with start(
        path.with_name("near.db"), voted=False, threshold=Fraction(4 * MOST + 20), **PURE
    ) as ledger:
        assert "only where noise happens to lift" in (require_reachable(ledger.state()) or "")


@pytest.mark.parametrize(
    "change",
    [
        {"composition": "zcdp", "cap": "1/2"},
        {"composition": "gdp"},
        {"cap": "2"},
        {
            "mechanisms": [
                {"mechanism": "neighbour", "threshold": 8, "sigma": "6", "votes_per_unit": 1}
            ]
        },
        {
            "mechanisms": [
                {"mechanism": "neighbour", "threshold": 8, "scale": "1", "votes_per_unit": 1}
            ]
        },
    ],
    ids=str,
)
def test_a_roster_with_other_costs_breaks_a_rule(path: Path, change: dict[str, Any]) -> None:
    with start(path, **PURE) as ledger:
        release(ledger)
    entries = read_campaign(path)[1]
    replay(forged(CHAIN, entries, 0, dict))
    with pytest.raises(LedgerError, match=r"^entry \d \("):
        replay(forged(CHAIN, entries, 2, lambda body: body.update(change)))


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
