"""``pate-party check``: each check reports its fault, and passes without it."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from typer.testing import CliRunner

from aggregator_server.flower.deployment import Deployment
from aggregator_server.identities import Identities
from party.cli.main import app
from party.identity.enrolment import enrol
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.options import CheckOptions
from party.preflight import gpu, site
from party.preflight.network import meet, server_of
from party.preflight.records import (
    Records,
    check_records,
    check_schema,
    check_teachers,
    known,
    read,
)
from party.preflight.site import check_ledger, check_policy
from pate.errors import (
    DataError,
    LedgerError,
    RefusedError,
    SchemaError,
    StateError,
    UnreachableError,
    UsageError,
)
from pate.preflight import begin
from pate.preflight.checks import Finding, Skipped, Status
from pate.runtime.child import free_port
from tests.support.encoders import drawn_jpegs, tiny_encoders
from tests.support.party.offers import answer, gated, joining, queries, settled
from tests.support.processes.programs import until

DAY = dt.timedelta(days=1)
RECORDS = 400


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def checked(*options: str | Path, code: int = 0) -> dict[str, dict[str, Any]]:
    """The command's result of each check, by name."""
    done = CliRunner().invoke(app, ["check", "--json", *map(str, options)])
    assert done.exit_code == code, done.output
    found = json.loads(done.stdout)
    assert found["exit_code"] == code
    made: dict[str, dict[str, Any]] = {}
    for each in found[
        "checks"
    ]:  # several findings of one check: the first status that is not ok, all texts
        held = made.setdefault(each["name"], each)
        if held is not each:
            held["text"] += f"; {each['text']}"
            held["status"] = each["status"] if held["status"] == "ok" else held["status"]
    return made


def one_of(found: Sequence[Finding]) -> Finding:
    """The findings of a check as one: the first that is not fine, with all texts, remedies and lines."""
    worst = next((each for each in found if each.status is not Status.OK), found[0])
    text = "; ".join(": ".join(filter(None, (each.text, each.to_do))) for each in found)
    return replace(worst, text=text, lines=tuple(line for each in found for line in each.lines))


def read_so(asked: CheckOptions) -> Records:
    return read(asked, begin(partial(known, asked)))


def records_of(asked: CheckOptions) -> Finding:
    return one_of(check_records(asked, read_so(asked)))


def data_of(asked: CheckOptions) -> Finding:
    """The findings about records and schema."""
    records = read_so(asked)
    return one_of([*check_records(asked, records), *check_schema(asked, known(asked), records)])


def schema_of(asked: CheckOptions) -> Finding:
    return one_of(check_schema(asked, known(asked), read_so(asked)))


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A real one: gateway and SuperLink, over TLS, with parties a, b and c invited."""
    place = tmp_path_factory.mktemp("server")
    identities = Identities.create(place, (), 9092, now())
    with Deployment(place / "campaign", identities=identities) as deployment:
        deployment.identities = identities  # type: ignore[attr-defined]
        yield deployment


def enrolled(server: Deployment, name: str, home: Path) -> Identities:
    identities: Identities = server.identities  # type: ignore[attr-defined]
    bundle = identities.invite(name, now=now(), server=server.address, again=True)
    enrol(bundle, home, file=home.parent / "unused")
    until(lambda: name in server.names.values(), f"the SuperLink lets {name} in")
    return identities


def table(path: Path, *, classes: int = 2, rows: int = RECORDS, name: str = "age") -> Path:
    cells = "\n".join(
        f"{20 + at % 60},{'mf'[at % 2]},{at % 40},{at % classes}" for at in range(rows)
    )
    path.write_text(f"{name},sex,patient,ill\n{cells}\n")
    return path


@pytest.fixture
def asked(tmp_path: Path) -> CheckOptions:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return CheckOptions(
        home=home, data=table(tmp_path / "a.csv"), label="ill", drop=["patient"], teachers=4
    )


# --- the command -------------------------------------------------------------------------------


def test_before_anything_is_there_it_works_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = checked()
    assert found["Flower"]["status"] == "ok"
    assert found["server"]["status"] == found["records"]["status"] == "skipped"
    assert found["enrolment"]["status"] == "warning"
    assert not (tmp_path / "state").exists()


def test_an_enrolled_party_is_ready_and_nothing_in_its_home_changes(
    server: Deployment, asked: CheckOptions
) -> None:
    enrolled(server, "a", asked.place)
    PartyLedger(asked.place / LEDGER_FILE)
    before = snapshot(asked.place)
    found = checked(
        "--home", asked.place, "--data", asked.data or "", "--label", "ill", "--drop", "patient",
        "--teachers", "4", "--schema", "table sex:category, age:number",
    )  # fmt: skip
    assert snapshot(asked.place) == before
    by_status = {name: each["status"] for name, each in found.items()}
    assert {n for n, s in by_status.items() if s == "skipped"} == {"other doors"}
    assert not {n for n, s in by_status.items() if s in ("warning", "failed")} - {
        "SQLite",
        "memory",
    }
    assert "knows the key" in found["admission"]["text"]
    assert "TLSv1.3" in found["certificate"]["text"]
    # A number by itself: digests, ports and sizes may have the same digits within.
    alone = rf"(?<![\w.,:]){RECORDS}(?![\w.,])"
    assert not re.search(alone, json.dumps(found)), "how many records there are stays here"
    told = checked(
        "--home", asked.place, "--data", asked.data or "", "--label", "ill", "--drop", "patient",
        "--counts", "--offline",
    )  # fmt: skip
    assert f"private: {RECORDS} records (0: 200, 1: 200)" in told["records"]["text"]
    assert told["server"]["text"] == "--offline"


def test_before_it_enrols_a_party_checks_the_server_of_its_bundle(
    server: Deployment, tmp_path: Path
) -> None:
    identities: Identities = server.identities  # type: ignore[attr-defined]
    bundle = identities.invite("b", now=now(), server=server.address, again=True)
    (tmp_path / "b.json").write_bytes(bundle.to_json())
    found = checked("--home", tmp_path / "b", "--bundle", tmp_path / "b.json")
    assert found["certificate"]["status"] == found["server"]["status"] == "ok"
    assert found["enrolment"]["status"] == "ok"
    assert not (tmp_path / "b").exists()
    late = replace(bundle, expires=int(now().timestamp()) - 60)
    (tmp_path / "b.json").write_bytes(late.to_json())
    found = checked("--home", tmp_path / "b", "--bundle", tmp_path / "b.json", code=12)
    assert "expired" in found["server"]["text"]


def test_the_exit_code_is_that_of_what_failed_first(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    found = checked("--home", tmp_path, "--server", nobody, "--data", tmp_path / "no", code=40)
    assert found["server"]["error"] == UnreachableError.__name__
    assert found["records"]["error"] == DataError.__name__
    assert found["teachers"]["status"] == "skipped"
    found = checked("--home", tmp_path, "--data", tmp_path / "no", code=10)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        checked("--home", tmp_path, "--metrics-port", port, code=41)
    assert checked("--home", tmp_path, "--metrics-port", port)["metrics port"]["status"] == "ok"


def test_its_options_are_those_of_a_start() -> None:
    help_ = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    for option in ("--data", "--teachers", "--max-wait", "--bundle", "--config", "--counts"):
        assert option in help_
    assert "Records: images, .npz, IDX, a table, texts or DICOM" in help_


# --- who it is ---------------------------------------------------------------------------------


def test_a_revoked_party_is_told_so(server: Deployment, asked: CheckOptions) -> None:
    identities = enrolled(server, "c", asked.place)
    known = server_of(asked)
    assert known is not None
    assert site.check_admission(asked, known, meet(known)).status is Status.OK
    identities.revoke("c", now())
    until(lambda: "c" not in server.names.values(), "c is shut out")
    found = site.check_admission(asked, known, meet(known))
    assert found.kind is RefusedError
    assert "revoked" in found.text


def test_the_key_is_named_as_flower_names_it() -> None:
    assert site.KEY_HEADER == FLEET_HTTP_PUBLIC_KEY_HEADER


def test_enrolments_that_end_are_damaged_or_half_done(
    server: Deployment, asked: CheckOptions
) -> None:
    remote = server_of(replace(asked, server="pate.example.org:9092"))
    assert site.check_enrolment(asked, remote).status is Status.WARNING
    local = server_of(replace(asked, server="127.0.0.1:9092"))
    assert site.check_enrolment(asked, local).status is Status.OK
    enrolled(server, "a", asked.place)
    assert site.check_enrolment(asked, server_of(asked)).status is Status.OK
    soon = replace(asked, clock=lambda: now() + 3640 * DAY)
    assert site.check_enrolment(soon, None).status is Status.WARNING
    late = replace(asked, clock=lambda: now() + 3700 * DAY)
    with pytest.raises(StateError, match="expired"):
        site.check_enrolment(late, None)
    (folder,) = (asked.place / "enrolments").iterdir()
    waiting = folder / "identity.new"
    waiting.write_bytes(bytes(32))
    before = snapshot(asked.place)
    with pytest.raises(StateError, match="not brought to its end"):
        site.check_enrolment(asked, None)
    assert snapshot(asked.place) == before, "a check does not finish what was begun"
    waiting.unlink()
    (folder / "ca.pem").write_bytes(b"")
    assert checked("--home", asked.place, code=12)["enrolment"]["error"] == StateError.__name__


def test_keys_that_others_may_read(server: Deployment, asked: CheckOptions) -> None:
    assert "none yet" in site.check_keys(asked).text
    enrolled(server, "a", asked.place)
    assert site.check_keys(asked).status is Status.OK
    key = asked.place / "identity.key"
    key.chmod(0o644)
    assert site.check_keys(asked).status is Status.WARNING, "the home is shut"
    asked.place.chmod(0o755)
    found = site.check_keys(asked)
    assert found.kind is StateError
    assert f"chmod 600 {key}" in found.to_do


# --- what it agrees to and what it did ---------------------------------------------------------


def policy(asked: CheckOptions, text: str) -> Finding:
    (asked.place / "policy.toml").write_text(text)
    return check_policy(asked, None)


def test_policies_that_are_fine_and_policies_that_nobody_can_read(asked: CheckOptions) -> None:
    assert check_policy(asked, None).status is Status.OK
    found = policy(asked, 'campaigns = "any"\nleast_sigma = 40\n')
    assert found.status is Status.OK
    assert "at least 40 votes" in found.text
    for text, kind in (("least_sigma = ", "DataError"), ("leest_sigma = 4", "UsageError")):
        (asked.place / "policy.toml").write_text(text)
        code = {"DataError": 10, "UsageError": 2}[kind]
        assert checked("--home", asked.place, code=code)["policy"]["error"] == kind


def test_policies_that_would_refuse_every_campaign(server: Deployment, asked: CheckOptions) -> None:
    other, text = "ab" * 32, 'campaigns = "any"\n'
    assert policy(asked, 'campaigns = "enrolled"').status is Status.WARNING
    enrolled(server, "a", asked.place)
    assert policy(asked, 'campaigns = "enrolled"').status is Status.OK
    own = checked("--home", asked.place, "--offline")  # and the key that the party has
    assert own["policy"]["status"] == "ok"
    mine = identity_key(asked.place).public_key().public_bytes_raw().hex()
    for line, why in (
        (f'[parties]\nb = "{other}"\n', "a, this party itself"),
        (f'[parties]\na = "{other}"\n', "another key for a"),
        (f'least_roster = 3\n[parties]\na = "{mine}"\nb = "{other}"\n', "and [parties] has 2"),
        ('units = ["patient"]\n', "which rows are one patient's"),
    ):
        found = policy(asked, text + line)
        assert found.kind is RefusedError, line
        assert why in found.text
    grouped = replace(asked, group="patient")
    assert check_policy(grouped, None).status is Status.OK


def test_a_policy_that_is_used_up(asked: CheckOptions) -> None:
    ledger = PartyLedger(asked.place / LEDGER_FILE)
    answer(ledger, settled(), queries(0, 40))
    assert policy(asked, "max_queries_in_all = 41\n").status is not Status.FAILED
    found = policy(asked, "max_queries_in_all = 40\n")
    assert (found.kind, "40 queries were answered" in found.text) == (RefusedError, True)
    found = policy(asked, "largest_epsilon = 0.01\n")
    assert (found.kind, "our own accountant stands at" in found.text) == (RefusedError, True)
    answer(ledger, gated(2.0, 1e-5, campaign="d2" * 16), queries(40, 1))
    found = policy(asked, "largest_epsilon = 9.0\n")
    assert (found.kind, "our own accountant has no figure (the" in found.text) == (
        RefusedError,
        True,
    )


def test_a_policy_is_compared_with_a_campaign_that_was_joined(asked: CheckOptions) -> None:
    assert "the terms of a campaign are compared with it at a start" in policy(asked, "").text
    PartyLedger(asked.place / LEDGER_FILE).join(joining())
    found = policy(asked, "largest_epsilon = 0.01\n")
    assert (found.status, "campaign c1c1c1c1, which we joined" in found.text) == (
        Status.WARNING,
        True,
    )
    assert "largest_epsilon is 0.01, and the campaign announces" in found.text
    found = policy(asked, "largest_epsilon = 9.0\n")
    assert (found.status, "campaign c1c1c1c1" in found.text) == (Status.OK, False)


def test_the_partys_own_ledger_is_read_to_its_end(asked: CheckOptions) -> None:
    assert "nothing has left" in check_ledger(asked).text
    path = asked.place / LEDGER_FILE
    answer(PartyLedger(path), settled(), queries(0, 4))
    found = check_ledger(asked)
    assert (found.status, "1 campaign, 1 of them" in found.text) == (Status.OK, True)
    older = path.read_bytes()
    answer(PartyLedger(path), settled(), queries(4, 4))
    newest = path.read_bytes()
    path.write_bytes(older)  # a start would refuse it
    told = checked("--home", asked.place, code=22)["own ledger"]
    assert (told["error"], "older copy" in str(told["text"])) == (LedgerError.__name__, True)
    path.write_bytes(newest)
    path.write_bytes(path.read_bytes().replace(b'"epsilon":2.0', b'"epsilon":9.0'))
    assert checked("--home", asked.place, code=22)["own ledger"]["error"] == LedgerError.__name__


# --- its data ----------------------------------------------------------------------------------


def test_data_with_one_class_and_columns_without_a_value(
    asked: CheckOptions, tmp_path: Path
) -> None:
    assert records_of(asked).status is Status.OK
    one = replace(asked, data=table(tmp_path / "one.csv", classes=1))
    found = records_of(one)
    assert (found.kind, "one class" in found.text) == (DataError, True)
    assert check_teachers(one, read_so(one).data).status is Status.SKIPPED
    alone = replace(one, votes="neighbour")
    assert records_of(alone).status is Status.WARNING
    (tmp_path / "empty.csv").write_text("a,b,ill\n1,,0\n2,?,1\n")
    empty = replace(asked, data=tmp_path / "empty.csv", drop=None)
    found = records_of(empty)
    assert (found.status, "column 'b' without a value" in found.text) == (Status.WARNING, True)


def test_the_group_column_must_be_there(asked: CheckOptions) -> None:
    wrong = ("--home", asked.place, "--data", asked.data or "", "--label", "ill")
    assert checked(*wrong, "--group", "patiend", code=10)["records"]["error"] == "DataError"
    found = checked(*wrong, "--group", "patient", "--unit", "patient", "--teachers", "2")
    assert "patients known" in found["records"]["text"]
    assert found["schema"]["status"] == "ok"
    found = checked(*wrong, "--unit", "patient", code=11)
    assert "--group" in found["schema"]["text"]


def test_teachers_need_records(asked: CheckOptions) -> None:
    data = read_so(asked).data
    assert check_teachers(asked, data).status is Status.OK
    for number, status in ((40, Status.OK), (41, Status.WARNING)):
        asks = check_teachers(replace(asked, teachers=number), data)
        enough = f"{number} teachers need {10 * number} records in all"
        assert (asks.status, enough in asks.text) == (status, True)
    with pytest.raises(DataError, match="for 500 teachers"):
        check_teachers(replace(asked, teachers=500), data)
    tiny = replace(asked, model="prior")
    assert check_teachers(tiny, data).status is Status.OK
    with pytest.raises(UsageError, match="at most 10 classes, the data has 11"):
        check_teachers(tiny, replace(data, classes=tuple(f"class {at:02}" for at in range(11))))
    assert check_teachers(replace(asked, votes="neighbour"), data).status is Status.SKIPPED
    told = checked(
        "--home", asked.place, "--data", asked.data or "", "--label", "ill", "--model", "cnn", code=2
    )  # fmt: skip
    assert "not for a table" in told["teachers"]["text"]


def test_teachers_that_never_see_the_rarest_class(asked: CheckOptions, tmp_path: Path) -> None:
    rows = "\n".join(f"{at},{int(at < 6)}" for at in range(400))
    (tmp_path / "rare.csv").write_text(f"x,ill\n{rows}\n")
    rare = replace(asked, data=tmp_path / "rare.csv", drop=None, teachers=8)
    found = check_teachers(rare, read_so(rare).data)
    assert (found.status, "rarest class" in found.text) == (Status.WARNING, True)
    assert "6" not in found.text


def test_the_schema_of_the_campaign(asked: CheckOptions, tmp_path: Path) -> None:
    assert schema_of(asked).status is Status.SKIPPED
    same = replace(asked, schema="table sex:category, age:number")
    assert schema_of(same).status is Status.OK
    found = schema_of(replace(asked, schema="images 8x8x1"))
    assert (found.status, "holds a table" in found.text) == (Status.FAILED, True)
    for line, why in (
        ("table year:number", "none of the campaign's columns"),
        ("chairs", "does not say what the inputs"),
    ):
        with pytest.raises(SchemaError, match=why):
            schema_of(replace(asked, schema=line))
    for line, why in (
        ("table age:number", "column 'sex' that the campaign does not have, left out"),
        ("table age:number, sex:category, year:number", "column 'year' of the campaign"),
        ("table age:category, sex:category", "column 'age' of numbers here, read as text"),
        ("table age:number, sex:number", "column 'sex' has cells that count as missing"),
    ):
        found = data_of(replace(asked, schema=line))
        assert (found.status, why in found.text) == (Status.WARNING, True), found.text
    columns = [{"name": "age", "kind": "number"}, {"name": "sex", "kind": "category"}]
    columns.append({"name": "ill", "kind": "category"})
    fields = {"format": "pate-synthesis-schema/1", "label": "ill", "columns": columns}
    (tmp_path / "s.json").write_text(json.dumps(fields))
    file = replace(asked, schema=str(tmp_path / "s.json"))
    assert schema_of(file).status is Status.OK
    (tmp_path / "s.json").write_text(json.dumps(fields | {"columns": []}))
    with pytest.raises(SchemaError, match="it has no columns"):
        schema_of(file)
    public = replace(asked, public=table(tmp_path / "public.csv"), drop=None)
    assert schema_of(public).status is Status.OK
    other = replace(asked, public=table(tmp_path / "other.csv", name="year"))
    found = schema_of(other)
    assert "column 'age' that the campaign does not have" in found.text
    assert "column 'year' of the campaign, absent from our table" in found.text


MESSY = """crp,note,visit,age,y
<5,fever since Monday,2024-01-{at:02d},30,u
1.5,none,2024-02-{at:02d},40,v
2.5,cough {at},2024-03-{at:02d},50,u
3.5,rash {at},2024-04-{at:02d},60,v
4.5,rest {at},2024-05-{at:02d},70,u
"""


def test_columns_that_are_read_otherwise_than_meant_are_named(tmp_path: Path) -> None:
    head, _, rows = MESSY.partition("\n")
    (tmp_path / "h.csv").write_text(
        head + "\n" + "".join(rows.format(at=at) for at in range(1, 20))
    )
    asked = CheckOptions(home=tmp_path / "home", data=tmp_path / "h.csv", label="y", teachers=2)
    found = records_of(asked)
    assert found.status is Status.WARNING
    assert "column 'crp' of numbers, but for cells that are none" in found.text
    assert "column 'visit' of dates" in found.text
    assert "column 'note' of free text" in found.text
    assert "1 of numbers, 3 of categories" in found.text
    # With the schema the cells count as missing; which ones is said only on request.
    line = "table crp:number, note:category, visit:category, age:number"
    found = data_of(replace(asked, schema=line))
    assert "column 'crp' has cells that count as missing: each is no number" in found.text
    assert "19" not in found.text
    assert "<5" not in found.text.replace("(such as <5)", "")
    found = data_of(replace(asked, schema=line, counts=True))
    assert "column 'crp': 19 cells (line 2, line 7, line 12, …)" in found.text


SITES = {"a": ("13.5", "NA", "Siemens"), "b": ("13,5", "n/a", "GE"), "c": ("13.5", "-", "Canon")}


def messy(folder: Path, site: str) -> CheckOptions:
    """One of three sites' exports: words for no value, a decimal comma, an identifier, dates, notes."""
    number, none, scanner = SITES[site]
    lines = ["radius;area;scanner;id;visit;note;y"]
    lines += [
        f"{number}{at};{none if at % 5 else '<150'};{scanner};P{at:05};{1 + at % 28}.03.2024;"
        f"was seen {at} times;{at % 2}"
        for at in range(30)
    ]
    (folder / f"{site}.csv").write_text("\n".join(lines))
    (folder / "public.csv").write_text(
        "radius,area,scanner,age\n13.5,NA,Siemens,1\n11,500,GE,-\n12.25,,GE,3\n"
    )
    return CheckOptions(home=folder / "home", data=folder / f"{site}.csv", label="y", teachers=2)


def test_before_a_campaign_is_known_each_column_is_described(tmp_path: Path) -> None:
    asked = messy(tmp_path, "b")
    found = records_of(asked)
    assert (
        "column 'radius' of numbers with separators of decimals or thousands: say which"
        in found.text
    )
    for what in ("'visit' of dates", "'note' of free text", "'id' with another value in nearly"):
        assert f"column {what}" in found.text
    assert [line.split()[:2] for line in found.lines[1:]] == [
        ["radius", "category"], ["area", "category"], ["scanner", "category"], ["id", "category"],
        ["visit", "category"], ["note", "category"],
    ]  # fmt: skip
    said = " ".join(found.lines) + found.text
    for value in ("13,5", "GE", "P00001", "03.2024", "was seen", "<150"):
        assert value not in said


@pytest.mark.parametrize("site", SITES)
def test_what_differs_from_the_public_set_is_named(tmp_path: Path, site: str) -> None:
    asked = messy(tmp_path, site)
    asked = replace(asked, public=tmp_path / "public.csv", counts=True)
    found = data_of(asked)
    assert "columns 'id', 'visit', 'note' that the campaign does not have, left out" in found.text
    assert "column 'age' of the campaign, absent from our table" in found.text
    assert "column 'area': 6 cells (line 2, line 7, line 12, …) count as missing" in found.text
    assert ("column 'scanner' with values that the public set" in found.text) == (site == "c")
    assert ("column 'radius': 30 cells" in found.text) == (site == "b")
    assert "a table of 3 columns (2 of numbers, 1 of categories)" in found.text
    assert f"missing: 24 '{SITES[site][1].casefold()}'" in found.lines[2]
    if site == "b":
        asked = replace(asked, decimal="comma")  # 13,510 could be of thousands
        assert "column 'radius': 20 cells" in data_of(asked).text
        asked = replace(asked, thousands="none")
        found = data_of(asked)
        assert "radius" not in found.text
        assert found.lines[1].split("  ")[0].strip() == "radius"
        assert "number    up to 3 decimals" in found.lines[1]
    shown = " ".join(checked("--data", asked.data or "", "--label", "y")["records"])
    assert "lines" not in shown  # JSON is passed on


def test_names_that_look_alike_and_words_that_are_no_class_are_named(tmp_path: Path) -> None:
    labels = ["COVID-19", "covid 19", "NA", "healthy", "NA"]
    rows = [f"{at},1,{labels[at % 5]}" for at in range(20)]
    (tmp_path / "h.csv").write_text("\n".join(["Crp (mg),age,y", *rows]))
    asked = CheckOptions(home=tmp_path / "home", data=tmp_path / "h.csv", label="y", teachers=2)
    found = records_of(asked)
    assert "3 classes" in found.text
    assert "classes 'COVID-19', 'covid 19' differ by case, spaces or punctuation only" in found.text
    assert "its label is 'NA', a word for no value" in found.text
    asked = replace(asked, schema="table crp-mg:number, age:number")
    found = data_of(asked)
    assert "columns 'Crp (mg)', 'crp-mg' differ by case, spaces or punctuation only" in found.text
    asked = replace(asked, classes="COVID-19,NA,healthy", counts=True, schema=None)
    found = records_of(asked)
    assert "differ by" not in found.text
    assert "private: 16 of 20 records take part (COVID-19: 4, healthy: 4, NA: 8)" in found.text


def test_a_misspelt_class_and_its_label_are_named_on_the_own_screen(tmp_path: Path) -> None:
    rows = [f"{at},{('well', 'wel')[at % 2]}" for at in range(20)]
    (tmp_path / "h.csv").write_text("\n".join(["age,y", *rows]))
    asked = CheckOptions(
        home=tmp_path / "home", data=tmp_path / "h.csv", label="y", classes="well,ill"
    )
    missing = "private, classes of the list without a record: 'ill'"
    for counts in (False, True):
        found = [*check_records(replace(asked, counts=counts), read_so(asked))][-1]
        assert missing in found.lines
        assert (
            "private, labels that are not in the class list: 'wel' (10)" in found.lines
        ) == counts
        assert "ill" not in found.text  # that may be passed on


def test_a_table_of_many_columns_is_folded(tmp_path: Path) -> None:
    names = [f"x{at}" for at in range(128)]
    rows = [",".join([f"{at}.5"] * 128 + [str(at % 2)]) for at in range(30)]
    rows[3] = "NA" + rows[3][3:]
    (tmp_path / "h.csv").write_text("\n".join([",".join([*names[::-1], "y"]), *rows]))
    asked = CheckOptions(home=tmp_path / "home", data=tmp_path / "h.csv", label="y", teachers=2)
    lines = records_of(asked).lines
    assert len(lines) == 17
    assert lines[1].endswith("missing: 'na'")
    assert lines[-1] == "and 113 more"


def test_labels_that_no_server_takes_are_told_before_training(tmp_path: Path) -> None:
    labels = ("\u202eabc", "u", "v")
    rows = "".join(f"{at % 30},{labels[at % 3]}\n" for at in range(90))
    (tmp_path / "h.csv").write_text(f"a,y\n{rows}")
    options = (
        "--home", tmp_path / "home", "--data", tmp_path / "h.csv", "--label", "y", "--teachers", "2",
    )  # fmt: skip
    found = checked(*options)["records"]
    assert found["status"] == "warning"
    assert "records take no part: its label cannot be the name of a class" in found["text"]
    assert "0 records" not in found["text"]
    for more in (("--strict",), ("--classes", "u,v,\u202eabc")):
        assert checked(*options, *more, code=10)["records"]["error"] == "DataError"
        refused = ["start", *map(str, (*options, *more)), "--server", "127.0.0.1:1"]
        done = CliRunner().invoke(app, refused)
        assert isinstance(done.exception, DataError)
        assert "cannot be a campaign's classes" in str(done.exception)
    assert "cannot be the name" not in checked(*options, "--classes", "u,v")["records"]["text"]


def test_what_the_server_declared_is_known_from_the_own_ledger(asked: CheckOptions) -> None:
    ledger = PartyLedger(asked.place / LEDGER_FILE)
    ledger.join(joining(schema="table age:number, sex:category", classes=("0", "1")))
    assert schema_of(asked).status is Status.OK
    ledger.join(
        joining(campaign="c2" * 16, schema="table age:number, sex:category", classes=("x", "1"))
    )
    found = data_of(asked)
    assert "records take no part: its label is not in the class list" in found.text
    stated = replace(asked, classes="0,1")
    with pytest.raises(SchemaError, match="classes that the campaign lacks: 0"):
        schema_of(stated)


def test_images_of_another_size(asked: CheckOptions, tmp_path: Path) -> None:
    labels = np.arange(60) % 2
    np.savez(tmp_path / "i.npz", images=np.zeros((60, 8, 8), np.uint8), labels=labels)
    images = replace(asked, data=tmp_path / "i.npz", label=None, drop=None)
    assert schema_of(replace(images, schema="images 8x8x1")).status is Status.OK
    for schema, why, to_do in (
        (
            "images 28x28x1",
            "inputs are images 28x28x1, our data is images 8x8x1",
            "`pate prepare FOLDER OUT --size 28x28`",
        ),
        ("table age:number", "are a table of 1 columns", "name data of that kind with --data"),
    ):
        found = schema_of(replace(images, schema=schema))
        assert (found.status, found.kind) == (Status.FAILED, SchemaError)
        assert why in found.text
        assert to_do in found.to_do


def test_what_only_an_encoder_reads_is_checked_with_it_or_not_yet(
    asked: CheckOptions, tmp_path: Path
) -> None:
    drawn_jpegs.write(tmp_path / "films", 5, seed=0)
    films = replace(asked, data=tmp_path / "films", label=None, drop=None)
    with pytest.raises(Skipped, match="which its server sends"):
        read_so(films)
    encoder = tiny_encoders.image_folder(tmp_path / "encoder")
    data = read_so(replace(films, encoder=encoder)).data
    assert data.inputs.schema().startswith("embeddings 6 by")
    assert len(data) == 15
    (asked.place / "policy.toml").write_text("encoders = []")  # as a start: none is waited for
    data, odd, _ = read_so(films)
    assert len(data) < 15
    assert odd


# --- its GPU -----------------------------------------------------------------------------------


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU here")  # noqa: PTH110
def test_no_gpu_matters_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert gpu.check_gpu("cpu").status is Status.SKIPPED
    assert gpu.check_gpu("auto").status is Status.OK
    assert gpu.check_gpu("cuda").status is Status.WARNING


PYTHON = sys.executable


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!{PYTHON}\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("cuda", "cards", "status", "why"),
    [
        ("13.0", [["Some Card", 80 * 2**30]], "ok", "sees Some Card (80 GiB); driver 580.65"),
        ("13.0", [], "warning", "is the driver too old"),
        (None, [], "warning", "built without CUDA"),
        ("", None, "warning", "PyTorch was not to be asked"),
    ],
)
def test_a_gpu_is_named_and_pytorch_is_asked_whether_it_sees_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cuda: str | None,
    cards: list[list[object]] | None,
    status: str,
    why: str,
) -> None:
    """Programs in the place of the driver's and of Python, that answer as those would."""
    smi = program(tmp_path / "nvidia-smi", 'print("Some Card 80GB, 81920, 580.65")')
    said = json.dumps({"torch": "2.11", "cuda": cuda, "seen": cards}) if cards is not None else "?"
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", f"print({said!r})")))
    found = gpu.check_gpu("auto", smi=str(smi))
    assert (found.status.value, why in found.text) == (status, True), found.text


def test_pytorch_itself_can_be_asked() -> None:
    assert {"torch", "cuda", "seen"} == set(gpu.ask_torch())
