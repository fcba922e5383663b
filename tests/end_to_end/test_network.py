"""A campaign over TLS between hosts with their own addresses, whose links fail and degrade.

One campaign, in the order of its faults: one party's link is slow and loses packets all the time; the
server's link goes down and comes back; one party's does, within the patience of a step; another's
does, and stays down. Then a student on yet another machine fetches the labels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import entries
from pate.runtime.screen import EVERY
from tests.support.hosts import tls_door
from tests.support.hosts.network import Network, Spread, require_hosts
from tests.support.processes.programs import Program, until
from tests.support.world.commands import Campaign
from tests.support.world.sites import TEACHERS, Sites, lenient

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

#: "east" has a bad link, "south" loses its link for a while, "west" permanently.
NAMES = ("east", "north", "south", "west")
QUERIES = 40
#: Seconds: long enough for a link that comes back, also on a busy machine.
PATIENCE = 40
#: Where the server's machine lets students in, over TLS.
STUDENT_DOOR = 9443


@dataclass(frozen=True)
class Played:
    """The campaign after its end."""

    campaign: Campaign
    server: Program
    parties: dict[str, Program]
    worsened: str
    #: Packets that were lost on the bad link.
    dropped: int
    #: Half-open connections of the party that was cut off permanently, at once and later.
    half_open: tuple[int, int]
    #: Which of the server's ports another machine reaches while the campaign runs.
    reached: tuple[int, ...]
    student: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    require_hosts()
    folder = tmp_path_factory.mktemp("network")
    sites = Sites(folder, NAMES).deal()
    public = sites.public(0, QUERIES)
    with (
        Network(("server", *NAMES, "desk")) as network,
        Campaign(folder / "campaign", sites) as campaign,
    ):
        spread, hosts = Spread(campaign, network), network.hosts
        campaign.enrol(lenient(4, 3), hosts["server"].address)
        worsened = hosts["east"].worsen()
        at_server = spread.on("server")
        at_server.prefix += (f"{EVERY}=0.1",)  # the lines that are waited for below
        server = at_server.serve(
            public, "--host", hosts["server"].address, "--no-page", "--min-parties", "3",
            "--colluders", "0", "--patience", str(PATIENCE), "--aggregator", "gnmax",
            "--sigma2", "2", "--linger", "600", parties=",".join(NAMES),
        )  # fmt: skip
        server.says("waiting for parties")
        parties = {name: spread.on(name).party(name) for name in NAMES}

        server.says("the roster is complete")
        hosts["server"].pull_cable()
        parties["north"].says("the connection is kept, waiting")
        hosts["server"].plug_cable()
        reached = tuple(
            port
            for port in (campaign.port, campaign.student_port)
            if hosts["desk"].reaches(hosts["server"], port)
        )

        server.says("keys from parties: 4 of 4")
        before = hosts["south"].resent()
        hosts["south"].pull_cable()
        until(lambda: hosts["south"].resent() > before + 2, "south sends again, in vain")
        until(lambda: "from parties: 3 of 4" in after(server, "keys from"), "the others go ahead")
        hosts["south"].plug_cable()

        server.says("key shares from parties: 4 of 4")
        hosts["west"].pull_cable()
        at_first = hosts["server"].connections(hosts["west"])
        until(
            lambda: hosts["server"].connections(hosts["west"]) == 0,
            "the server has let go of connections whose other end is silent",
        )
        server.says("serving the labels")

        pem = campaign.home / "identity" / "server.pem"
        door = spread.script(
            "server", Path(tls_door.__file__), hosts["server"].address, str(STUDENT_DOOR),
            str(campaign.student_port), pem,
        )  # fmt: skip
        door.says("open")
        # Its own certificate, and not its authority's, which gRPC cannot read: see the docs.
        pinned = folder / "server.crt"
        pinned.write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])
        student = spread.on("desk").run(
            "student", "student", "train", "--server", f"{hosts['server'].address}:{STUDENT_DOOR}",
            "--ca", pinned, "--public", public, "--token-file", campaign.home / "student.token",
            "--out", folder / "student", "--steps", "3", "--json",
        )  # fmt: skip
        student.ends(0)
        server.ends(0)
        for name in ("east", "north", "south"):
            parties[name].ends(0)
        yield Played(
            campaign, server, parties, worsened, hosts["east"].dropped(),
            (at_first, hosts["server"].connections(hosts["west"])), reached, folder / "student",
        )  # fmt: skip


def after(program: Program, words: str) -> str:
    """Its output since the last occurrence of these words."""
    return program.text.rpartition(words)[2]


def test_a_bad_link_costs_nothing(played: Played) -> None:
    assert played.dropped > 0, played.worsened
    assert "east" in played.campaign.body("votes")["responders"]


def test_the_servers_link_comes_back_and_nobody_started_anew(played: Played) -> None:
    for name in ("north", "south", "east"):
        assert "has refused" not in played.parties[name].text
    assert "the SuperLink" not in played.server.text, "it never ended"


def test_a_link_that_comes_back_in_time_is_waited_for(played: Played) -> None:
    assert "continuing without south" not in played.server.text
    assert "south" in played.campaign.body("votes")["responders"]


def test_a_link_that_does_not_is_done_without(played: Played) -> None:
    text = played.server.text
    # By then the server may have learned that it is gone, or not yet: the cause differs.
    told = [line for line in text.splitlines() if "continuing without" in line]
    assert len(told) == 1
    assert "continuing without west:" in told[0]
    assert played.campaign.body("votes")["responders"] == ["east", "north", "south"]
    assert played.campaign.body("votes")["teachers"] == 3 * TEACHERS


def test_half_open_connections_do_not_stay(played: Played) -> None:
    at_first, later = played.half_open
    assert at_first > later == 0


def test_the_guarantee_is_that_of_any_campaign(played: Played) -> None:
    found = played.campaign.verified()
    assert found["phase"] == "finished"
    assert found["labels_released"] == QUERIES
    kinds = [entry["kind"] for entry in entries(played.campaign.place)]
    assert kinds.count("charge") == kinds.count("release")


def test_the_labels_are_not_reached_from_outside_but_through_tls(played: Played) -> None:
    assert played.reached == (played.campaign.port,)
    statement = json.loads((played.student / "privacy.json").read_text())
    assert statement["labels_released"] == QUERIES
