"""``pate plan --noise distributed`` from the command line, against the server's own terms."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from aggregator_server.options import CampaignOptions
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import budget, composition_of, resolve, voted_rows
from pate.data.values import Table
from pate.errors import UsageError
from pate.formats.privacy_statement import rounded_up
from pate.mechanisms import DistributedMechanism, mechanism_from_dict
from pate.noise.shares import share_sigma, total_sigma
from pate.planning import population, search
from simulation.cli import plan

SHARES = ["--noise", "distributed"]
CROWD = ["--parties", "25", "--teachers", "250"]


@pytest.fixture(autouse=True)
def a_small_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COARSE", {"noise": 16, "sigma1": 5, "threshold": 6})
    monkeypatch.setattr(population, "HISTOGRAMS", 300)


def typed(*options: str) -> Result:
    app = typer.Typer()
    app.command()(plan)
    return CliRunner().invoke(
        app, [*SHARES, *options], env={"COLUMNS": "160"}, catch_exceptions=False
    )


def figures(*options: str) -> dict[str, Any]:
    result = typed("--json", *options)
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def campaign(*, queries: int = 1000, **changes: Any) -> CampaignSpec:
    """The server's own reading of the same options."""
    asked: dict[str, Any] = {"parties": "25", "delta": 1e-5, "noise": "distributed"}
    public = Table(("a",), (np.arange(float(queries)),))
    return spec_of(CampaignOptions(**asked | changes), public)


@pytest.mark.parametrize(
    ("aggregator", "options", "crowd"),
    [
        ("confident-gnmax", {}, {}),
        ("confident-gnmax", {"sigma2": "50", "threshold": "301/2"}, {"min_parties": 20}),
        ("gnmax", {}, {"colluders": 2}),
        ("interactive-gnmax", {"first_round_share": "1/3"}, {"min_parties": 21, "colluders": 3}),
    ],
)
def test_settings_and_budget_are_those_of_the_server(
    aggregator: str, options: dict[str, str], crowd: dict[str, int]
) -> None:
    given = {**options, **{key: str(value) for key, value in crowd.items()}}
    texts = [t for k, v in given.items() for t in (f"--{k.replace('_', '-')}", v)]
    made = figures(*CROWD, "--epsilon", "2", "--aggregator", aggregator, *texts)
    both: dict[str, Any] = {**options, **crowd}
    spec = campaign(aggregator=aggregator, **both)
    assert (made["min_parties"], made["colluders"]) == (spec.sums.min_parties, spec.sums.colluders)
    mechanisms = resolve(spec, 250, 1)
    plan_ = made["plans"]["given"]
    assert mechanism_from_dict(plan_["mechanism"]) == mechanisms[0]
    composition = composition_of(spec, mechanisms)
    cap = budget(spec, mechanisms, composition)
    assert Fraction(plan_["guarantee"]["cap"]) == cap
    assert plan_["guarantee"]["composition"] == composition.name == "gdp"
    shares = plan_["noise_shares"]
    assert shares["honest"] == spec.sums.honest
    assert shares["voted_on"] == len(voted_rows(spec, mechanisms, composition, cap))
    assert plan_["epsilon_towards_server"] <= plan_["guarantee"]["epsilon"] <= 2.0


def test_the_json_says_whose_noise_is_where() -> None:
    made = figures(*CROWD, "--sigma2", "40", "--threshold", "200", "--queries", "640")
    assert made["noise"] == "distributed"
    assert (made["parties"], made["min_parties"], made["colluders"]) == (25, 17, 8)
    given = made["plans"]["given"]
    mechanism = mechanism_from_dict(given["mechanism"])
    assert isinstance(mechanism, DistributedMechanism)
    shares = given["noise_shares"]
    assert Fraction(shares["share"]) == mechanism.share == share_sigma(Fraction(40), 9)
    for name, number in (("guaranteed", 9), ("of_fewest", 17), ("of_all", 25)):
        assert shares[f"sigma_{name}"] == float(total_sigma(mechanism.share, number))
    assert 40 <= shares["sigma_guaranteed"] < 40.1
    assert shares["voted_on"] == given["expected"]["asked"] == 640
    assert given["expected"]["accuracy"] < shares["accuracy_of_fewest"]
    assert given["guarantee"]["epsilon"] == given["epsilon_towards_server"]
    assert made["plans"]["best"] is None


def test_a_central_plan_has_no_shares() -> None:
    made = json.loads(typed("--json", "--teachers", "50", "--noise", "central").stdout)
    assert (made["noise"], made["min_parties"], made["colluders"]) == ("central", None, None)
    assert made["plans"]["given"]["noise_shares"] is None


def test_the_table_shows_both_figures_and_the_noise() -> None:
    options = [*CROWD, "--epsilon", "3", "--queries", "640"]
    made, screen = figures(*options), typed(*options)
    table = screen.stdout
    for each in made["plans"].values():
        assert f" {rounded_up(each['guarantee']['epsilon'])} " in table
        assert f" {rounded_up(each['epsilon_towards_server'])} " in table
        shares = each["noise_shares"]
        assert f" {shares['sigma_guaranteed']:.2f} " in table
        assert f" {shares['sigma_of_all']:.2f} " in table
        assert f" {100 * shares['accuracy_of_fewest']:.1f} % " in table
        assert f" {shares['voted_on']} of 640 " in table
    flat = " ".join(table.split())
    assert "epsilon guaranteed towards the server" in flat
    assert "sigma2 of 9 honest ones" in flat
    assert "sigma2 of all 25" in flat
    assert "the same with 17 parties' noise" in flat
    assert "noise from the parties" in flat
    assert "It counts the 9 shares" in flat
    assert "nothing is guaranteed" not in flat


@pytest.mark.parametrize("aggregator", ["gnmax", "confident-gnmax"])
def test_the_best_plan_is_one_that_the_server_takes(aggregator: str) -> None:
    options = [*CROWD, "--epsilon", "3", "--aggregator", aggregator, "--colluders", "4"]
    made = figures(*options)
    (line,) = [note for note in made["notes"] if note.startswith("To run best found: ")]
    found = dict(re.findall(r"--([a-z0-9-]+) (\S+)", line))
    assert found.pop("noise") == "distributed"
    spec = campaign(
        aggregator=found["aggregator"],
        parties=found["parties"],
        min_parties=int(found["min-parties"]),
        colluders=int(found["colluders"]),
        epsilon=float(found["epsilon"]),
        **{key: found[key] for key in ("sigma2", "threshold") if key in found},
    )
    mechanisms = resolve(spec, 250, 1)
    best = made["plans"]["best"]
    assert mechanisms[0].to_dict() == best["mechanism"]
    cap = budget(spec, mechanisms, composition_of(spec, mechanisms))
    assert best["guarantee"]["cap"] == str(cap)
    assert best["epsilon_towards_server"] <= 3.0
    floor = 0.9 * made["population"]["accuracy_without_noise"]
    assert best["expected"]["accuracy"] >= floor


def test_a_party_as_the_unit() -> None:
    made = figures(*CROWD, "--unit", "party", "--epsilon", "40")
    assert made["votes_per_unit"] == 10
    assert made["plans"]["best"]["mechanism"]["votes_per_unit"] == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--teachers", "90"], "needs --parties"),
        ([*CROWD, "--aggregator", "lnmax"], "noise shares are for gnmax"),
        ([*CROWD, "--sigma1", "150"], "leave sigma1 out"),
        ([*CROWD, "--min-parties", "12"], "take t = 13 or more"),
        ([*CROWD, "--min-parties", "26"], "26 of 25"),
        ([*CROWD, "--colluders", "24"], "more than n"),
        (["--parties", "1", "--teachers", "9"], "at least 2"),
        (["--teachers", "9", "--noise", "central", "--colluders", "1"], "--noise distributed"),
        (["--teachers", "9", "--noise", "central", "--min-parties", "1"], "--min-parties is for"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        typed(*options)
    assert "\n" not in str(caught.value)
