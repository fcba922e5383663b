"""Make the files that a version of the programs leaves behind, for tests of later versions.

``python tests/old_files/make.py CHECKOUT OUT.tar.xz`` runs the programs of the checkout, whatever
commit it is of, with the packages of the Python that runs this. They leave, small and of made-up data:

* ``server``, three ``homes`` and ``data``: an enrolled server, its parties, and campaigns: ``over``,
  labelled to its end, as are ``gated`` and ``neighbour``; ``halfway``, killed after its first labels, and
  ``early``, before any votes;
* ``table-server``, ``table-homes`` and ``tables``: a campaign ``table`` of parties that are not
  enrolled, on this machine only, killed before any votes;
* ``student``, trained on the labels of ``over``, and ``labels.json``, what it learnt from;
* ``server-backup`` and ``home-backup``, of ``over`` and of the first party;
* ``hospital``, the home of a party that made synthetic rows, and ``model.npz``, what it modelled;
* ``told.json``, what the programs then said of all that.

All keys are made here and guard nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

NAMES = ("east", "north", "west")
CLASSES = ("cross", "disc", "ring")
RECORDS, QUERIES, TEACHERS = 60, 40, 2
#: Below the ports that systems give out by themselves.
PORT = 21707
DEADLINE_S = 240
POLICY = """\
campaigns = "enrolled"
max_queries = 500
max_queries_in_all = 5000
least_sigma = "none"
least_noise_multiplier = 0.1
least_roster = 3
least_survivors = 2
least_colluders = 0
aggregation = ["masked"]
noise = ["central", "distributed"]
largest_epsilon = "none"
delta = 1e-5
units = ["record", "patient", "party"]
hours = "00:00-24:00"
weekdays = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
repeat_queries = "never"
"""
SERVE = (
    "--parties", ",".join(NAMES), "--min-parties", "2", "--colluders", "0", "--epsilon", "1000",
    "--delta", "1e-6",
)  # fmt: skip
#: The options of each campaign, and where its server is killed; None: it runs to its end.
CAMPAIGNS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "over": (
        (
            "--aggregator", "confident-gnmax", "--threshold", "3", "--sigma1", "1", "--sigma2", "1/2",
            "--vote-proofs",
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
    "halfway": (
        ("--aggregator", "gnmax", "--sigma2", "1", "--epsilon", "60", "--rounds", "2"),
        "round-ended",
    ),
    "early": (("--aggregator", "gnmax", "--sigma2", "1", "--noise", "distributed"), "roster-recorded"),
    "table": (("--aggregator", "gnmax", "--sigma2", "1", "--drop", "class"), "roster-recorded"),
}  # fmt: skip


class Programs:
    """The programs of a checkout.

    Args:
        checkout: with the packages in it.
        folder: where they work; their paths are told relative to it, as the files shall name none.
    """

    def __init__(self, checkout: Path, folder: Path) -> None:
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PATE_")}
        self._around = kept | {
            "PYTHONPATH": str(checkout),
            "OMP_NUM_THREADS": "1",
            "HOME": str(folder),
        }
        self._logs = Path(tempfile.mkdtemp(prefix="old-files-"))
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, failpoint: str | None = None) -> subprocess.Popen[bytes]:
        """Start ``python -m command``."""
        around = self._around | ({"PATE_FAILPOINT": failpoint} if failpoint else {})
        with (
            self._log(len(self._started), "out").open("wb") as out,
            self._log(len(self._started), "err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=self._folder, env=around, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._started.append(process)
        return process

    def ends(self, process: subprocess.Popen[bytes], code: int = 0) -> str:
        """Wait until it has ended with this code; return what it printed."""
        at = self._started.index(process)
        try:
            found: int | None = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            found = None
        if found != code:
            raise SystemExit(
                f"{process.args!r} ended with {found}, not {code}:\n{self._log(at, 'err').read_text()}"
            )
        return self._log(at, "out").read_text()

    def run(self, *command: str) -> str:
        """Run ``python -m command`` to its end; return what it printed."""
        return self.ends(self.start(*command))

    def end(self) -> None:
        """End whatever runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self._logs)

    def _log(self, number: int, kind: str) -> Path:
        return self._logs / f"{number}.{kind}"


def write_data(folder: Path) -> None:
    """Write images of three shapes in noise: some for each party, and a public set for each campaign."""
    random = np.random.default_rng(1)
    across, down = np.mgrid[-3.5:4, -3.5:4]
    far = np.hypot(across, down)
    shapes = np.stack([(np.abs(across) < 1) | (np.abs(down) < 1), far < 2.5, (far > 2) & (far < 4)])

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = np.arange(count) % len(CLASSES)
        noise = random.integers(0, 60, (count, 8, 8))
        return (shapes[labels] * 190 + noise).astype(np.uint8), labels

    for name in NAMES:
        (folder / "data" / name).mkdir(parents=True)
        images, labels = drawn(RECORDS)
        names = np.array(CLASSES)
        np.savez_compressed(
            folder / "data" / name / "records.npz",
            images=images,
            labels=names[labels],
            classes=names,
        )
        (folder / "tables" / name).mkdir(parents=True)
        _write_table(folder / "tables" / name / "records.csv", RECORDS, random)
    _write_table(folder / "public-table.csv", QUERIES, random)
    for campaign in sorted(set(CAMPAIGNS) - {"table"}):
        np.savez_compressed(folder / f"public-{campaign}.npz", images=drawn(QUERIES)[0])


def _write_table(path: Path, rows: int, random: np.random.Generator) -> None:
    """Write a table whose class is known by its age."""
    ages, smokers, sexes = (
        random.integers(18, 90, rows),
        random.integers(2, size=rows),
        random.integers(2, size=rows),
    )
    lines = [
        f"{a},{'ny'[b]},{'fm'[c]},{'young' if a < 50 else 'old'}"
        for a, b, c in zip(ages, smokers, sexes, strict=True)
    ]
    path.write_text("\n".join(["age,smoker,sex,class", *lines]) + "\n")


def enrol(programs: Programs, folder: Path) -> None:
    """Make the server's identities, and enrol each party by hand."""
    programs.run("aggregator_server", "init", "--port", str(PORT), "--home", "server")
    for name in NAMES:
        home = f"homes/{name}"
        programs.run(
            "aggregator_server", "enroll", name, "--out", "bundle.json", "--home", "server"
        )
        programs.run("party", "enroll", "bundle.json", "--answer", "answer.json", "--home", home)
        programs.run("aggregator_server", "admit", "answer.json", "--home", "server")
        (folder / home / "policy.toml").write_text(POLICY)
    (folder / "bundle.json").unlink()
    (folder / "answer.json").unlink()


def hold(programs: Programs, campaign: str) -> None:
    """Run a campaign with all parties, to its end or to where its server is killed."""
    options, failpoint = CAMPAIGNS[campaign]
    public, home, parties = f"public-{campaign}.npz", "server", "homes"
    data: tuple[str, ...] = ("--model", "linear")
    if campaign == "table":  # on this machine only: no party is enrolled
        public, home, parties = "public-table.csv", "table-server", "table-homes"
        data = ("--model", "logistic", "--label", "class", "--server", f"127.0.0.1:{PORT}")
    server = programs.start(
        "aggregator_server", "--public", public, *SERVE, *options, "--campaign", campaign, "--home", home,
        "--port", str(PORT), "--student-port", str(PORT + 1), "--linger", "0", "--no-page",
        failpoint=failpoint,
    )  # fmt: skip
    joined = [
        programs.start(
            "party", "start", "--data", f"{'tables' if campaign == 'table' else 'data'}/{name}", *data,
            "--teachers", str(TEACHERS), "--home", f"{parties}/{name}",
        )
        for name in NAMES
    ]  # fmt: skip
    programs.ends(server, 0 if failpoint is None else -signal.SIGKILL)
    for party in joined:
        if failpoint is not None:
            party.send_signal(signal.SIGTERM)
        programs.ends(party, 0 if failpoint is None else 130)


def synthesize(programs: Programs, folder: Path) -> None:
    """Make synthetic rows of a table, and keep the model."""
    _write_table(folder / "hospital.csv", 300, np.random.default_rng(2))
    schema = {
        "format": "pate-synthesis-schema/1", "min_rows": 200, "label": "sex",
        "columns": [
            {"name": "age", "kind": "number", "integer": True, "edges": [18, 40, 60, 90]},
            {"name": "smoker", "kind": "category", "codes": ["n", "y"]},
            {"name": "sex", "kind": "category", "codes": ["f", "m"]},
        ],
    }  # fmt: skip
    (folder / "schema.json").write_text(json.dumps(schema))
    programs.run(
        "party", "synthesize", "--data", "hospital.csv", "--drop", "class", "--schema", "schema.json",
        "--rows", "20", "--out", "rows.parquet", "--model-out", "model.npz", "--home", "hospital",
    )  # fmt: skip


def make(programs: Programs, folder: Path) -> None:
    """Fill the folder."""
    write_data(folder)
    enrol(programs, folder)
    for campaign in CAMPAIGNS:
        hold(programs, campaign)
    over = ("--campaign", "over", "--home", "server")
    programs.run("aggregator_server", "ledger", "backup", "--out", "server-backup", *over)
    programs.run("party", "backup", "--out", "home-backup", "--home", f"homes/{NAMES[0]}")
    programs.run("aggregator_server", "export", "--out", "labels.json", *over)
    programs.run(
        "student", "train", "--labels", "labels.json", "--public", "public-over.npz", "--out", "student",
        "--steps", "20",
    )  # fmt: skip
    synthesize(programs, folder)
    programs.run(
        "student",
        "predict",
        "--model",
        "student",
        "--data",
        "public-gated.npz",
        "--out",
        "predicted.csv",
    )
    told = {}
    for name in CAMPAIGNS:
        place = ("--campaign", name, "--home", "table-server" if name == "table" else "server")
        told[name] = json.loads(
            programs.run("aggregator_server", "ledger", "verify", "--json", *place)
        )
    for home in (*(f"homes/{name}" for name in NAMES), "hospital"):
        told[home] = json.loads(programs.run("party", "ledger", "--json", "--home", home))
    (folder / "told.json").write_text(json.dumps(told, indent=1))


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave logs out, and who made the files."""
    if member.name.endswith(".log"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    """Make the archive."""
    wanted = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    wanted.add_argument("checkout", type=Path)
    wanted.add_argument("out", type=Path)
    asked = wanted.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        programs = Programs(asked.checkout.resolve(), folder)
        try:
            make(programs, folder)
        finally:
            programs.end()
        with tarfile.open(asked.out, "w:xz") as archive:
            archive.add(folder, arcname=".", filter=_bare)


if __name__ == "__main__":
    main()
