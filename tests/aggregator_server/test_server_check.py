"""``pate-server check``: each check reports its fault, and passes without it."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.identities import Identities
from aggregator_server.options import CheckOptions
from aggregator_server.preflight import identity
from pate.campaign.order import public_order
from pate.errors import BudgetError, PateError, StateError
from pate.preflight.checks import Status
from pate.runtime.child import free_port
from tests.support.server.campaigns import label, make_spec, start
from tests.support.server.identities import answer

DAY = dt.timedelta(days=1)
QUERIES = 60
EVERYWHERE = "0.0.0.0"  # noqa: S104 - asked about, never bound to in a test


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("public") / "public.npz"
    pixels = np.random.default_rng(0).integers(0, 255, (QUERIES, 8, 8), dtype=np.uint8)
    np.savez(path, images=pixels)
    return path


def checked(*options: str | Path, code: int = 0, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """The command's result of each check, by name."""
    free = ("--port", str(free_port()), "--student-port", str(free_port()))
    command = [*before, "check", "--json", *free, *map(str, options)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    assert found["exit_code"] == code
    return {each["name"]: each for each in found["checks"]}


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }


# --- the command -------------------------------------------------------------------------------


def test_before_anything_is_there_it_works_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = checked()
    assert found["SuperLink"]["status"] == "ok"
    assert found["certificates"]["status"] == "warning"
    assert found["public set"]["status"] == found["budget"]["status"] == "skipped"
    assert not (tmp_path / "state").exists()


def test_a_server_that_is_ready_and_nothing_in_its_home_changes(home: Path, public: Path) -> None:
    identities = Identities.create(home, (), 9092, now())
    for name in ("a", "b", "c"):
        identities.admit(answer(identities.invite(name, now=now())), now())
    with start(home / "trial" / "ledger.db") as ledger:
        label(ledger)
    before = snapshot(home)
    port = ("--port", "9092") if _is_free(9092) else ()
    found = checked(
        "--home", home, "--public", public, "--parties", "a,b,c", "--classes", "cat,dog,owl",
        "--sigma2", "40", "--aggregator", "gnmax", *port,
    )  # fmt: skip
    assert snapshot(home) == before
    odd = {name for name, each in found.items() if each["status"] != "ok"}
    assert odd <= {"memory", "SQLite"} | ({"address"} if not port else set())
    assert f"{QUERIES} inputs, images 8x8x1; sent in 1 piece" in found["public set"]["text"]
    assert "3 enrolled: a, b, c" in found["parties"]["text"]
    # sigma 40: mu of a label is sqrt(2)/40; epsilon 2 at 1e-5 pays for all 60 many times over.
    assert "pays for 60 labels, about 20 for each of 3 classes" in found["budget"]["text"]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_options_may_stand_before_the_word_check(home: Path, public: Path) -> None:
    before = ("--public", str(public), "--home", str(home), "--sigma2", "40", "--delta", "1e-6")
    found = checked(before=before)
    assert "delta 1e-06" in found["budget"]["text"]
    assert str(home) in found["home"]["text"]
    found = checked("--delta", "1e-7", before=before)
    assert "delta 1e-07" in found["budget"]["text"], "the last word counts"
    Identities.create(home, (), 9092, now())
    found = checked(before=("--home", str(home), "--parties", "zed"))
    assert "the campaign waits for zed" in found["parties"]["text"]


def test_the_public_set_of_the_folder_is_the_one_that_a_start_takes(
    home: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(public.parent)
    found = checked("--home", home)
    assert f"{QUERIES} inputs, images 8x8x1" in found["public set"]["text"]


def test_its_options_are_those_of_a_start(home: Path, tmp_path: Path) -> None:
    help_ = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    for option in ("--public", "--sigma2", "--patience", "--config", "--expected-teachers"):
        assert option in help_
    config = tmp_path / "campaign.toml"
    config.write_text(f'home = "{home}"\nlinger = 0\n')
    assert str(home) in checked("--config", config)["home"]["text"]


# --- its machine and its ports -------------------------------------------------------------------


def test_a_port_that_is_taken(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        found = checked("--home", home, "--port", port, code=41)
        assert (found["port"]["status"], found["student port"]["status"]) == ("failed", "ok")
        found = checked("--home", home, "--student-port", port, code=41)
        assert found["student port"]["error"] == "PortInUseError"
        found = checked("--home", home, "--page-port", port, code=41)
        assert found["page port"]["status"] == "failed"
        assert "page port" not in checked("--home", home, "--page-port", port, "--no-page")


def test_few_open_files() -> None:
    """In a separate process with a low limit."""
    few = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "from aggregator_server.preflight.checks import check_open_files\n"
        "print(check_open_files().status.value)"
    )
    done = subprocess.run([sys.executable, "-c", few], capture_output=True, text=True, check=True)
    assert done.stdout == "warning\n"


def test_the_port_of_init_is_the_one_that_is_listened_on(home: Path) -> None:
    assert "127.0.0.1:9092, for a trial" in identity.check_address(CheckOptions(home=home)).text
    Identities.create(home, (), 51441, now())
    found = identity.check_address(CheckOptions(home=home))
    assert found.status is Status.OK
    assert found.text.endswith("this server listens on 127.0.0.1:51441")


def test_addresses_that_do_not_fit(home: Path) -> None:
    outside = checked("--home", home, "--host", EVERYWHERE, code=2)
    assert "init" in outside["address"]["text"]
    identities = Identities.create(home, ("pate.invalid",), 9092, now())
    asked = CheckOptions(home=home, host=EVERYWHERE, port=9092)
    assert identity.check_address(asked).status is Status.OK
    assert identity.check_address(replace(asked, port=9000)).status is Status.WARNING
    assert identity.check_address(replace(asked, host="127.0.0.1")).status is Status.WARNING
    assert identity.check_told_name(asked).status is Status.WARNING
    assert identities.address == "pate.invalid:9092"
    here = home.parent / "here"
    Identities.create(here, (), 9092, now())
    assert identity.check_told_name(CheckOptions(home=here)).status is Status.OK


# --- who it is -----------------------------------------------------------------------------------


def test_certificates_that_end(home: Path) -> None:
    Identities.create(home, (), 9092, now())
    asked = CheckOptions(home=home)
    assert identity.check_identity(asked).status is Status.OK
    soon = identity.check_identity(replace(asked, clock=lambda: now() + 350 * DAY))
    assert (soon.status, "rotate" in soon.to_do) == (Status.WARNING, True)
    old = home.parent / "old"
    Identities.create(old, (), 9092, now() - 400 * DAY)
    found = checked("--home", old, code=12)
    assert found["certificates"]["error"] == found["handshake"]["error"] == "StateError"
    shutil.rmtree(old)
    Identities.create(old, (), 9092, now() + 30 * DAY)
    # The clock was set back since: new certificates would not help.
    early = identity.check_handshake(CheckOptions(home=old))
    assert "not yet valid" in early.text
    assert early.to_do.startswith("set this machine's clock")
    shutil.rmtree(old)
    Identities.create(old, (), 9092, now())
    (old / "identity" / "settings.json").write_text("{}")
    assert checked("--home", old, code=12)["certificates"]["error"] == "StateError"


def test_keys_that_others_may_read(home: Path) -> None:
    found = Identities.create(home, (), 9092, now())
    (found.directory / "campaign.key").chmod(0o640)
    assert identity.check_identity(CheckOptions(home=home)).kind is StateError


def test_a_certificate_of_another_backup(home: Path) -> None:
    ours = Identities.create(home, (), 9092, now())
    asked = CheckOptions(home=home)
    assert identity.check_handshake(asked).status is Status.OK
    theirs = Identities.create(home.parent / "theirs", (), 9092, now())
    ours.certificate.write_bytes(theirs.certificate.read_bytes())
    assert identity.check_handshake(asked).kind is StateError
    assert (
        identity.check_handshake(CheckOptions(home=home.parent / "none")).status is Status.SKIPPED
    )


def test_parties_that_are_not_enrolled_and_codes_that_expired(home: Path) -> None:
    identities = Identities.create(home, (), 9092, now())
    for name in ("a", "b"):
        identities.admit(answer(identities.invite(name, now=now())), now())
    asked = CheckOptions(home=home, given=frozenset({"parties"}))
    for parties, status in (("a,b", "ok"), ("2", "ok"), ("3", "warning"), ("a,zed", "warning")):
        found = identity.check_parties(replace(asked, parties=parties))
        assert found.status.value == status, found.text
        assert status == "ok" or "the campaign waits for" in found.text
    assert "zed" in identity.check_parties(replace(asked, parties="a,zed")).text
    identities.invite("late", now=now())
    quiet = replace(asked, parties="2")
    assert identity.check_parties(quiet).status is Status.OK
    assert "codes are open: late until" in identity.check_parties(quiet).text
    after = identity.check_parties(replace(quiet, clock=lambda: now() + 20 * DAY))
    assert (after.status, "late have expired" in after.text) == (Status.WARNING, True)


# --- its campaign --------------------------------------------------------------------------------


def test_public_sets_that_cannot_be_read_or_repeat_themselves(home: Path, tmp_path: Path) -> None:
    found = checked("--home", home, "--public", tmp_path / "none", code=10)
    assert found["public set"]["error"] == "DataError"
    assert found["settings"]["status"] == found["budget"]["status"] == "skipped"
    np.savez(tmp_path / "same.npz", images=np.zeros((20, 8, 8), np.uint8))
    found = checked("--home", home, "--public", tmp_path / "same.npz", "--sigma2", "40")
    assert "19 inputs are there more than once" in found["public set"]["text"]


def test_pictures_that_are_not_read_as_they_are_saved(home: Path, tmp_path: Path) -> None:
    """A check and a start say the same of them."""
    rng, public = np.random.default_rng(0), tmp_path / "public"
    public.mkdir()
    for at in range(6):
        pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).convert("RGB" if at else "CMYK").save(public / f"{at}.jpg")
    line = "1 record (public/0.jpg): each has the colours CMYK: red, green and blue are approximate"
    found = checked("--home", home, "--public", public)["public set"]
    assert found["status"] == "warning"
    assert found["text"].endswith(f"sent in 1 piece; {public}: {line}")
    named = ("--home", str(home), "--public", str(public))
    (home / "campaign").mkdir(exist_ok=True)
    (home / "campaign" / "ledger.db").write_bytes(b"no ledger" * 1000)
    for command in (named, ("resume", *named)):  # both fail after it
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, PateError)
        assert f"{public}: {line}" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "name", "why"),
    [
        (("--min-parties", "9"), 2, "settings", "9"),
        (("--sigma2", "forty"), 2, "settings", "--sigma2"),
        (("--representatives", "7"), 2, "settings", "--representatives"),
        (("--epsilon", "0.001", "--sigma2", "1"), 20, "budget", "one answer may cost"),
    ],
)
def test_settings_that_make_no_sense(
    home: Path, public: Path, options: tuple[str, ...], code: int, name: str, why: str
) -> None:
    found = checked("--home", home, "--public", public, *options, code=code)
    assert found[name]["status"] == "failed"
    assert why in found[name]["text"]


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--sigma2", "5", "--sigma1", "10", "--expected-teachers", "40"), "warning", "few, for a student"),
        (("--sigma2", "40", "--sigma1", "150", "--expected-teachers", "250"), "ok", "250 teachers"),
        (("--unit", "party", "--sigma2", "400", "--sigma1", "900"), "ok", "unit: party"),
        (("--aggregator", "neighbour", "--expected-records", "20000"), "ok", "one release"),
        (("--classes", "no,yes", "--rarest", "0.05", "--expected-teachers", "90"), "warning",
         "your rarest class is 1 in 20, expect about"),
        (("--aggregator", "neighbour", "--rarest", "0.05"), "ok", "expect 500 records of it"),
        (("--publish", "gated", "--epsilon", "4", "--sigma2", "40", "--sigma1", "150",
          "--max-queries", "50"), "ok", "for at most 50 labels"),
        (("--publish", "gated", "--epsilon", "4", "--sigma2", "40", "--sigma1", "150",
          "--max-queries", "50", "--delta", "1e-5"), "warning", "for at most 50 labels"),
    ],
)  # fmt: skip
def test_what_a_budget_pays_for(
    home: Path, public: Path, options: tuple[str, ...], status: str, words: str
) -> None:
    found = checked("--home", home, "--public", public, *options)
    assert (found["budget"]["status"], words in found["budget"]["text"]) == (status, True), found[
        "budget"
    ]


def test_the_worst_number_of_answers_is_what_the_campaign_itself_allows(
    home: Path, public: Path
) -> None:
    """Dry, and in a campaign whose ledger refuses one more."""
    wide = ("--aggregator", "gnmax", "--sigma2", "8", "--parties", "4", "--epsilon", "2")
    found = checked("--home", home, "--public", public, *wide, "--expected-teachers", "100")
    paid = re.search(r"pays for (\d+) labels", found["budget"]["text"])
    assert paid is not None
    number = int(paid[1])
    assert 5 < number < QUERIES
    spec = make_spec(aggregator="gnmax", queries=QUERIES, epsilon=2.0, sigma2=Fraction(8))
    with start(home / "trial" / "ledger.db", spec) as ledger:
        order = public_order(spec.id, QUERIES)
        ledger.charge(order[:number])
        with pytest.raises(BudgetError):
            ledger.charge(order[number : number + 1])


def test_the_ledger_of_the_campaign(home: Path, public: Path) -> None:
    path = home / "trial" / "ledger.db"
    trial = ("--home", home, "--campaign", "trial")
    assert "none yet of 'trial'" in checked(*trial)["ledger"]["text"]
    with start(path) as ledger:
        label(ledger)
    found = checked(*trial)["ledger"]
    assert (found["status"], "resume" in found["text"]) == ("ok", True)
    assert "% of the budget charged" in found["text"]
    other = checked(*trial, "--public", public, "--sigma2", "40", code=12)
    assert "was given: resume with the same" in other["ledger"]["text"]
    with closing(sqlite3.connect(path)) as raw, raw:
        names = [n for (n,) in raw.execute("SELECT name FROM sqlite_master WHERE type='trigger'")]
        for name in names:
            raw.execute(f'DROP TRIGGER "{name}"')
        raw.execute("UPDATE releases SET label = (label + 1) % 3")
    raw.close()
    assert checked(*trial, code=22)["ledger"]["error"] == "LedgerError"


def test_a_campaign_that_is_finished(home: Path) -> None:
    with start(home / "trial" / "ledger.db") as ledger:
        label(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    found = checked("--home", home, "--campaign", "trial")["ledger"]
    assert (found["status"], "export" in found["to_do"]) == ("warning", True)


def test_a_series_without_a_key_that_lasts_is_found(home: Path, public: Path) -> None:
    options = (
        "--home", home, "--public", public, "--aggregator", "neighbour", "--series", "monthly",
        "--representatives", "5",
    )  # fmt: skip
    assert "pate-server init" in checked(*options, code=2)["settings"]["text"]
    Identities.create(home, (), 9092, now())
    assert checked(*options, code=0)["settings"]["status"] == "ok"
