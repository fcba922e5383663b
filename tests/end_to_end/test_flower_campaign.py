"""One campaign over Flower and TLS, with all that may happen to it; and nothing tells a secret.

The clock of a party is wrong when it begins, and when it waits. The server dies when the roster is
complete, gets a new certificate, and continues; a party dies, and while the masked sum waits for it
the SuperLink is killed; then the party comes back with its enrolment, and a student comes. No secret is in
page, metrics, logs, errors, or other roles' files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import ssl
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from typer.testing import CliRunner

from aggregator_server.cli.main import app as server_app
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import FOLDER
from aggregator_server.results.report import LEDGER_FILE, entries
from party.cli.main import app as party_app
from party.ledger.ledger import PartyLedger
from pate.accounting.account import account
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from pate.data.read import read_inputs
from pate.errors import PateError, UnreachableError
from pate.runtime.home import STUDENT_TOKEN
from simulation.programs import children
from tests.end_to_end.faults.test_clock import Clock
from tests.support.processes import searching
from tests.support.processes.programs import Program, until
from tests.support.processes.searching import Secret, files_of, found
from tests.support.processes.watcher import Watcher, bearer
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import Sites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    import typer
    from numpy.typing import NDArray

pytestmark = pytest.mark.timeout(900)

#: Records of each party: no port and hardly a process has such a number.
RECORDS = {"north": 104_729, "south": 115_249, "west": 122_953}
CLASSES = ("ash", "birch", "elm", "fir", "oak", "yew")
TEACHERS = 17
QUERIES = 60
SIGMA = 3.0
TRUE = 0.06
DELTA = 1e-4
#: Of one record of north.
PLANTED = 618033.98875
WARD = "quillfeather-ward"
PAST_S = 400 * 86_400
EXPIRED = "has expired: is the clock of this machine right?"
POLICY = """
campaigns = "enrolled"
largest_epsilon = "none"
least_colluders = 0
"""


@dataclass
class Told:
    """A campaign that is over, and all that could be read of it."""

    campaign: Campaign
    watcher: Watcher
    public: Path
    programs: dict[str, Program]  # those that ended before the last of their role: "first server"
    errors: dict[str, bytes]
    certificates: tuple[str, str]  # what the server showed before and after it was started anew

    @property
    def said(self) -> dict[str, bytes]:
        """The output of the programs."""
        return {
            f"what {name} {where}": text.encode()
            for name, program in self.programs.items()
            for where, text in (("said", program.text), ("printed", program.output))
        }

    @property
    def shown(self) -> dict[str, bytes]:
        """Everything that is displayed or sent."""
        labels = (self.campaign.folder / "labels.json").read_bytes()
        student = files_of(self.campaign.folder / "student", "the student")
        return {**self.watcher.places, **self.said, **self.errors, "labels.json": labels, **student}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("secret")
    public = _deal(folder)
    watcher = Watcher()
    with Campaign(folder / "campaign", Sites(folder, tuple(RECORDS))) as campaign:
        campaign.enrol(POLICY)
        programs, before = _until_the_server_dies(campaign, public, Clock(folder / "clock"))

        # All three are needed, so the sum waits for the one that is away.
        programs["server"] = server = campaign.resume(
            "--page-port", "0", "--log", "json", "--linger", "-1"
        )
        server.says("page: ")
        page = re.findall(r"page: (http://[\w.]+:\d+)", server.text)[0]
        token = (campaign.home / "page.token").read_text().strip()
        watcher.poll("page", page, ("/api/overview", "/metrics", "/readyz", "/healthz"), token)
        watcher.poll("page without token", page, ("/readyz", "/healthz"))
        watcher.follow("stream", f"{page}/api/stream", token)
        for name in ("north", "west"):
            _watch(watcher, name, programs[name])
        server.says("keys from parties: 2 of 3")
        certificates = before, _shown(campaign)
        _kill_superlink(server)
        server.says("the SuperLink is running again")
        programs["south"] = _start(campaign, "south")
        _watch(watcher, "south", programs["south"])
        for step in ("votes on 60 queries", "the campaign is finished"):
            server.says(step)
        until(lambda: "finished" in watcher.phases, "the page says that the campaign is finished")
        for path in ("/", "/page.css", "/page.js", "/nothing"):
            answer = httpx.get(page + path, headers=bearer(token), trust_env=False)
            watcher.note(f"page{path}", answer.content, str(answer.headers).encode())
        programs |= _student_comes(campaign, public)
        server.ends(0)
        for name in RECORDS:
            programs[name].ends(0)
        watcher.stop()
        export = ["export", "--out", str(campaign.folder / "labels.json")]
        CliRunner().invoke(server_app, [*export, "--home", str(campaign.home)])
        yield Told(campaign, watcher, public, programs, _mistakes(campaign), certificates)


def _until_the_server_dies(
    campaign: Campaign, public: Path, clock: Clock
) -> tuple[dict[str, Program], str]:
    """Return all programs so far, of which two parties run, and the certificate of the server."""
    first = _serve(campaign, public)
    first.says("waiting for parties")
    shown = _shown(campaign)
    campaign.prefix = clock.prefix
    clock.set(PAST_S)
    early = _start(campaign, "north")
    early.ends(UnreachableError.exit_code)
    clock.set(0)
    north = _start(campaign, "north")
    first.says("north joined")
    clock.set(PAST_S)
    north.says(EXPIRED)
    clock.set(0)
    campaign.prefix = ()
    south, west = _start(campaign, "south"), _start(campaign, "west")
    first.ends(-signal.SIGKILL)
    campaign.does("rotate", "aggregator_server", "rotate", "--home", campaign.home)
    south.kill()
    south.leaves_nobody()
    gone = {"first server": first, "early north": early, "first south": south}
    return {**gone, "north": north, "west": west}, shown


def _shown(campaign: Campaign) -> str:
    """Return the certificate that the server's port shows, checked against its authority."""
    ca = campaign.home / FOLDER / "ca.pem"
    return ssl.get_server_certificate(("127.0.0.1", campaign.port), ca_certs=str(ca), timeout=60)


def _kill_superlink(server: Program) -> None:
    (superlink,) = [pid for pid in children(server.pid) if b"superlink" in names_of(pid)]
    os.kill(superlink, signal.SIGKILL)
    until(lambda: superlink not in children(server.pid), "the SuperLink is gone")


def _watch(watcher: Watcher, name: str, party: Program) -> None:
    party.says("metrics and health: ")
    address = re.findall(r"health: (http://[\w.]+:\d+)/", party.text)[0]
    watcher.poll(name, address, ("/metrics", "/healthz", "/readyz"))


def _deal(folder: Path) -> Path:
    """Write the parties' tables and the public one, and return where that is."""
    import pandas as pd

    rng = np.random.default_rng(0)

    def table(rows: int) -> pd.DataFrame:
        a, b, c = rng.normal(size=(3, rows)).round(3)
        at = ((np.arctan2(b, a) / np.pi + 1) / 2 * len(CLASSES)).astype(int) % len(CLASSES)
        # Labels are mostly chance, so that teachers differ.
        at = np.where(rng.random(rows) < TRUE, at, rng.integers(0, len(CLASSES), rows))
        return pd.DataFrame({"a": a, "b": b, "c": c, "tree": np.array(CLASSES)[at]})

    for name, records in RECORDS.items():
        (folder / WARD / name).mkdir(parents=True)
        made = table(records)
        if name == "north":
            made.loc[records // 2, "c"] = PLANTED
        made.to_parquet(folder / WARD / name / "records.parquet")
    table(QUERIES).drop(columns="tree").to_parquet(folder / "public.parquet")
    return folder / "public.parquet"


def _serve(campaign: Campaign, public: Path) -> Program:
    return campaign.run(
        "server", "aggregator_server", "--public", public, "--parties", ",".join(RECORDS),
        "--epsilon", "1000", "--delta", str(DELTA), "--aggregator", "gnmax",
        "--sigma2", str(SIGMA), "--min-parties", "3", "--colluders", "0", "--no-page",
        "--student-port", str(campaign.student_port),
        "--home", campaign.home, "--json", "--log", "json", failpoint="roster-recorded",
    )  # fmt: skip


def _start(campaign: Campaign, name: str) -> Program:
    """Start a party; one of them speaks JSON."""
    return campaign.run(
        name, "party", "start", "--data", campaign.sites.folder / WARD / name / "records.parquet",
        "--label", "tree", "--classes", ",".join(CLASSES), "--model", "logistic",
        "--teachers", str(TEACHERS), "--home", campaign.sites.home(name), "--json",
        "--votes", "teachers", "--metrics-port", "0", *(("--log", "json") if name == "south" else ()),
    )  # fmt: skip


def _student_comes(campaign: Campaign, public: Path) -> dict[str, Program]:
    student = campaign.run(
        "student", "student", "train", "--server", f"127.0.0.1:{campaign.student_port}",
        "--token-file", campaign.home / "student.token",
        "--public", public, "--out", campaign.folder / "student", "--steps", "2",
        "--json", "--log", "json",
    )  # fmt: skip
    student.ends(0)
    return {"student": student}


def _mistakes(campaign: Campaign) -> dict[str, bytes]:
    """Make mistakes, and return the lines of the errors."""
    home = ("--home", str(campaign.home))
    data = campaign.sites.folder / WARD / "north" / "records.parquet"
    mistakes: dict[str, tuple[typer.Typer, list[str]]] = {
        "wrong head": (server_app, ["ledger", "verify", "--head", f"3:{'0' * 64}", *home]),
        "another campaign": (server_app, ["export", "--out", str(data), "--campaign", "x", *home]),
        "no such column": (
            party_app,
            ["start", "--data", str(data), "--label", "treee",
             "--home", str(campaign.sites.home("south"))],
        ),
    }  # fmt: skip
    said = {}
    for name, (app, arguments) in mistakes.items():
        done = CliRunner().invoke(app, arguments)
        assert isinstance(done.exception, PateError), name
        said[f"the error of {name}"] = f"{done.exception}\n{done.output}".encode()
    return said


def test_the_server_came_back_with_a_new_certificate(told: Told) -> None:
    before, later = told.certificates
    assert before != later
    said = told.programs["west"].text
    assert "certificate" not in said, "parties need not act"
    assert "connecting to 127.0.0.1" in said


def test_a_partys_clock_jumps_over_the_servers_certificate(told: Told) -> None:
    """At the next handshake it waits, as for a server that is away; a party that starts so does not."""
    assert EXPIRED in told.programs["early north"].lines[-1]
    assert EXPIRED in told.programs["north"].text
    assert PartyLedger(told.campaign.sites.home("north") / "ledger.db", read_only=True).verify()


def test_a_superlink_that_is_killed_is_started_again_by_its_server(told: Told) -> None:
    said = told.programs["server"].text
    assert said.count("the SuperLink ended (exit code -9); restarting it") == 1
    assert said.count("the SuperLink is running again") == 1
    assert "attempt 1 of" not in said


def test_nobody_was_lost_on_the_way(told: Told) -> None:
    votes = told.campaign.body("votes")
    assert votes["responders"] == ["north", "south", "west"]
    assert votes["teachers"] == 3 * TEACHERS


def test_each_label_was_paid_for_once(told: Told) -> None:
    found = told.campaign.verified()
    assert found["phase"] == "finished"
    assert found["labels_released"] == QUERIES
    held = entries(told.campaign.place)
    kinds = [entry["kind"] for entry in held]
    assert kinds.count("roster") == kinds.count("opening") == kinds.count("close") == 1
    assert kinds.count("charge") == kinds.count("release")
    for name in RECORDS:
        assert told.programs[name].result()["votes_given"] == QUERIES


# --- the secrets -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secrets(told: Told) -> list[Secret]:
    """Everything that only its owner may have."""
    home = told.campaign.home
    made = [
        searching.number("the number of all records", "nobody", sum(RECORDS.values())),
        searching.number("a record", "north", int(PLANTED)),
        searching.text("a record's value", "north", str(PLANTED)),
        searching.text("the page's token", "server", (home / "page.token").read_text().strip()),
        searching.text("the student's token", "server", (home / STUDENT_TOKEN).read_text().strip()),
        *_private(home / FOLDER / "ca.key", "the authority's key", "server"),
        *_private(home / FOLDER / "server.pem", "the server's key", "server"),
        searching.key(
            "the campaign's key", "server", (home / FOLDER / "campaign.key").read_bytes()
        ),
        *_of_votes(told),
    ]
    for name, records in RECORDS.items():
        place = told.campaign.sites.home(name)
        made.append(searching.number(f"the number of {name}'s records", name, records))
        made += [
            searching.key(f"{name}'s {file}", name, (place / f"{file}.key").read_bytes())
            for file in ("identity", "shard")
        ]
        (node,) = place.rglob("node.key")
        made += _private(node, f"{name}'s node key", name)
        votes = _votes_of(place, told.public)
        made.append(searching.matrix(f"{name}'s votes", name, votes[:20]))
        made.append(searching.rows(f"a row of {name}'s votes", name, votes))
    return made


def _of_votes(told: Told) -> list[Secret]:
    """Return sums of votes, and data-dependent figures of them."""
    with Ledger.open(told.campaign.place / LEDGER_FILE) as ledger:
        counts = ledger.counts()
    assert counts.sum() == QUERIES * TEACHERS * len(RECORDS)
    law = DiscreteGaussian(SIGMA)
    whole = account(
        counts, GaussianSetting(label=law), delta=DELTA, neighbours=Neighbours(),
        bounds=("theorem6", "independent"),
    )  # fmt: skip
    depends, fixed = whole.figures["theorem6"], whole.figures["independent"]
    made = [
        searching.rows("a sum of votes", "server", counts),
        searching.matrix("the sums of votes", "server", counts[:20]),
    ]
    for name in ("classical", "improved"):
        value = getattr(depends, name)
        assert value < 0.99 * getattr(fixed, name), "it must tell something of the votes"
        made.append(searching.figures("an epsilon that looks at votes", "nobody", [value]))
    log_q = gnmax_log_q(counts, law)
    made.append(searching.figures("q of a query", "nobody", [*log_q, *np.exp(log_q)]))
    return made


def _votes_of(home: Path, public: Path) -> NDArray[np.int64]:
    """Return what a party voted, in the order of the public set."""
    with closing(sqlite3.connect(f"file:{home / 'votes.db'}?mode=ro", uri=True)) as db, db:
        held = dict(db.execute("SELECT query, counts FROM votes").fetchall())
    db.close()
    rows = [held[one] for one in read_inputs(public).row_hashes()]
    return np.frombuffer(b"".join(rows), "<i8").reshape(QUERIES, len(CLASSES)).astype(np.int64)


def _private(path: Path, what: str, owner: str) -> list[Secret]:
    """Return a private key's number, and a line of its file that has part of it."""
    content = path.read_bytes()
    begin, _, rest = content[content.index(b"PRIVATE KEY-----") :].partition(b"\n")
    assert begin
    body = rest.partition(b"-----END")[0].split()
    if b"OPENSSH" in content:
        line = body[-2]
        private: object = load_ssh_private_key(content, None)
    else:
        line = body[0]
        private = load_pem_private_key(content, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    if isinstance(private, ed25519.Ed25519PrivateKey):
        number = private.private_bytes_raw()
    else:
        size = (private.key_size + 7) // 8
        number = private.private_numbers().private_value.to_bytes(size, "big")
    return [searching.key(what, owner, number), searching.text(what, owner, line.decode())]


# --- the search ------------------------------------------------------------------------------


def test_all_was_seen(told: Told) -> None:
    """Else the search below would find nothing in nothing."""
    places = told.shown
    assert told.watcher.errors == []
    assert {"voting", "finished"} <= told.watcher.phases
    for place in ("page/", "page/api/overview", "page/metrics", "stream", "north/metrics"):
        assert len(places[place]) > 500, place
    assert b"pate_labels" in places["page/metrics"]
    assert b"pate_party_epsilon " in places["west/metrics"]
    assert len(told.errors) == 3
    for name in ("server", "south", "student"):
        for line in told.programs[name].lines:
            assert json.loads(line)["program"].startswith("pate-")


def test_nothing_that_is_shown_holds_a_secret(told: Told, secrets: list[Secret]) -> None:
    assert found(secrets, told.shown) == []


def test_nobody_keeps_the_secrets_of_others(told: Told, secrets: list[Secret]) -> None:
    homes = {name: files_of(told.campaign.sites.home(name), name) for name in RECORDS}
    homes["server"] = files_of(told.campaign.home, "the server")
    assert all(len(files) > 5 for files in homes.values())
    for keeper, files in homes.items():
        others = [secret for secret in secrets if secret.owner not in (keeper, "nobody")]
        telling = searching.text("where data lies", "a party", WARD)
        assert found([*others, *([telling] if keeper == "server" else [])], files) == []


def test_the_secrets_are_where_they_belong(told: Told, secrets: list[Secret]) -> None:
    """The search finds them in their owners' homes: the keys, the votes and their sums."""
    for keeper, home in {
        "server": told.campaign.home,
        **{name: told.campaign.sites.home(name) for name in RECORDS},
    }.items():
        files = files_of(home, keeper)
        own = [secret for secret in secrets if secret.owner == keeper and "key" in secret.what]
        there = {secret.what for secret in own if any(map(secret.is_in, files.values()))}
        assert there == {secret.what for secret in own} != set()
