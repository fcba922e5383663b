"""Enrolment of a test's parties, one command after the other, as people would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from tests.support.processes.commands import Campaign


def enrol(campaign: Campaign, policy: str, *hosts: str) -> None:
    """Enrol all parties of a campaign's sites: init, enroll, enroll there, admit.

    Args:
        campaign: whose server and sites these are.
        policy: of each party, TOML.
        hosts: under which the server is reached; none: loopback.
    """
    home = ("--home", campaign.home)
    named = [part for host in hosts for part in ("--host", host)]
    _does(server, "init", *named, "--port", str(campaign.port), *home)
    for name in campaign.sites.names:
        bundle, answer = campaign.folder / f"{name}.json", campaign.folder / f"{name}.answer"
        _does(server, "enroll", name, "--out", bundle, *home)
        place = campaign.sites.home(name)
        _does(party, "enroll", bundle, "--answer", answer, "--home", place)
        _does(server, "admit", answer, *home)
        (place / "policy.toml").write_text(policy)


def _does(app: typer.Typer, *arguments: str | Path) -> None:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
