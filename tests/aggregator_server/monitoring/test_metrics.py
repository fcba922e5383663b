"""A campaign's metrics; dashboard, alerts and documentation name only existing ones."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator_server.monitoring.metrics import CONTENT_TYPE, render
from aggregator_server.monitoring.overview import (
    PHASES,
    Budget,
    Check,
    ClassLabels,
    LedgerLine,
    Overview,
    PartyRow,
    Queries,
)
from party.ledger.ledger import PartyLedger
from party.monitoring import Status
from party.monitoring import render as render_party
from pate.accounting.filters import Delta
from tests.support.party.offers import answer, queries, settled

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
BUDGET = Budget(
    epsilon=2.0, delta=1e-5, unit="record", adjacency="one record", observer="public", spent=0.25,
    left=0.75, epsilon_charged=1.1, epsilon_server=5.5, composition="zcdp",
)  # fmt: skip


def overview(**changes: Any) -> Overview:
    """A running campaign; values that no metric may contain are easy to find."""
    made = Overview(
        campaign="hearts", id="ab12", mechanism="gnmax", mechanism_words="", aggregation="masked",
        noise="distributed", publish="capped", gate=None, phase="voting", failed="", phases=PHASES, round=1,
        rounds=2, wanted=5, min_parties=4, teachers=250,
        parties=(PartyRow("secret-north", connected=True, doing="x", trouble=False, done=3, total=9),),
        parties_unlisted=0, connected=3, by_envelope=0, envelopes=(), step="",
        queries=Queries(100, 90, 60, 40, 30),
        labels=(ClassLabels("well", 20), ClassLabels("ill", 10)), promise="", expected=None, commands=(),
        budget=BUDGET, curve=(),
        student=(), ledger=(LedgerLine(17, "votes", "", "2026-01-02T03:04:00Z", 17),),
        ledger_entries=17, log=(), checks=(Check("ledger", ok=True, text=""),
        Check("link", ok=False, text="")), ready=True, began="2026-01-02T03:00:00Z",
        made="2026-01-02T03:05:05Z",
    )  # fmt: skip
    return replace(made, **changes)


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """Values by name and labels, as a scraper reads them; no series twice."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            assert (sample.name, labels) not in found
            found[sample.name, labels] = sample.value
    return found


def everything(tmp_path: Path) -> bytes:
    """All metrics of a server and a party, in one text."""
    ledger = PartyLedger(tmp_path / "ledger.db")
    answer(ledger, settled(), queries(0, 2))
    status = Status()
    status.bound_by(ledger, delta=Delta(1e-5), largest_epsilon=2.0, ends=NOW)
    return _of_server(tmp_path) + render_party(status.standing, tmp_path)


def _of_server(tmp_path: Path) -> bytes:
    return render(
        overview(),
        home=tmp_path,
        certificate_ends=NOW + timedelta(days=3),
        students=2,
        streams=1,
    )


def test_what_a_campaign_tells(tmp_path: Path) -> None:
    found = samples(_of_server(tmp_path))
    labels = "aggregation=masked,campaign=hearts,id=ab12,mechanism=gnmax,noise=distributed"
    assert found["pate_campaign_info", f"{labels},publish=capped"] == 1
    phases = {p: found["pate_campaign_phase", f"pate_campaign_phase={p}"] for p in PHASES}
    assert [phase for phase, holds in phases.items() if holds] == ["voting"]
    plain = {name: value for (name, labels), value in found.items() if not labels}
    assert {name: plain[name] for name in plain if name.startswith("pate_")} == {
        "pate_campaign_round": 1,
        "pate_campaign_rounds": 2,
        "pate_parties_wanted": 5,
        "pate_parties_least": 4,
        "pate_parties_connected": 3,
        "pate_teachers": 250,
        "pate_ready": 1,
        "pate_ledger_entries_total": 17,
        "pate_idle_seconds": 65,
        "pate_epsilon": 2,
        "pate_delta": 1e-5,
        "pate_epsilon_server": 5.5,
        "pate_budget_charged_ratio": 0.25,
        "pate_certificate_expiry_timestamp_seconds": (NOW + timedelta(days=3)).timestamp(),
        "pate_students_connected": 2,
        "pate_page_streams": 1,
        "pate_disk_free_bytes": plain["pate_disk_free_bytes"],
    }
    by_state = {key[1]: value for key, value in found.items() if key[0] == "pate_queries"}
    assert by_state == {
        "state=public": 100, "state=voted_on": 90, "state=votes_in": 60, "state=answered": 40,
        "state=labelled": 30,
    }  # fmt: skip
    assert found["pate_labels", "class=well"] == 20
    assert found["pate_labels", "class=ill"] == 10
    assert found["pate_check_ok", "check=ledger"] == 1
    assert found["pate_check_ok", "check=link"] == 0
    assert found["process_open_fds", ""] > 0
    assert CONTENT_TYPE.startswith("text/plain; version=")


def test_no_party_is_named(tmp_path: Path) -> None:
    assert b"north" not in _of_server(tmp_path)


def test_before_the_roster_there_is_no_budget_and_no_class() -> None:
    early = overview(phase="gathering", budget=None, labels=(), ledger=(), teachers=0)
    names = {name for name, _ in samples(render(early))}
    assert not {name for name in names if "epsilon" in name or "budget" in name}
    assert not names & {
        "pate_delta", "pate_labels", "pate_idle_seconds", "pate_disk_free_bytes",
        "pate_certificate_expiry_timestamp_seconds", "pate_students_connected",
    }  # fmt: skip


def test_no_promise_towards_the_server_is_no_number() -> None:
    silent = overview(budget=replace(BUDGET, epsilon_server=None))
    assert "pate_epsilon_server" not in {name for name, _ in samples(render(silent))}


def test_how_long_a_gate_computes_is_not_told() -> None:
    open_, gated = samples(render(overview())), samples(render(overview(publish="gated")))
    assert ("process_cpu_seconds_total", "") in open_
    assert ("process_cpu_seconds_total", "") not in gated
    assert ("process_open_fds", "") in gated


def test_names_of_classes_may_hold_anything() -> None:
    odd = overview(labels=(ClassLabels('a"b\\c', 1), ClassLabels("ü…", 2), ClassLabels("ü…", 3)))
    text = render(odd)
    assert samples(text)["pate_labels", "class=ü…"] == 5
    assert samples(text)["pate_labels", 'class=a"b\\c'] == 1


def test_a_clock_that_went_back_gives_no_negative_time() -> None:
    found = samples(render(overview(made="2026-01-02T02:00:00Z")))
    assert found["pate_idle_seconds", ""] == 0


# --- what names metrics ----------------------------------------------------------------------

NAME = re.compile(r"\b(?:pate|process)_[a-z_]+\b")
MATCHERS = re.compile(r"\{([^}]*)\}")


def names_in(expression: str) -> set[str]:
    return set(NAME.findall(MATCHERS.sub("", expression)))


def labels_in(expression: str) -> set[str]:
    found = {
        part.partition("=")[0].rstrip("!").strip()
        for matchers in MATCHERS.findall(expression)
        for part in matchers.split(",")
    }
    return found - {"instance", "job"}  # given by the scraper


@pytest.fixture
def told(tmp_path: Path) -> dict[str, set[str]]:
    """Every existing metric, with its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(everything(tmp_path).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def check(expression: str, told: dict[str, set[str]]) -> set[str]:
    """Check that an expression is about metrics that there are, and return their names."""
    names = names_in(expression)
    assert names <= set(told), expression
    assert labels_in(expression) <= set().union(*(told[name] for name in names)), expression
    return names


def test_the_board_shows_metrics_that_there_are(told: dict[str, set[str]]) -> None:
    status = json.loads((ROOT / "deploy/grafana/pate.json").read_text())
    panels = [panel for panel in status["panels"] if panel["type"] != "row"]
    targets = [target for panel in panels for target in panel["targets"]]
    shown: set[str] = set()
    for target in targets:
        names = check(target["expr"], told)
        assert names, target
        shown |= names
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
        assert legend <= set().union(*(told[name] for name in names)), target
    for variable in status["templating"]["list"]:
        if variable["type"] == "query":
            assert check(variable["query"]["query"], told)
    assert len({panel["id"] for panel in status["panels"]}) == len(status["panels"])
    assert len(panels) > 20
    # What an operator would miss if it were in no panel.
    assert shown >= {name for name in told if name.startswith(("pate_labels", "pate_budget"))}


def test_alerts_are_about_metrics_that_there_are(told: dict[str, set[str]]) -> None:
    rules = importlib.import_module("yaml").safe_load(
        (ROOT / "deploy/grafana/alerts.yml").read_text()
    )
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    documented = (ROOT / "docs/operator.md").read_text()
    assert len(alerts) > 8
    for alert in alerts:
        assert check(alert["expr"], told) or alert["expr"].startswith("up{"), alert["expr"]
        assert alert["labels"]["severity"] in ("info", "warning", "critical")
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["action"]
        assert f"`{alert['alert']}`" in documented


def test_every_metric_is_justified(told: dict[str, set[str]]) -> None:
    tables = [
        line
        for line in (ROOT / "docs/operator.md").read_text().splitlines()
        if line.startswith("| `p")
    ]
    documented = {name for line in tables for name in NAME.findall(line.split("|")[1])}
    assert documented == set(told)
