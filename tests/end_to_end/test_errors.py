"""User errors: one line with the cause, an exit code, no leftover files."""

from __future__ import annotations

import re
import socket
import sys
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pytest

import aggregator_server.cli.main
import party.cli.main
from aggregator_server.results.report import describe, verify
from party.ledger.ledger import PartyLedger
from pate.runtime.child import free_port
from tests.support.world.commands import DirectCampaign, signals_restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.support.world.sites import Sites

RNG = np.random.default_rng(0)
GREY: NDArray[np.uint8] = RNG.integers(0, 256, (12, 8, 8)).astype(np.uint8)
LABELS = np.array(["a", "b"] * 6)


class Command:
    """A command in this process, from its entry point to its exit."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def fails(self, code: int, main: Callable[[], NoReturn], *arguments: str | Path) -> str:
        """Run it, check how it ends, and return its one line of error."""
        self._monkeypatch.setattr(sys, "argv", ["command", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert ended.value.code == code, err
        assert out == ""
        # Lines of progress begin with the time of day, the error with the command's name.
        *progress, last = err.splitlines()
        assert re.match(r"pate-(server|party( [a-z_]+)?): ", last)
        assert all(line[:2].isdecimal() for line in progress), err
        return last


@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    with signals_restored():
        yield Command(capsys, monkeypatch)


def missing(place: Path) -> Path:
    return place / "hospital"


def one_class(place: Path) -> Path:
    return npz(place, labels=np.array(["a"] * 12))


def nan_pixel(place: Path) -> Path:
    images = GREY / np.float32(255)
    images[3, 1, 1] = np.nan
    return npz(place, images=images.astype(np.float32))


def truncated(place: Path) -> Path:
    path = npz(place)
    path.write_bytes(path.read_bytes()[:-200])
    return path


def table(place: Path) -> Path:
    path = place / "records.csv"
    path.write_text("age,outcome\n" + "".join(f"{at},{at % 2}\n" for at in range(20)))
    return path


def npz(place: Path, **arrays: NDArray[np.generic]) -> Path:
    path = place / "records.npz"
    held: dict[str, NDArray[np.generic]] = {"images": GREY, "labels": LABELS} | arrays
    np.savez(path, allow_pickle=False, **held)
    return path


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (missing, (), ("hospital",)),
        (table, ("--label", "outcom"), ("outcom", "age, outcome")),
        (one_class, (), ("one class only, 'a'",)),
        (nan_pixel, ("--strict",), ("NaN",)),
        (truncated, (), ("records.npz", "truncated")),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_data_that_cannot_be_used(
    command: Command,
    tmp_path: Path,
    make: Callable[[Path], Path],
    options: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    place, home = tmp_path / "data", tmp_path / "home"
    place.mkdir()
    # With an encoder some of these could be used, and are not read before there is a campaign.
    policy = tmp_path / "policy.toml"
    policy.write_text("encoders = []\n")
    line = command.fails(
        10, party.cli.main.main,
        "start", "--data", make(place), "--teachers", "5", "--home", home, "--max-wait", "0",
        "--policy", policy, *options,
    )  # fmt: skip
    for word in words:
        assert word in line
    # A key and a ledger are made once; of the data there is nothing.
    assert {path.name for path in files(home)} <= {"lock", "shard.key", "ledger.db", "ledger.head"}
    if (home / "ledger.db").exists():
        assert not PartyLedger(home / "ledger.db", read_only=True).campaigns()


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_a_server_that_is_not_there(command: Command, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    line = command.fails(
        40, party.cli.main.main,
        "start", "--data", npz(tmp_path), "--teachers", "2", "--home", tmp_path / "home",
        "--max-wait", "0.5", "--server", address,
    )  # fmt: skip
    assert address in line
    assert not list((tmp_path / "home").rglob("*.secret"))


def test_a_taken_port_and_other_parameters(command: Command, tmp_path: Path) -> None:
    public, home = npz(tmp_path), tmp_path / "server"
    place = home / "campaign"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for ports in (
            ("--port", port, "--student-port", "0"),
            ("--port", "0", "--student-port", port),
        ):
            line = command.fails(
                41, aggregator_server.cli.main.main, "--public", public, "--home", home, *ports
            )
            assert port in line
            assert ports[ports.index(port) - 1] in line
            # The campaign is there, whole, and has only not begun.
            assert verify(place, None)["phase"] == "gathering"
    before = (place / "ledger.db").read_bytes()
    line = command.fails(
        12, aggregator_server.cli.main.main, "--public", public, "--home", home, "--epsilon", "3"
    )
    assert "epsilon" in line
    assert "delta" not in line
    assert (place / "ledger.db").read_bytes() == before


def test_a_campaign_that_is_not_there(command: Command, tmp_path: Path) -> None:
    home = tmp_path / "server"
    line = command.fails(12, aggregator_server.cli.main.main, "resume", "--home", home)
    assert str(home / "campaign") in line
    assert not home.exists()


@pytest.mark.parametrize("main", [aggregator_server.cli.main.main, party.cli.main.main])
def test_a_key_that_no_option_has(
    command: Command, tmp_path: Path, main: Callable[[], NoReturn]
) -> None:
    config = tmp_path / "campaign.toml"
    config.write_text('epsilom = 3.0\nhome = "there"\n')
    start = ("start",) if main is party.cli.main.main else ()
    line = command.fails(2, main, *start, "--config", config)
    assert "'epsilom'" in line
    assert str(config) in line


@pytest.mark.slow
def test_sides_that_do_not_fit_together(sites: Sites, tmp_path: Path) -> None:
    """One server meets, in turn, its own double, a wrong public set, and two class lists."""
    with DirectCampaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(600, 60), "--aggregator", "gnmax", "--sigma2", "1", parties="2"
        )
        server.says("waiting for parties")

        second = campaign.run(
            "second", "aggregator_server", "--public", sites.public(600, 60), "--home",
            campaign.home, "--port", "0", "--student-port", "0",
        )  # fmt: skip
        second.ends(12)
        assert len(second.lines) == 1
        assert str(campaign.home) in second.text

        other = sites.public(660, 60)
        north = campaign.party("north", "--public", other)
        north.ends(11)
        assert north.lines[-1].startswith(
            "pate-party north: our copy of the public set has the hash"
        )
        assert north.text.count("our copy of the public set has the hash") == 1
        server.says("north refused to join: its own screen has the reason")
        refused = [line for line in server.lines if "north refused" in line or "north: " in line]
        assert len(refused) == 1
        assert "hash" not in refused[0]  # of the party's own words nothing came here

        north = campaign.party("north")
        west = campaign.party("west", "--classes", ",".join([*map(str, range(10)), "none"]))
        server.says("north and west name different classes: only west has none")
        present = describe(campaign.place)["present"]
        assert isinstance(present, dict)
        assert present["here"] == ["north", "west"]
        # A third one decides it: the campaign has its roster, and only the one that differs has ended.
        south = campaign.party("south")
        west.ends(11)
        assert "only ours have none. Correct the labels, or start again with" in west.lines[-1]
        server.says("the roster is complete: 2 parties")
        assert any("west names other classes than north" in line for line in server.lines)
        for program in (north, south):
            assert program.code in (None, 0)


@pytest.mark.slow
def test_a_policy_that_refuses_once_the_noise_is_known(sites: Sites, tmp_path: Path) -> None:
    """Joining is allowed, since nothing is known of noise then; voting is not."""
    policy = tmp_path / "policy.toml"
    policy.write_text("least_sigma = 1000\n")
    with DirectCampaign(tmp_path / "campaign", sites) as campaign:
        server = campaign.serve(
            sites.public(600, 60), "--aggregator", "gnmax", "--sigma2", "2", parties="1"
        )
        south = campaign.party("south", "--policy", policy)
        server.ends(31)
        south.ends(32)
        assert "least_sigma is 1000, and gnmax adds 2 votes" in south.lines[-1]
        (refused,) = [line for line in server.lines if "south: refused" in line]
        assert "least_sigma" not in refused  # the server learns that, and not why
        assert describe(campaign.place)["phase"] == "voting"
