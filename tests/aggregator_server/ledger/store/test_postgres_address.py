"""The place of a ledger in PostgreSQL: its address, its connection, and the folder's anchor."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import ANCHOR_FILE, Address, InDatabase, place_of
from aggregator_server.ledger.store.session import connect
from aggregator_server.ledger.verify import verify
from aggregator_server.results import report
from pate.errors import StateError, UnreachableError, UsageError
from tests.support.postgres import Cluster
from tests.support.server.campaigns import label, make_spec, start
from tests.support.server.in_postgres import again

ROOT = Path(__file__).resolve().parents[4]


# The way there.


def test_a_password_comes_from_its_file_and_is_told_to_nobody(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:pate:wrong-horse\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    place = replace(cluster.place(tmp_path / "state"), address=Address.parse(cluster.network_url))
    with pytest.raises(UnreachableError, match="password authentication failed") as told:
        Ledger.create(place, make_spec())
    assert "horse" not in str(told.value)
    passwords.write_text("*:*:*:pate:correct-horse\n")
    with start(place) as ledger:
        assert "horse" not in str(ledger.place)
    assert "horse" not in place.anchor.read_text()
    services = tmp_path / "pg_service.conf"
    services.write_text(f"[ledger]\nhost=127.0.0.1\nport={cluster.port}\ndbname=pate\nuser=pate\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    by_name = replace(place, address=Address.parse("postgresql:///?service=ledger"))
    assert verify(by_name).head == ledger.state().head


HIDDEN, UNUSABLE, UNREADABLE, UNPROVEN = (
    "has a password in it", "cannot be used", "not the address", "another machine",
)  # fmt: skip
REFUSED = {
    "postgresql://pate:hunter2@/pate": HIDDEN,
    "postgresql://pate:hunter2@h:port/pate": HIDDEN,
    "postgresql://pate@/pate?password=hunter2": HIDDEN,
    "postgresql://pate@/pate?sslpassword=hunter2": HIDDEN,
    "postgresql://pate@/pate?scram_client_key=hunter2": HIDDEN,
    "postgresql://pate@/pate?scram_server_key=hunter2": HIDDEN,
    "postgresql://pate@/pate?oauth_client_secret=hunter2": HIDDEN,
    "postgresql://pate%3Ahunter2@/pate": HIDDEN,
    "postgresql://pate@/password=hunter2": HIDDEN,
    "postgresql://pate@/password%3Dhunter2": HIDDEN,
    "postgresql://pate@/postgresql:%2F%2Fpate:hunter2@127.0.0.1%2Fpate": HIDDEN,
    "postgresql://pate@/pate?dbname=postgresql://pate:hunter2@/pate": HIDDEN,
    "postgresql://pate@/pate?options=-c%20a.password%3Dhunter2": UNUSABLE,
    "postgresql://pate@/pate?connect_timeout=hunter2": UNUSABLE,
    "postgresql://pate@db.example.org/pate?sslmode=hunter2": UNUSABLE,
    "postgresql://pate@/pate?PASSWORD=hunter2": UNREADABLE,
    "postgresql://pate@/pate?passwd=hunter2": UNREADABLE,
    "postgresql://pate@/pate?HOST=hunter2": UNREADABLE,
    "postgresql+psycopg://pate:hunter2@/pate": UNREADABLE,
    "mysql://pate:hunter2@/pate": UNREADABLE,
    "host=/run password=hunter2": UNREADABLE,
    "hunter2": UNREADABLE,
    "postgresql://pate@/pate\nhunter2": UNREADABLE,
    f"postgresql://pate@/hunter2{'x' * 1000}": UNREADABLE,
    "postgresql://pate@db.example.org/hunter2?sslmode=require": UNPROVEN,
    "postgresql://pate@127.0.0.1,db.example.org/hunter2?sslmode=prefer": UNPROVEN,
    "postgresql://pate@/hunter2?host=/run&host=192.0.2.1&sslmode=prefer": UNPROVEN,
    "postgresql://pate@127.0.0.1/hunter2?hostaddr=192.0.2.1&sslmode=allow": UNPROVEN,
}


def test_an_address_that_is_refused_is_not_repeated() -> None:
    for url, words in REFUSED.items():
        with pytest.raises(UsageError, match=words) as told:
            Address.parse(url)
        assert "hunter2" not in str(told.value), url


def test_another_machine_has_to_prove_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = {
        "db.example.org/pate": "verify-full", "127.0.0.1,db.example.org/pate": "verify-full",
        "db.example.org/pate?sslmode=verify-ca": "verify-ca", "127.0.0.1/pate": None,
        "[::1]/pate": None, "/pate?host=/run/postgresql": None,
    }  # fmt: skip
    found = {
        rest: Address.parse(f"postgresql://pate@{rest}").parameters().get("sslmode")
        for rest in modes
    }
    assert found == modes
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert Address.parse("postgresql:///pate").parameters()["sslmode"] == "verify-full"
    assert "sslmode" not in Address.parse("postgresql://127.0.0.1/pate").parameters()


@pytest.mark.parametrize(
    ("host", "number", "mode", "private"),
    [
        ("/run/postgresql", "", "prefer", True),
        ("localhost", "127.0.0.1", "prefer", True),
        ("localhost", "192.0.2.1", "prefer", False),
        ("db.example.org", "192.0.2.1", "require", False),
        ("db.example.org", "", "", False),
        ("db.example.org", "192.0.2.1", "verify-full", True),
    ],
)
def test_another_machine_that_a_service_file_names(
    host: str, number: str, mode: str, private: bool
) -> None:
    from aggregator_server.ledger.store import session

    class Link:
        info = type("Info", (), {"host": host, "hostaddr": number})
        options = (type("Option", (), {"keyword": b"sslmode", "val": mode.encode()}),)
        pgconn = type("Connection", (), {"info": options})

    if private:
        session.require_private_way(Link())  # type: ignore[arg-type]
        return
    with pytest.raises(UsageError, match="on another machine"):
        session.require_private_way(Link())  # type: ignore[arg-type]


def test_a_database_of_another_encoding_or_without_leave_is_refused(
    cluster: Cluster, place: InDatabase
) -> None:
    cluster.ask("CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' OWNER pate")
    latin = replace(place, address=Address.parse(cluster.url.replace("/pate?", "/latin?")))
    with pytest.raises(StateError, match="encoding LATIN1"):
        Ledger.create(latin, make_spec())
    other = replace(place, address=Address.parse(cluster.url.replace("/pate?", "/postgres?")))
    with pytest.raises(StateError, match="role of --ledger lacks"):
        Ledger.create(other, make_spec())
    assert not other.anchor.exists()  # another database may be named
    gone = replace(place, address=Address.parse(cluster.url.replace("/pate?", "/nowhere?")))
    with pytest.raises(UnreachableError, match="does not exist"):
        stores.exists(gone)
    with pytest.raises(UnreachableError, match="invalid require_auth value") as told:
        stores.exists(replace(place, address=Address(f"{cluster.url}&require_auth=nonsense")))
    assert "\n" not in str(told.value)


def test_a_pooler_between_is_found(cluster: Cluster, place: InDatabase) -> None:
    """Simulated by a session whose process id differs from the one at connection."""
    from aggregator_server.ledger.store import session

    with connect(place, read_only=True) as link:

        class Pooled:
            info = type("Info", (), {"backend_pid": 1})
            execute = link.execute

        with pytest.raises(StateError, match="connection pooler"):
            session.require_fit(Pooled())  # type: ignore[arg-type]


# Which place a campaign has.


def test_a_folder_remembers_where_its_ledger_is(
    cluster: Cluster, tmp_path: Path, place: InDatabase
) -> None:
    folder = place.anchor.parent
    with start(place) as ledger:
        held = place_of(folder)
        assert isinstance(held, InDatabase)
        assert (held.schema, held.head) == (place.schema, ledger.state().head)
    assert place_of(folder, cluster.url) == held
    with pytest.raises(StateError, match="another place was given"):
        place_of(folder, cluster.network_url)
    (folder / "ledger.db").touch()
    with pytest.raises(StateError, match=r"has a ledger in ledger\.db and names another"):
        place_of(folder)
    (folder / ANCHOR_FILE).unlink()
    assert place_of(folder) == folder / "ledger.db"
    with pytest.raises(StateError, match="leave --ledger and PATE_LEDGER out"):
        place_of(folder, cluster.url)
    with pytest.raises(UsageError, match="58 bytes"):
        place_of(tmp_path / ("x" * 59), cluster.url)
    with pytest.raises(UsageError, match="is not UTF-8"):
        place_of(tmp_path / "\udcff", cluster.url)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", "x" * 20_000, '{"format": 2}',
             '{"format": 1, "ledger": "postgresql://a:b@/c", "schema": "pate_x", "head": null}',
             '{"format": 1, "ledger": "postgresql://a@/c", "schema": "public", "head": null}',
             '{"format": 1, "ledger": "postgresql://a@/c", "schema": "pate_x", "head": "1:0"}'],
)  # fmt: skip
def test_a_damaged_anchor_is_no_new_campaign(tmp_path: Path, text: str) -> None:
    (tmp_path / ANCHOR_FILE).write_text(text)
    with pytest.raises(StateError, match="is not a valid anchor"):
        place_of(tmp_path)


def test_a_name_may_be_anything(cluster: Cluster, tmp_path: Path) -> None:
    for name in ('a "quoted" one; DROP', "Größe 2", "MiXeD", "%s :x", "pg's"):
        place = place_of(tmp_path / name, cluster.url)
        with start(place, voted=False) as ledger:
            head = ledger.state().head
        assert verify(place_of(tmp_path / name)).head == head


def test_a_home_that_is_lost_is_not_the_ledger(
    cluster: Cluster, place: InDatabase, tmp_path: Path
) -> None:
    with start(place) as ledger:
        label(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    kept = again(place)
    folder = tmp_path / "other" / kept.schema.removeprefix("pate_")
    assert place_of(folder, cluster.url) == replace(kept, anchor=folder / ANCHOR_FILE, head=None)
    described = report.verify(folder, str(kept.head), cluster.url)
    assert described["phase"] == "finished"
    assert not folder.exists()
    with Ledger.open(place_of(folder, cluster.url)) as ledger:
        assert ledger.state().phase == "finished"
    assert place_of(folder) == replace(kept, anchor=folder / ANCHOR_FILE)
    shutil.rmtree(folder)


# The operator's view.


def checked(*options: str, code: int) -> dict[str, str]:
    from typer.testing import CliRunner

    from aggregator_server.cli.main import app

    command = ["check", "--json", "--port", "0", "--student-port", "0", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, done.output
    (line,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "database"]
    assert isinstance(line, dict)
    return line


def test_the_check_looks_at_the_database_and_makes_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ("--home", str(tmp_path))
    monkeypatch.setenv("PATE_LEDGER", cluster.url)
    line = checked(*home, "--campaign", "new", code=0)
    assert line["text"].startswith("PostgreSQL 1")
    assert "over its socket: fsync and full_page_writes on" in line["text"]
    with start(place_of(tmp_path / "mine", cluster.url)):
        assert "a server has it open" in checked(*home, "--campaign", "mine", code=0)["text"]
    assert cluster.ask("SELECT count(*) FROM pg_namespace WHERE nspname = 'pate_new'") == ["0"]
    assert not (tmp_path / "new").exists()
    cluster.ask("ALTER ROLE pate SET log_parameter_max_length = -1")
    try:
        line = checked(*home, "--campaign", "new", code=0)
        assert (line["status"], "sums of votes too" in line["text"]) == ("warning", True)
    finally:
        cluster.ask("ALTER ROLE pate RESET ALL")
    other = cluster.url.replace("/pate?", "/postgres?")
    line = checked(*home, "--ledger", other, code=StateError.exit_code)
    assert "role pate may not make a schema" in line["text"]
    gone = cluster.url.replace(str(cluster.port), "1")
    assert checked(*home, "--ledger", gone, code=UnreachableError.exit_code)["status"] == "failed"


def test_a_server_without_the_driver_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; sys.modules['psycopg'] = None\n"
        "from aggregator_server.cli.main import main\n"
        "sys.argv = ['pate-server', 'resume', '--home', sys.argv[1], '--ledger', 'postgresql://a@/b']\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], check=False, timeout=60, capture_output=True,
        text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == UsageError.exit_code
    assert done.stderr.count("\n") == 1
    assert "pip install 'federated-pate[postgres]'" in done.stderr
