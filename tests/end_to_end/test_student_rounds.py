"""A whole campaign with a student between its rounds, in a network with only loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from aggregator_server.results.report import entries
from pate.formats.labels import LabelSet
from tests.support.world.commands import Campaign, DirectCampaign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world.sites import Sites

#: Brings loopback up in a new network namespace, says so, and keeps the namespace.
_HOLD = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
    fcntl.ioctl(door, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS, up and running
print("up", flush=True)
sys.stdin.read()
"""
#: Tries what no part of a campaign may: an address of another machine, by IPv4 and by IPv6.
_STRAY = """
import contextlib, socket
for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
    with socket.socket(family, socket.SOCK_STREAM) as door, contextlib.suppress(OSError):
        door.connect((address, 443))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
    door.sendto(b"?", ("127.0.0.1", 53))
"""


class Isolation:
    """A network namespace of its own: nothing in it but loopback, and no way out."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--map-root-user", sys.executable, "-c", _HOLD],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        self.up = self._holder.stdout.readline() == "up\n"
        self.why = "" if self.up else self._holder.stderr.read().strip()

    @property
    def prefix(self) -> tuple[str, ...]:
        """Goes before a command that is to run inside."""
        target = str(self._holder.pid)
        return ("nsenter", "--target", target, "--user", "--net", "--preserve-credentials")

    def attempts(self) -> dict[str, int]:
        """How often anything inside looked for a way out, and found none; and sent a datagram.

        Names are looked up by datagrams, maybe to a resolver on loopback; a campaign sends none.
        """
        net = Path(f"/proc/{self._holder.pid}/net")
        found: dict[str, int] = {}
        lines = [line.split() for line in (net / "snmp").read_text().splitlines()]
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            for name, value in zip(names[1:], values[1:], strict=True):
                found[names[0].rstrip(":") + name] = int(value)
        if (net / "snmp6").exists():
            for line in (net / "snmp6").read_text().splitlines():
                name, value = line.split()
                found[name] = int(value)
        wanted = ("IpOutNoRoutes", "Ip6OutNoRoutes", "UdpOutDatagrams", "Udp6OutDatagrams")
        return {name: found[name] for name in wanted if name in found}

    def close(self) -> None:
        self._holder.communicate()


@dataclass(frozen=True)
class Played:
    """A campaign that has ended, and the student that came of it."""

    campaign: Campaign
    student: Path
    trained: dict[str, object]
    #: What it tried in its namespace, or why there was none.
    attempts: dict[str, int] | str
    isolation: Isolation


@pytest.fixture(scope="module")
def played(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("rounds")
    isolation = Isolation()
    prefix = isolation.prefix if isolation.up else ()
    public = sites.public(800, 150)
    try:
        with Campaign(folder, sites, prefix) as campaign:
            server = campaign.serve(
                public, "--aggregator", "interactive-gnmax", "--rounds", "3", "--threshold", "4",
                "--sigma1", "1", "--sigma2", "1/2", "--interactive-threshold", "3",
                "--linger", "120", parties="north,south",
            )  # fmt: skip
            parties = [campaign.party(name) for name in ("north", "south")]
            student = campaign.run(
                "student", "student", "train", "--server", f"127.0.0.1:{campaign.student_port}",
                "--token-file", campaign.home / "student.token",
                "--public", public, "--out", folder / "student", "--steps", "3", "--json",
            )  # fmt: skip
            for program in (*parties, student, server):
                program.ends(0)
            campaign.run(
                "export", "aggregator_server", "export", "--home", campaign.home,
                "--out", folder / "labels.json",
            ).ends(0)  # fmt: skip
            attempts = isolation.attempts() if isolation.up else isolation.why
            yield Played(campaign, folder / "student", student.result(), attempts, isolation)
    finally:
        isolation.close()


def test_the_student_publishes_what_the_server_states(played: Played) -> None:
    labels = LabelSet.from_json((played.campaign.folder / "labels.json").read_text())
    published = json.loads((played.student / "privacy.json").read_text())
    assert published == json.loads(labels.privacy)
    assert published["epsilon"] == played.trained["epsilon"]
    assert played.trained["labels"] == len(labels.rows) > 0
    assert published["ledger_head"] == played.campaign.verified()["head"]


def test_every_round_after_the_first_had_the_students_predictions(played: Played) -> None:
    kinds = [entry["kind"] for entry in entries(played.campaign.place)]
    marks = [kind for kind in kinds if kind in ("round-end", "predictions", "close")]
    assert marks == ["round-end", "predictions", "round-end", "predictions", "round-end", "close"]


def test_nothing_of_a_campaign_looks_beyond_loopback(played: Played) -> None:
    if isinstance(played.attempts, str):
        pytest.skip(f"no network namespace of our own here: {played.attempts}")
    assert len(played.attempts) >= 2
    assert set(played.attempts.values()) == {0}
    # And that is not because nothing would have been seen.
    subprocess.run([*played.isolation.prefix, sys.executable, "-c", _STRAY], check=True)
    seen = played.isolation.attempts()
    assert seen["IpOutNoRoutes"] > 0
    assert seen["UdpOutDatagrams"] > 0
    assert seen.get("Ip6OutNoRoutes", 1) > 0


@pytest.mark.slow
def test_few_labels_are_said_on_each_screen(sites: Sites, tmp_path: Path) -> None:
    from student.cli import app

    with DirectCampaign(tmp_path, sites) as campaign:
        public = sites.public(300, 60)
        server = campaign.serve(
            public, "--aggregator", "gnmax", "--epsilon", "8", parties="north,south"
        )
        for name in ("north", "south"):
            campaign.party(name)
        server.ends(0)
        early, _, late = server.text.partition("the roster is complete")
        assert "10 teachers at each party are too few for this budget" in early
        for said in (
            "so the server chose it: sigma2",
            "of 10 classes if these are equally frequent (else: --rarest): few",
            "`pate plan --aggregator",
        ):
            assert said in late
        assert "a guess" not in late
        after = late.partition("labels released")[2]
        assert "no label of" in after
        assert "expect a poor student" in after
        file = tmp_path / "labels.json"
        campaign.run(
            "export", "aggregator_server", "export", "--out", file, "--home", campaign.home
        ).ends(0)
    typed = ["--labels", file, "--public", public, "--out", tmp_path / "s", "--steps", "1"]
    done = CliRunner().invoke(app, ["train", *map(str, typed)])
    assert done.exit_code == 0, done.output
    before = done.stderr.partition("training the final student")[0]
    assert "expect a poor student" in before
    assert "`pate plan --aggregator gnmax" in before
