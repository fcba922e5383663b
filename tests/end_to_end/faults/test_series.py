"""Two campaigns of one series, of the real commands: tables grow between them, and each party is killed."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from pate.errors import QuorumError
from pate.formats.labels import LabelSet
from simulation.datasets import write_labelled
from tests.support.world.commands import DirectCampaign
from tests.support.world.sites import RECORDS, Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

NAMES: Final = ("north", "south", "west")
CAMPAIGNS: Final = ("january", "february")
FIRST: Final = 40
QUERIES: Final = 60
#: Where each party is killed in the second campaign: its votes are computed, cached, or who votes is in its
#: ledger; none has left.
KILLED: Final = {"north": "voting", "south": "votes-cached", "west": "answer-recorded"}
#: With the noise of epsilon 20 the sum of all counts is within 14 votes or so.
OPTIONS: Final = (
    "--aggregator", "neighbour", "--series", "monthly", "--epsilon", "20", "--representatives", "9",
    "--colluders", "0", "--min-parties", "3", "--patience", "60",
)  # fmt: skip


def write_first(sites: Sites, records: int) -> None:
    """Give each party the first of its records."""
    every = sites._records()
    for at, name in enumerate(sites.names):
        rows = range(at * RECORDS, at * RECORDS + records)
        write_labelled(sites.data(name) / "records.npz", every.take(rows))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> DirectCampaign:
    """Both campaigns, run to their ends."""
    folder = tmp_path_factory.mktemp("series")
    sites = Sites(folder, NAMES).deal()
    public = sites.public(0, QUERIES)
    with DirectCampaign(folder / "campaign", sites) as both:
        both.enrol(lenient(3, 3))
        for number, name in enumerate(CAMPAIGNS):
            write_first(sites, RECORDS if number else FIRST)
            server = both.serve(public, "--campaign", name, *OPTIONS, parties=",".join(NAMES))
            lost = [
                both.party(each, "--votes", "neighbour", failpoint=KILLED[each] if number else None)
                for each in NAMES
            ]
            stay = lost
            if number:
                for party in lost:
                    party.ends(-signal.SIGKILL)
                stay = [both.party(each, "--votes", "neighbour") for each in NAMES]
            if server.ends(0, QuorumError.exit_code):  # all three were away: the operator resumes
                both.resume("--campaign", name).ends(0)
            for party in stay:
                party.ends(0)
        return both


def labels_of(told: DirectCampaign, name: str) -> LabelSet:
    file = told.folder / f"{name}.json"
    if not file.exists():
        told.run(
            "export", "aggregator_server", "export",
            "--campaign", name, "--out", file, "--home", told.home,
        ).ends(0)  # fmt: skip
    return LabelSet.from_json(file.read_text())


def shown(told: DirectCampaign, name: str) -> dict[str, Any]:
    home = told.sites.home(name)
    program = told.run("party-ledger", "party", "ledger", "--json", "--home", home)
    program.ends(0)
    found: dict[str, Any] = program.result()
    return found


def test_each_record_is_in_one_of_the_two_sums(told: DirectCampaign) -> None:
    """90 counts with noise below sigma 2.5 sum to less than 24 sigma; the sums differ by 120."""
    for name, records in zip(CAMPAIGNS, (FIRST, RECORDS - FIRST), strict=True):
        noisy = labels_of(told, name).noisy
        assert noisy is not None
        assert noisy.sigma < 2.5
        # Its standard deviation is below 24, so this is missed with a chance below 1e-6.
        assert abs(int(noisy.counts.sum()) - len(NAMES) * records) < 119


def test_the_second_campaign_costs_the_parties_nothing_more(told: DirectCampaign) -> None:
    for name in NAMES:
        found = shown(told, name)
        (series,) = found["series"]
        assert (series["name"], len(series["campaigns"])) == ("monthly", 2)
        figures = [each["own_figure"]["epsilon"] for each in found["campaigns"]]
        assert figures[0] == figures[1] == series["own_figure"]["epsilon"]
        assert found["own_figure"]["epsilon"] == figures[0]


def test_the_statements_name_the_series_and_the_parties_agree(told: DirectCampaign) -> None:
    for name in CAMPAIGNS:
        privacy = labels_of(told, name).privacy
        said = json.loads(privacy)
        # The parties below compare the key with the one that signed what they answered.
        assert (said["series"], len(bytes.fromhex(said["series_key"]))) == ("monthly", 32)
        statement: Path = told.folder / "privacy.json"
        statement.write_text(privacy)
        for party in NAMES:
            told.run("agrees", "party", "verify", statement, "--home", told.sites.home(party)).ends(
                0
            )


def test_every_screen_says_what_the_series_covers(told: DirectCampaign) -> None:
    for program in told.programs:
        if program.name in ("server", *NAMES) and program.lines:
            text = " ".join((program.text + program.output).replace("│", " ").split())
            if "joined campaign" in text or "is finished" in text:
                assert (
                    "in all campaigns of series 'monthly' with its composition and no larger cap"
                    in text
                )
    assert np.all([len(shown(told, name)["campaigns"]) == 2 for name in NAMES])
