"""Server and party restart within one campaign over TLS, and the SuperLink is killed.

In this order: the server dies when the roster is complete, gets a new certificate, and continues; a
party dies, and while the masked sum waits for it the SuperLink is killed; then the party comes back
with its enrolment. Before all this the clock of another one is wrong when it begins, and when it waits.
"""

from __future__ import annotations

import os
import signal
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import entries
from party.ledger.ledger import PartyLedger
from pate.errors import UnreachableError
from simulation.programs import children, until
from tests.end_to_end.faults.test_clock import Clock
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import TEACHERS, Sites, lenient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.programs import Program

pytestmark = pytest.mark.timeout(900)

QUERIES = 40
PAST_S = 400 * 86_400
EXPIRED = "has expired: is the clock of this machine right?"


@dataclass(frozen=True)
class Played:
    """The campaign after its end."""

    campaign: Campaign
    server: Program
    parties: dict[str, Program]
    #: What the server showed before and after it was started anew.
    certificates: tuple[str, str]
    #: A start of "north" while its clock was wrong.
    early: Program


def shown(campaign: Campaign) -> str:
    """Return the certificate that the server's port shows, checked against its authority."""
    ca = campaign.home / "identity" / "ca.pem"
    return ssl.get_server_certificate(("127.0.0.1", campaign.port), ca_certs=str(ca), timeout=60)


def kill_superlink(server: Program) -> None:
    (superlink,) = [pid for pid in children(server.pid) if b"superlink" in names_of(pid)]
    os.kill(superlink, signal.SIGKILL)
    until(lambda: superlink not in children(server.pid), "the SuperLink is gone")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("superlink")
    sites, clock = Sites(folder).deal(), Clock(folder / "clock")
    with Campaign(folder / "campaign", sites) as campaign:
        campaign.enrol(lenient(3, 3))
        first = campaign.serve(
            sites.public(0, QUERIES), "--no-page", "--min-parties", "3", "--colluders", "0",
            "--aggregator", "gnmax", "--sigma2", "2", parties=",".join(sites.names),
            failpoint="roster-recorded",
        )  # fmt: skip
        first.says("waiting for parties")
        before = shown(campaign)
        campaign.prefix = clock.prefix
        clock.set(PAST_S)
        early = campaign.party("north")
        early.ends(UnreachableError.exit_code)
        clock.set(0)
        parties = {"north": campaign.party("north")}
        first.says("north joined")
        clock.set(PAST_S)
        parties["north"].says(EXPIRED)
        clock.set(0)
        campaign.prefix = ()
        parties |= {name: campaign.party(name) for name in sites.names if name != "north"}
        first.ends(-signal.SIGKILL)
        campaign.does("rotate", "aggregator_server", "rotate", "--home", campaign.home)
        parties["south"].kill()
        parties["south"].leaves_nobody()

        # All three are needed, so the sum waits for the one that is away.
        server = campaign.resume("--no-page")
        server.says("keys from parties: 2 of 3")
        certificates = before, shown(campaign)
        kill_superlink(server)
        server.says("the SuperLink is running again")
        parties["south"] = campaign.party("south")
        server.ends(0)
        for party in parties.values():
            party.ends(0)
        yield Played(campaign, server, parties, certificates, early)


def test_the_server_came_back_with_a_new_certificate(played: Played) -> None:
    before, later = played.certificates
    assert before != later
    told = played.parties["west"].text
    assert "certificate" not in told, "parties need not act"
    assert "connecting to 127.0.0.1" in told


def test_a_partys_clock_jumps_over_the_servers_certificate(played: Played) -> None:
    """At the next handshake it waits, as for a server that is away; a party that starts so does not."""
    assert EXPIRED in played.early.lines[-1]
    assert EXPIRED in played.parties["north"].text
    assert PartyLedger(played.campaign.sites.home("north") / "ledger.db", read_only=True).verify()


def test_a_superlink_that_is_killed_is_started_again_by_its_server(played: Played) -> None:
    told = played.server.text
    assert told.count("the SuperLink ended (exit code -9); restarting it") == 1
    assert told.count("the SuperLink is running again") == 1
    assert "attempt 1 of" not in told


def test_nobody_was_lost_on_the_way(played: Played) -> None:
    votes = played.campaign.body("votes")
    assert votes["responders"] == ["north", "south", "west"]
    assert votes["teachers"] == 3 * TEACHERS


def test_each_label_was_paid_for_once(played: Played) -> None:
    found = played.campaign.verified()
    assert found["phase"] == "finished"
    assert found["labels_released"] == QUERIES
    held = entries(played.campaign.place)
    kinds = [entry["kind"] for entry in held]
    assert kinds.count("roster") == kinds.count("opening") == kinds.count("close") == 1
    assert kinds.count("charge") == kinds.count("release")
    for party in played.parties.values():
        assert party.result()["votes_given"] == QUERIES
