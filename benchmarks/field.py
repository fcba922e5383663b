"""A campaign with real processes, as in five terminals: what the benchmarks share."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pate.runtime.child import free_port
from pate.runtime.screen import Screen
from simulation.processes import Cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def votes_only(
    place: Path,
    *,
    public: Path,
    parties: Mapping[str, Sequence[str]],
    campaign: str,
    server: Sequence[str],
) -> str:
    """Run a campaign without a student, to its end; return its labels as they are exported.

    Several of them in one place share the parties' homes, and so their teachers and votes.
    """
    port = free_port()
    out, home = place / f"{campaign}.json", str(place / "server")
    with Cast(Screen("benchmark"), place) as cast:
        cast.start(
            "server", "aggregator_server",
            "--public", str(public), "--parties", ",".join(parties), "--port", str(port),
            "--student-port", "0", "--home", home, "--campaign", campaign, "--linger", "0",
            "--json", *server,
        )  # fmt: skip
        for name, options in parties.items():
            cast.start(
                name, "party",
                "start", "--name", name, "--server", f"127.0.0.1:{port}",
                "--home", str(place / "homes" / name), "--json", *options,
            )  # fmt: skip
        cast.wait("server", *parties)
        cast.start("labels", "aggregator_server", "export", "--home", home,
                   "--campaign", campaign, "--out", str(out))  # fmt: skip
        cast.wait("labels")
    return out.read_text()


def plan(*options: str) -> dict[str, object]:
    """Return what ``pate plan`` says of the settings as given, to both observers."""
    done = subprocess.run(
        [sys.executable, "-m", "simulation", "plan", *options, "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    given = json.loads(done.stdout)["plans"]["given"]
    return {
        "labels": given["expected"]["answered"],
        "epsilon_public": given["guarantee"]["epsilon"],
        "epsilon_server": given["server_of_noisy_histograms"],
    }


def alone(run: Callable[[Path], dict[str, object]], about: str) -> None:
    """Run one benchmark from the command line and print its JSON object."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--keep", type=Path, help="folder to work in and to keep")
    chosen = parser.parse_args()
    if chosen.keep:
        chosen.keep.mkdir(parents=True, exist_ok=True)
        print(json.dumps(run(chosen.keep), indent=2))
        return
    with tempfile.TemporaryDirectory(prefix="pate-bench-") as place:
        print(json.dumps(run(Path(place)), indent=2))
