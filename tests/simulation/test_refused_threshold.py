"""A threshold that no votes of the parties reach: the server refuses, and every party is notified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.voting.voter import Voter
from pate.campaign.settings import spec_of
from pate.data.values import Dataset, Table
from pate.errors import UsageError
from pate.runtime.screen import Screen
from simulation.parties import open_ensemble, open_voter, party_home
from simulation.simulate import carrier_to, run_campaign

PARTIES, TEACHERS = 3, 4
RECORDS = Dataset(Table(("x",), (np.arange(40.0),)), np.arange(40) // 20, ("low", "high"))


def voters(place: Path) -> list[Voter]:
    homes = [party_home(place, number) for number in range(PARTIES)]
    return [
        open_voter(home, open_ensemble(home, RECORDS, TEACHERS, model="linear")) for home in homes
    ]


def test_parties_learn_that_it_has_ended_before_it_asked(tmp_path: Path) -> None:
    public = Table(("x",), (np.linspace(0, 40, 30),))
    spec = spec_of(
        CampaignOptions(
            campaign="too high", aggregator="confident-gnmax", parties=str(PARTIES), epsilon=20.0,
            delta=1e-5, threshold="500", sigma1="4", sigma2="2", classes="low,high",
        ),
        public,
    )  # fmt: skip
    key = Ed25519PrivateKey.generate()
    with Ledger.create(tmp_path / "campaign.db", spec) as ledger:
        # And again when it is resumed, with parties that come back.
        for _ in range(2):
            parties = voters(tmp_path)
            with (
                carrier_to(parties) as carrier,
                pytest.raises(UsageError, match="Nothing was asked"),
            ):
                run_campaign(ledger, public, carrier, screen=Screen("test"), signing_key=key)
            endings = [party.ending for party in parties]
            assert [end and (end.cause, end.votes_given) for end in endings] == [
                ("threshold", 0)
            ] * PARTIES
        state = ledger.state()
        assert (state.phase, state.queries_asked, float(state.spent)) == ("voting", 0, 0.0)
    for number in range(PARTIES):
        own = PartyLedger(party_home(tmp_path, number) / LEDGER_FILE, read_only=True)
        (record,) = own.campaigns()
        assert record.ending is not None
        assert (record.ending.cause, record.asked) == ("threshold", 0)
