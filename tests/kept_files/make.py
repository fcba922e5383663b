"""Make the files that the programs of this version leave behind, for tests of later versions.

``python -m tests.kept_files.make [OUT.tar.xz]`` runs the programs. They leave, small and of made-up tables:

* ``server``, three ``homes`` and ``data``: a server, its enrolled parties with their policies, and the
  campaigns :data:`ENROLLED`;
* ``trial`` and three ``trial-homes``: the other :data:`CAMPAIGNS`, one of each family of mechanisms, of
  which two were killed;
* ``student``, trained on the labels of ``confident``, with its statement, and ``labels.json``;
* ``server-backup`` and ``home-backup``, of ``confident`` and of the first party;
* ``hospital``, the home of a party that made synthetic rows, and ``model.safetensors``, what it modelled;
* ``said.json``, what the programs said of all that.

All keys are made here and protect nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tarfile
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Self

import numpy as np
import typer
from typer.testing import CliRunner

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from pate.runtime.child import free_port, python
from student.cli import app as student
from tests.support.processes.programs import Program
from tests.support.world.forked import Command
from tests.support.world.sites import lenient

NAMES = ("east", "north", "west")
#: Campaigns over Flower, of an enrolled server and parties. The others are trials.
ENROLLED = ("confident", "series")
#: The one with a student, a statement and backups.
PUBLISHED = "confident"
HOMES = (*(f"{of}/{name}" for of in ("homes", "trial-homes") for name in NAMES), "hospital")
RECORDS, QUERIES, TEACHERS = 60, 40, 4
#: Of the enrolled server, below the ports that systems give out by themselves.
PORT = 21707
#: The options of each campaign, and where its server is killed; None: it runs to its end.
CAMPAIGNS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "lnmax": (("--aggregator", "lnmax", "--scale", "2"), None),
    "confident": (
        (
            "--aggregator", "confident-gnmax", "--threshold", "6", "--sigma1", "1", "--sigma2", "1/2",
            "--vote-proofs",
        ),
        None,
    ),
    "interactive": (
        (
            "--aggregator", "interactive-gnmax", "--threshold", "6", "--sigma1", "1", "--sigma2", "1/2",
            "--interactive-threshold", "3",
        ),
        None,
    ),
    "gated": (
        (
            "--aggregator", "gnmax", "--sigma2", "2", "--publish", "gated", "--max-queries", "20",
            "--epsilon", "8",
        ),
        None,
    ),
    "neighbour": (("--aggregator", "neighbour", "--representatives", "4"), None),
    "series": (
        (
            "--aggregator", "neighbour", "--representatives", "4", "--noise", "distributed",
            "--series", "monthly",
        ),
        None,
    ),
    "halfway": (
        ("--aggregator", "gnmax", "--sigma2", "1", "--epsilon", "60", "--rounds", "2"),
        "round-ended",
    ),
    "early": (("--aggregator", "gnmax", "--sigma2", "1", "--noise", "distributed"), "roster-recorded"),
}  # fmt: skip
#: Of a made-up table, one of whose columns the class follows.
SCHEMA = {
    "format": "pate-synthesis-schema/1", "min_rows": 200, "label": "class",
    "columns": [
        {"name": "age", "kind": "number", "integer": True, "edges": [18, 40, 60, 90]},
        {"name": "smoker", "kind": "category", "codes": ["n", "y"]},
        {"name": "class", "kind": "category", "codes": ["old", "young"]},
    ],
}  # fmt: skip


class Programs:
    """Servers and parties of one folder as real processes, which are all ended."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs, self._stack = folder, logs, ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(
        self, campaign: str, module: str, *options: object, failpoint: str | None = None
    ) -> Program:
        """Start ``python -m module options``: over Flower if enrolled, else over the direct link."""
        words = list(map(str, options))
        program = (
            Program(self._logs, module, [*python(module), *words], failpoint=failpoint)
            if campaign in ENROLLED
            else Command(self._logs, module, module, *words, failpoint=failpoint)
        )
        self._stack.callback(program.sweep)
        return program

    def serve(
        self, campaign: str, *options: object, doors: tuple[int, int], failpoint: str | None = None
    ) -> Program:
        """Start a server with these ports, for parties and for the student."""
        return self.start(
            campaign, "aggregator_server", *options, "--campaign", campaign,
            "--home", self._folder / home_of(campaign), "--port", doors[0],
            "--student-port", doors[1], "--patience", "1", "--no-page", failpoint=failpoint,
        )  # fmt: skip

    def join(self, campaign: str, name: str, port: int) -> Program:
        """Start a party."""
        homes = "homes" if campaign in ENROLLED else "trial-homes"
        return self.start(
            campaign, "party", "start", "--data", self._folder / "data" / name, "--label", "class",
            "--model", "logistic", "--teachers", TEACHERS, "--home", self._folder / homes / name,
            "--server", f"127.0.0.1:{port}",
        )  # fmt: skip

    def hold(self, campaign: str) -> None:
        """Run a campaign with all parties, to its end or to where its server is killed."""
        options, failpoint = CAMPAIGNS[campaign]
        public = self._folder / f"public-{campaign}.csv"
        port, student_port = PORT if campaign in ENROLLED else free_port(), free_port()
        serving = self.serve(
            campaign, "--public", public, "--parties", ",".join(NAMES), "--min-parties", "2",
            "--colluders", "0", "--epsilon", "1000", "--delta", "1e-6", *options,
            "--linger", "30" if campaign == "interactive" else "0",
            doors=(port, student_port), failpoint=failpoint,
        )  # fmt: skip
        joined = [self.join(campaign, name, port) for name in NAMES]
        if campaign == "interactive":
            token = self._folder / home_of(campaign) / "student.token"
            where = (f"127.0.0.1:{student_port}", public, self._logs / "labels.json", token)
            joined.append(self.start(campaign, "study", *where))
        serving.ends(0 if failpoint is None else -signal.SIGKILL)
        for each in joined:
            if failpoint is not None:
                each.send(signal.SIGTERM)
            each.ends(0 if failpoint is None else 130)


def home_of(campaign: str) -> str:
    """Return the home of a campaign's server."""
    return "server" if campaign in ENROLLED else "trial"


def does(app: typer.Typer, *arguments: str) -> str:
    """Run a command in this process, and return what it printed."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, (arguments, done.output, done.exception)
    return done.stdout


def write_table(path: Path, rows: int, seed: int, *, labelled: bool = True) -> None:
    """Write a table whose class is known by its age."""
    random = np.random.default_rng(seed)
    ages, smokers = random.integers(18, 90, rows), random.integers(2, size=rows)
    lines = [
        (str(age), "ny"[smoker], "young" if age < 50 else "old")
        for age, smoker in zip(ages, smokers, strict=True)
    ]
    columns = 3 if labelled else 2
    table = [",".join(line[:columns]) for line in (("age", "smoker", "class"), *lines)]
    path.write_text("\n".join(table) + "\n")


def enrol() -> None:
    """Make the server's identities, enrol each party by hand, and write all policies."""
    does(server, "init", "--port", str(PORT), "--home", "server")
    for name in NAMES:
        home = f"homes/{name}"
        does(server, "enroll", name, "--out", "bundle", "--home", "server")
        does(party, "enroll", "bundle", "--answer", "answer", "--home", home)
        does(server, "admit", "answer", "--home", "server")
        for each in ("bundle", "answer"):
            Path(each).unlink()
        policy = lenient(3, 2)
        Path(home, "policy.toml").write_text(policy)
        Path("trial-homes", name).mkdir(parents=True)
        policy = policy.replace('"enrolled"', '"any"')
        Path("trial-homes", name, "policy.toml").write_text(policy)


def make(programs: Programs) -> None:
    """Fill the folder that we are in."""
    for at, name in enumerate(NAMES):
        Path("data", name).mkdir(parents=True)
        write_table(Path("data", name, "records.csv"), RECORDS, at)
    for at, campaign in enumerate(CAMPAIGNS):
        write_table(Path(f"public-{campaign}.csv"), QUERIES, 10 + at, labelled=False)
    enrol()
    for campaign in CAMPAIGNS:
        programs.hold(campaign)
    of = ("--campaign", PUBLISHED, "--home", home_of(PUBLISHED))
    does(server, "ledger", "backup", "--out", "server-backup", *of)
    does(party, "backup", "--out", "home-backup", "--home", f"homes/{NAMES[0]}")
    does(server, "export", "--out", "labels.json", *of)
    public = ("--public", f"public-{PUBLISHED}.csv")
    does(student, "train", "--labels", "labels.json", *public, "--out", "student", "--steps", "20")
    does(
        student,
        "predict",
        "--model",
        "student",
        "--data",
        "public-gated.csv",
        "--out",
        "predicted.csv",
    )
    write_table(Path("hospital.csv"), 300, 2)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    does(
        party, "synthesize", "--data", "hospital.csv", "--schema", "schema.json", "--rows", "20",
        "--out", "rows.parquet", "--model-out", "model.safetensors", "--home", "hospital",
    )  # fmt: skip
    said = {}
    for name in CAMPAIGNS:
        place = ("--campaign", name, "--home", home_of(name))
        said[name] = json.loads(does(server, "ledger", "verify", "--json", *place))
    for home in HOMES:
        said[home] = json.loads(does(party, "ledger", "--json", "--home", home))
    Path("said.json").write_text(json.dumps(said, indent=1))


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out logs, pictures, and who made the files."""
    if member.name.endswith((".log", ".png", ".html")):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Make the archive."""
    wanted = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = Path(__file__).with_name(f"{version('federated-pate')}.tar.xz")
    wanted.add_argument("out", type=Path, nargs="?", default=here)
    out = wanted.parse_args().out.resolve()
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as logs:
        os.chdir(place)  # what the programs say and store names no other folder
        with Programs(Path(place), Path(logs)) as programs:
            make(programs)
        with tarfile.open(out, "w:xz") as archive:
            archive.add(place, arcname=".", filter=_bare)


if __name__ == "__main__":
    main()
