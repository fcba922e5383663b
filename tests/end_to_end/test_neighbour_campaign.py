"""``--aggregator neighbour`` as real processes over the direct link: records vote, and a party crashes."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import adjacency_of
from tests.support.world.commands import Campaign, DirectCampaign
from tests.support.world.sites import Sites

if TYPE_CHECKING:
    from tests.support.processes.programs import Program

QUERIES = 200
#: 360 records at 9 of them are 40 each. With the noise of epsilon 3, three labels of nine are few.
REPRESENTATIVES = 9
MATRIX = (
    "--aggregator", "neighbour", "--epsilon", "3", "--representatives", str(REPRESENTATIVES),
)  # fmt: skip
VOTES = ("--votes", "neighbour")
VOTERS = ("north", "south", "west")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign, run to its end."""
    folder = tmp_path_factory.mktemp("neighbour")
    sites = Sites(folder).deal()
    with DirectCampaign(folder / "campaign", sites) as campaign:
        server = campaign.serve(
            sites.public(0, QUERIES), *MATRIX, "--patience", "3", parties=",".join(sites.names)
        )
        stay = [campaign.party(name, *VOTES) for name in ("north", "south")]
        # Its votes are made, neither kept nor sent; its ledger says that they are about to leave.
        west = campaign.party("west", *VOTES, failpoint="voting")
        west.ends(-signal.SIGKILL)
        west = campaign.party("west", *VOTES)
        server.ends(0)
        for party in (*stay, west):
            party.ends(0)
            assert "teachers are ready" not in party.text
        campaign.programs = [server, *stay, west]
        return campaign


@pytest.fixture(scope="module")
def labels(told: Campaign) -> LabelSet:
    """The labels that a student receives."""
    return told.exported()


def test_every_screen_says_the_same_adjacency_and_none_mentions_teachers(told: Campaign) -> None:
    shown = [told.does("status", "aggregator_server", "status", "--home", told.home)]
    shown += [
        told.does(name, "party", "ledger", "--home", told.sites.home(name)) for name in VOTERS
    ]
    for program in (*told.programs, *shown):
        text = " ".join((program.text + program.output).replace("│", " ").split())
        assert "one record added, removed or altered" in text
        assert "added or removed" not in text
        assert "teacher" not in text.replace("--teachers", "").replace("--votes teachers", "")


def test_one_charge_for_the_whole_matrix_and_the_ledger_holds(told: Campaign) -> None:
    found = told.verified()
    server = " ".join(told.programs[0].text.split())
    assert "noise on each count: geometric, standard deviation" in server
    assert "epsilon 2.9768 at delta 0 (" in server
    votes, charge, release = map(told.body, ("votes", "charge", "release"))
    assert votes["responders"] == ["north", "south", "west"]
    assert len(charge["queries"]) == REPRESENTATIVES
    assert charge["mechanism"]["mechanism"] == "distributed-neighbour"
    # Geometric noise is the smaller: scale 2/3, up to the next 1/64.
    assert charge["mechanism"]["scale"] == "43/64"
    assert found["spent"] == found["cap"] == charge["cost"] == release["cost"]
    assert found["wasted"] == "0"
    assert isinstance(found["epsilon"], float)
    assert 2.5 < found["epsilon"] <= 3.0


def test_a_party_that_died_and_came_back_is_in_the_sum_once(
    told: Campaign, labels: LabelSet
) -> None:
    """All 360 records, and noise: of 90 counts with sigma below 5 it sums to less than 300."""
    assert labels.noisy is not None
    assert labels.noisy.sigma < 5
    assert abs(int(labels.noisy.counts.sum()) - 360) < 300
    home = told.sites.home("west")
    shown: dict[str, Any] = told.does(
        "ledger", "party", "ledger", "--home", home, "--json"
    ).result()
    assert [each["queries"] for each in shown["campaigns"]] == [REPRESENTATIVES]


def test_labels_are_what_the_noisy_votes_say(told: Campaign, labels: LabelSet) -> None:
    assert labels.noisy is not None
    assert len(labels.noisy.queries) == REPRESENTATIVES
    assert {row.source for row in labels.rows} == {"records"}
    by_query = dict(zip(labels.noisy.queries.tolist(), labels.noisy.counts, strict=True))
    for row in labels.rows:
        assert row.label == int(by_query[row.query].argmax())
    # 40 records at each query, most of them of one digit.
    truth = told.sites.left().take(range(QUERIES)).labels
    right = [truth[row.query] == row.label for row in labels.rows]
    assert len(right) >= 3
    assert np.mean(right) > 0.5


def test_the_statement_says_who_votes_and_a_party_agrees(told: Campaign, labels: LabelSet) -> None:
    said = json.loads(labels.privacy)
    assert said["adjacency"] == adjacency_of("record", records_vote=True)
    assert said["teachers"] == 0
    assert (said["delta"], said["composition"]) == (0.0, "pure")
    assert said["queries_asked"] == REPRESENTATIVES
    (server,) = [each for each in said["statements"] if each["observer"] == "server"]
    assert server["epsilon"] <= 3.0
    told.verify_at("west", labels.privacy)
    told.verify_at("west", labels.privacy.replace("it votes once", "it votes"), 22)


def test_parties_are_told_how_it_ended(told: Campaign) -> None:
    server, *parties = told.programs[:4]
    for party in parties:
        ending = party.result()
        assert ending["votes_given"] == REPRESENTATIVES
        assert ending["labels_released"] == server.result()["labels_released"]


def test_no_number_of_records_is_in_what_the_server_said_or_keeps(told: Campaign) -> None:
    """The parties have 120 each; only they say so."""
    server: Program = told.programs[0]
    assert "120" not in [word for line in server.lines for word in line.split()]
    assert {party["teachers"] for party in told.body("roster")["parties"]} == {4095}
