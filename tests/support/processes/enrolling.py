"""Parties that are enrolled, as people would do it: one command after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from tests.support.processes.commands import Campaign


def enrol(campaign: Campaign, policy: str) -> None:
    """Make the server's identities, and enrol each of the sites' parties with this policy."""
    home = ("--home", campaign.home)

    def does(app: typer.Typer, *arguments: str | Path) -> None:
        done = CliRunner().invoke(app, list(map(str, arguments)))
        assert done.exit_code == 0, done.output

    does(server, "init", "--port", str(campaign.port), *home)
    campaign.is_enrolled = True
    for name in campaign.sites.names:
        bundle, answer = campaign.folder / f"{name}.json", campaign.folder / f"{name}.answer"
        does(server, "enroll", name, "--out", bundle, *home)
        place = campaign.sites.home(name)
        does(party, "enroll", bundle, "--answer", answer, "--home", place)
        does(server, "admit", answer, *home)
        (place / "policy.toml").write_text(policy)
