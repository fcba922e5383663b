"""``pate plan`` from the command line: its table and its JSON, against the server's defaults and budget."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from aggregator_server.options import CampaignOptions
from pate.accounting.composition import composition_named
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import budget, composition_of, resolve, voted_rows
from pate.data.values import Table
from pate.errors import BudgetError, DataError, UsageError
from pate.formats.privacy_statement import ADJACENCY, rounded_up
from pate.mechanisms import DistributedMechanism, mechanism_from_dict
from pate.noise.shares import share_sigma, total_sigma
from pate.planning import population, search
from simulation.cli import plan
from tests.support.server.campaigns import make_spec

SHARES = ["--noise", "distributed"]
CROWD = ["--parties", "25", "--teachers", "250"]
PAPER = ["--threshold", "200", "--sigma1", "150", "--sigma2", "40", "--queries", "640"]


@pytest.fixture(autouse=True)
def a_small_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_COARSE", {"noise": 10, "sigma1": 4, "threshold": 6})
    monkeypatch.setattr(search, "_FINE", 4)
    monkeypatch.setattr(population, "HISTOGRAMS", 200)


def typed(*options: str) -> Result:
    app = typer.Typer()
    app.command()(plan)
    return CliRunner().invoke(app, options, env={"COLUMNS": "160"}, catch_exceptions=False)


def figures(*options: str) -> dict[str, Any]:
    result = typed("--json", *options)
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def campaign(**changes: Any) -> CampaignSpec:
    asked: dict[str, Any] = {
        "name": "a", "id": "0" * 32, "aggregator": "confident-gnmax", "parties": 1,
        "min_parties": 1, "public_set": "0" * 64, "queries": 1000, "schema": "s", "epsilon": 2.0,
        "delta": 1e-5,
    }  # fmt: skip
    return make_spec(**asked | changes)


def test_two_options_give_something_useful() -> None:
    made = figures("--teachers", "200", "--epsilon", "2")
    given, best = made["plans"]["given"], made["plans"]["best"]
    assert given["guarantee"]["epsilon"] <= 2.0
    assert best["guarantee"]["epsilon"] <= 2.0
    assert best["expected"]["answered"] > 100
    assert best["expected"]["right"] > given["expected"]["right"] > best["expected"]["right"] / 2
    floor = 0.9 * made["population"]["accuracy_without_noise"]
    assert best["expected"]["accuracy"] >= floor
    assert (made["unit"], made["votes_per_unit"], made["observer"]) == ("record", 1, "public")
    assert made["adjacency"] == ADJACENCY["record"]
    assert made["classes"] == 10


def test_the_most_accurate_of_enough_labels_has_a_column() -> None:
    """With weak teachers the most right labels are often wrong, and thresholds rise above all votes."""
    typed_ = ("--teachers", "100", "--epsilon", "4", "--agreement", "0.45", "--queries", "3000")
    made = figures(*typed_)
    best, accurate = (made["plans"][key]["expected"] for key in ("best", "enough"))
    assert accurate["answered"] >= 100  # ten a class
    assert accurate["accuracy"] > best["accuracy"] + 0.05
    assert accurate["right"] < best["right"]
    assert any(note.startswith("To run 100 labels or more: pate-server") for note in made["notes"])
    high = figures(*typed_, "--threshold", "150")
    assert any("above the 100 teachers (as given" in note for note in high["notes"])
    assert "100 labels or more" in " ".join(typed(*typed_).stdout.split())
    without = figures("--teachers", "30", "--epsilon", "1")
    assert without["plans"]["enough"] is None
    assert any("No settings are expected to give 100" in note for note in without["notes"])


def test_what_is_expected_to_be_noise_is_no_recommendation() -> None:
    made = figures("--teachers", "40", "--epsilon", "2")
    noise = made["plans"]["enough"]["expected"]
    assert noise["accuracy"] < 0.9 * made["population"]["accuracy_without_noise"]
    (line,) = [note for note in made["notes"] if "cannot give" in note]
    assert re.match(r"40 teachers and epsilon 2 cannot give 100 good labels: 29\.\d % of ", line)
    assert [note.partition(":")[0] for note in made["notes"] if note.startswith("To run")] == [
        "To run best found"
    ]
    # A rarest class needs more labels until ten are of it.
    rare = figures("--teachers", "200", "--epsilon", "4", "--classes", "2", "--rarest", "0.05")
    assert rare["plans"]["enough"]["expected"]["answered"] >= 200
    shown = typed("--teachers", "200", "--epsilon", "4", "--classes", "2", "--rarest", "0.05")
    assert "of the rarest class, 1 in 20" in " ".join(shown.stdout.replace("│", " ").split())


def test_without_a_budget_the_noise_is_the_least_that_a_server_chooses() -> None:
    made = figures("--teachers", "100", "--aggregator", "gnmax", "--queries", "3000")
    assert made["plans"]["given"]["mechanism"]["sigma"] == "16"
    wanted = figures(
        "--teachers", "100", "--aggregator", "gnmax", "--queries", "3000", "--epsilon", "4"
    )
    assert wanted["plans"]["given"]["mechanism"]["sigma"] == "22"
    assert any("noise that the server chooses: sigma2 22" in note for note in wanted["notes"])


@pytest.mark.parametrize(
    ("aggregator", "options"),
    [
        ("confident-gnmax", {}),
        ("confident-gnmax", {"sigma2": Fraction(50), "threshold": Fraction(301, 2)}),
        ("gnmax", {}),
        ("lnmax", {}),
        ("interactive-gnmax", {}),
        ("interactive-gnmax", {"first_round_share": Fraction(1, 3)}),
    ],
)
def test_settings_and_budget_are_those_of_the_server(
    aggregator: str, options: dict[str, Fraction]
) -> None:
    texts = [t for k, v in options.items() for t in (f"--{k.replace('_', '-')}", str(v))]
    made = figures("--teachers", "230", "--epsilon", "5", "--aggregator", aggregator, *texts)
    rounds = 2 if aggregator == "interactive-gnmax" else 1
    spec = campaign(aggregator=aggregator, epsilon=5.0, rounds=rounds, **options)
    mechanisms = resolve(spec, 230, 1, 10)
    given = made["plans"]["given"]
    assert mechanism_from_dict(given["mechanism"]) == mechanisms[0]
    composition = composition_of(spec, mechanisms)
    cap = budget(spec, mechanisms, composition)
    guarantee = given["guarantee"]
    assert guarantee["composition"] == composition.name
    assert Fraction(guarantee["cap"]) == cap
    assert guarantee["epsilon"] == composition.epsilon(cap, 1e-5)
    share = spec.first_round_share if rounds > 1 else 1
    assert Fraction(guarantee["limit_of_round"]) == cap * share


def test_the_best_plan_is_one_that_the_server_takes() -> None:
    made = figures("--teachers", "230", "--epsilon", "1.5", "--aggregator", "gnmax")
    (line,) = [note for note in made["notes"] if note.startswith("To run best found: ")]
    typed_options = dict(re.findall(r"--([a-z0-9-]+) (\S+)", line))
    assert typed_options["aggregator"] == "gnmax"
    spec = campaign(
        aggregator="gnmax",
        sigma2=Fraction(typed_options["sigma2"]),
        epsilon=float(typed_options["epsilon"]),
        delta=float(typed_options["delta"]),
        unit=typed_options["unit"],
    )
    mechanisms = resolve(spec, 230, 1)
    cap = budget(spec, mechanisms, composition_of(spec, mechanisms))
    assert made["plans"]["best"]["guarantee"]["cap"] == str(cap)


def test_the_table_shows_the_figures_of_the_json(tmp_path: Path) -> None:
    options = ["--teachers", "250", *PAPER, "--epsilon", "2.5", "--delta", "1e-6"]
    made, screen = figures(*options), typed(*options)
    assert screen.exit_code == 0
    table = screen.stdout
    for each in made["plans"].values():
        assert f" {rounded_up(each['guarantee']['epsilon'])} " in table
        assert f" {each['expected']['answered']:.0f} " in table
        assert f" {each['expected']['asked']:.0f} of 640 " in table
        assert f"{100 * each['expected']['accuracy']:.1f} ± " in table
    flat = " ".join(table.split())
    assert "at delta 1e-06; unit: record; adjacency: one record added or removed" in flat
    assert "observer: public" in flat
    assert "tuning on private votes is itself a leak" in flat
    assert "as given" in table
    assert "best found" in table


def test_without_an_epsilon_the_guarantee_is_that_of_all_answered() -> None:
    made = figures("--teachers", "250", *PAPER)
    assert made["plans"]["best"] is None
    assert made["search"] is None
    given = made["plans"]["given"]
    worst = 640 * sum(
        composition_named("gdp").cost(event)
        for event in mechanism_from_dict(given["mechanism"]).worst
    )
    assert Fraction(given["guarantee"]["cap"]) == worst
    assert given["guarantee"]["epsilon"] == composition_named("gdp").epsilon(Fraction(worst), 1e-5)


def test_the_same_seed_gives_the_same_figures() -> None:
    options = ["--teachers", "120", "--epsilon", "3", "--classes", "4"]
    assert figures(*options) == figures(*options)


def test_party_as_the_unit_counts_all_its_teachers() -> None:
    given = ["--unit", "party", "--epsilon", "20", "--aggregator", "gnmax"]
    each = figures("--parties", "50", "--teachers", "300", *given)
    assert (each["teachers"], each["votes_per_unit"]) == (300, 6)
    assert each["adjacency"] == ADJACENCY["party"]
    assert figures("--teachers", "299", "--parties", "50", *given)["votes_per_unit"] == 6
    assert figures("--teachers", "300", "--votes-per-unit", "11", *given)["votes_per_unit"] == 11
    record = figures("--parties", "50", "--teachers", "300", "--epsilon", "20",
                     "--aggregator", "gnmax")  # fmt: skip
    assert record["votes_per_unit"] == 1
    assert record["plans"]["best"]["expected"]["right"] > each["plans"]["best"]["expected"]["right"]


def test_a_proxy_takes_the_place_of_assumptions(tmp_path: Path) -> None:
    votes = np.random.default_rng(1).multinomial(60, [0.7, 0.2, 0.1], size=200)
    np.save(tmp_path / "votes.npy", votes.astype(np.float64))
    np.save(tmp_path / "labels.npy", np.where(np.arange(200) % 4 == 0, 1, 0))
    file = ["--proxy-votes", str(tmp_path / "votes.npy"), "--epsilon", "4"]
    made = figures(*file)
    assert (made["teachers"], made["classes"]) == (60, 3)
    assert made["population"]["source"] == "proxy"
    assert made["population"]["accuracy_of"] == "plurality"
    assert made["population"]["accuracy_without_noise"] == 1.0
    labelled = figures(*file, "--proxy-labels", str(tmp_path / "labels.npy"))
    assert labelled["population"]["accuracy_of"] == "right"
    assert labelled["population"]["accuracy_without_noise"] == pytest.approx(0.75)
    assert labelled["plans"]["given"]["guarantee"] == made["plans"]["given"]["guarantee"]
    flat = " ".join(typed(*file).stdout.split())
    assert "a proxy, which must be public" in flat
    assert "agreement with the plurality" in flat
    for options, error, message in (
        (["--teachers", "61"], UsageError, "60 votes in every query"),
        (["--classes", "4"], UsageError, "has 3 classes"),
        (["--agreement", "0.9"], UsageError, "assumption"),
        (["--proxy-labels", str(tmp_path / "votes.npy")], DataError, "one label for each"),
    ):
        with pytest.raises(error, match=message):
            typed(*file, *options)


def test_goals_are_kept() -> None:
    base = ["--teachers", "200", "--epsilon", "2"]
    accurate = figures(*base, "--at-least", "100")["plans"]["best"]["expected"]
    assert accurate["answered"] >= 100
    many = figures(*base, "--least-accuracy", "0.6")["plans"]["best"]["expected"]
    assert many["accuracy"] >= 0.6
    assert many["right"] > accurate["right"]
    assert accurate["accuracy"] > many["accuracy"]


def test_where_the_defaults_cannot_pay_for_one_label_others_may() -> None:
    made = figures("--teachers", "10", "--classes", "10", "--epsilon", "3")
    assert made["plans"]["given"] is None
    assert made["plans"]["best"]["guarantee"]["epsilon"] <= 3
    assert any("one answer may cost" in note for note in made["notes"])
    assert "server's defaults" not in typed(
        "--teachers", "10", "--classes", "10", "--epsilon", "3"
    ).stdout.replace("\n", " ")
    with pytest.raises(BudgetError, match="more teachers"):
        typed("--teachers", "3", "--epsilon", "0.1")
    much = ["--at-least", "900", "--least-accuracy", "0.9"]
    asked = figures("--teachers", "200", "--epsilon", "2", *much)
    assert asked["plans"]["best"] is None
    assert any("no settings were found" in note for note in asked["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--teachers"),
        (["--parties", "3"], "--teachers"),
        (["--parties", "25", "--teachers", "10"], "all parties together"),
        (["--teachers", "9", "--unit", "party"], "--votes-per-unit"),
        (["--teachers", "9", "--unit", "party", "--votes-per-unit", "10"], "10 of 9"),
        (["--teachers", "9", "--votes-per-unit", "2"], "--unit party"),
        (
            ["--teachers", "9", "--aggregator", "gnmax", "--threshold", "5"],
            "threshold has no meaning for gnmax",
        ),
        (["--teachers", "9", "--scale", "5"], "scale has no meaning for confident-gnmax"),
        (["--teachers", "9", "--sigma2", "much"], "--sigma2 must be a number"),
        (["--teachers", "9", "--sigma2", "1/0"], "--sigma2"),
        (["--teachers", "9", "--sigma2", "-3"], "sigma2"),
        (["--teachers", "9", "--sigma2", "1e9"], "sigma"),
        (["--teachers", "9", "--epsilon", "0"], "epsilon"),
        (["--teachers", "9", "--epsilon", "nan"], "epsilon"),
        (["--teachers", "9", "--first-round-share", "1/3"], "interactive"),
        (["--teachers", "9", "--agreement", "0"], "agreement"),
        (["--teachers", "9", "--spread", "0.4"], "spread"),
        (["--teachers", "9", "--epsilon", "2", "--least-accuracy", "2"], "accuracy"),
        (["--teachers", "9", "--proxy-labels", "a.npy"], "--proxy-votes"),
        (["--teachers", "9", "--queries", "2000000"], "queries"),
        (["--teachers", "9", "--queries", "1000000000000000"], "queries"),
        (["--teachers", "9", "--classes", "40000"], "classes"),
        (["--teachers", "9", "--aggregator", "neighbour"], "--teachers is for teachers"),
        (["--teachers", "9", "--purity", "0.9"], "--purity is for --aggregator neighbour"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        typed(*options)


def test_a_configuration_file_has_the_same_names(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('teachers = 200\nepsilon = 2.0\naggregator = "gnmax"\nsigma2 = 45\n')
    made = figures("--config", str(file))
    assert made["plans"]["given"]["mechanism"]["sigma"] == "45"
    assert made == figures("--teachers", "200", "--epsilon", "2", "--aggregator", "gnmax",
                           "--sigma2", "45")  # fmt: skip


def test_interactive_says_that_it_is_the_first_round() -> None:
    made = figures("--teachers", "200", "--epsilon", "2", "--aggregator", "interactive-gnmax")
    assert made["plans"]["best"]["mechanism"]["mechanism"] == "confident-gnmax"
    assert any("first round" in note for note in made["notes"])
    cap, limit = (made["plans"]["best"]["guarantee"][key] for key in ("cap", "limit_of_round"))
    assert Fraction(limit) == Fraction(cap) / 2
    assert any("--first-round-share 1/2" in note for note in made["notes"])


def test_a_plan_says_between_what_one_campaign_is() -> None:
    made = figures(
        "--teachers", "120", "--epsilon", "8", "--agreement", "0.43", "--aggregator", "gnmax"
    )
    given = made["plans"]["given"]
    low, high = given["between"]["accuracy"]
    assert low < given["expected"]["accuracy"] < high
    assert high - low > 0.25, "of such teachers little is known"
    stated = figures(
        "--teachers", "120", "--epsilon", "8", "--agreement", "0.43", "--aggregator", "gnmax",
        "--spread", "0.1", "--rival", "0.5",
    )  # fmt: skip
    low, high = stated["plans"]["given"]["between"]["accuracy"]
    assert high - low < 0.2


# --- noise from the parties ---------------------------------------------------------------------------


def shared_campaign(*, queries: int = 1000, **changes: Any) -> CampaignSpec:
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
def test_settings_and_budget_of_shares_are_those_of_the_server(
    aggregator: str, options: dict[str, str], crowd: dict[str, int]
) -> None:
    given = {**options, **{key: str(value) for key, value in crowd.items()}}
    texts = [t for k, v in given.items() for t in (f"--{k.replace('_', '-')}", v)]
    made = figures(*SHARES, *CROWD, "--epsilon", "2", "--aggregator", aggregator, *texts)
    both: dict[str, Any] = {**options, **crowd}
    spec = shared_campaign(aggregator=aggregator, **both)
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
    made = figures(*SHARES, *CROWD, "--sigma2", "40", "--threshold", "200", "--queries", "640")
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
    made = json.loads(typed(*SHARES, "--json", "--teachers", "50", "--noise", "central").stdout)
    assert (made["noise"], made["min_parties"], made["colluders"]) == ("central", None, None)
    assert made["plans"]["given"]["noise_shares"] is None


def test_the_table_shows_both_figures_and_the_noise() -> None:
    options = [*CROWD, "--epsilon", "3", "--queries", "640"]
    made, screen = figures(*SHARES, *options), typed(*SHARES, *options)
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
def test_the_best_plan_with_shares_is_one_that_the_server_takes(aggregator: str) -> None:
    options = [*CROWD, "--epsilon", "3", "--aggregator", aggregator, "--colluders", "4"]
    made = figures(*SHARES, *options)
    (line,) = [note for note in made["notes"] if note.startswith("To run best found: ")]
    found = dict(re.findall(r"--([a-z0-9-]+) (\S+)", line))
    assert found.pop("noise") == "distributed"
    spec = shared_campaign(
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
    made = figures(*SHARES, *CROWD, "--unit", "party", "--epsilon", "40")
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
def test_options_of_shares_that_make_no_sense_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        typed(*SHARES, *options)
    assert "\n" not in str(caught.value)


# --- all votes in one release -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "unit", "more"),
    [
        ("counts", "record", {}),
        ("balanced", "record", {"noise": "central"}),
        ("arrays", "record", {"expected_records": 4000}),
        ("axes-9", "party", {}),
    ],
)
def test_the_noise_of_one_release_is_that_of_the_server(
    release: str, unit: str, more: dict[str, Any]
) -> None:
    terms: dict[str, Any] = {
        "unit": unit,
        "epsilon": 3.0,
        "delta": 1e-5,
        "release": release,
        **more,
    }
    texts = [t for k, v in terms.items() for t in (f"--{k.replace('_', '-')}", str(v))]
    base = ["--aggregator", "gnmax", "--parties", "25", "--teachers", "250", "--classes", "3"]
    made = figures(*base, "--queries", "500", *texts)
    public = Table(("a",), (np.arange(500.0),))
    spec = spec_of(
        CampaignOptions(parties="25", aggregator="gnmax", classes="a,b,c", **terms), public
    )
    (mechanism,) = resolve(spec, 250, 10 if unit == "party" else 1, 3)
    assert mechanism_from_dict(made["mechanism"]) == mechanism
    assert (made["code"], made["noise"]) == (spec.code, spec.sums.noise)
    composition = composition_of(spec, (mechanism,))
    cap = budget(spec, (mechanism,), composition)
    assert made["guarantee"]["epsilon"] == composition.epsilon(cap, 1e-5) <= 3.0
    assert (made["expected"]["noise_to_sum"] is None) == (release in ("counts", "balanced"))
    assert (made["expected"]["answered"] is None) == (release != "counts")


def test_labels_of_one_release_are_as_frequent_and_as_right_as_sampled_ones(tmp_path: Path) -> None:
    """Of 4,000 sampled queries: six deviations of a share are 6 * 0.5 / sqrt(4,000) = 0.05."""
    rng = np.random.default_rng(1)
    votes = rng.multinomial(60, [0.6, 0.2, 0.1, 0.05, 0.03, 0.02], size=200)
    np.save(tmp_path / "votes.npy", votes)
    np.save(tmp_path / "labels.npy", np.where(np.arange(200) % 4 == 0, 1, 0))
    made = figures(
        "--aggregator", "gnmax", "--release", "counts", "--proxy-votes", str(tmp_path / "votes.npy"),
        "--proxy-labels", str(tmp_path / "labels.npy"), "--sigma2", "12",
        "--queries", "300", "--epsilon", "1000", "--noise", "central",
    )  # fmt: skip
    at = np.arange(4000) % 200
    noisy = votes[at] + np.rint(rng.normal(0, 12, (4000, 6)))
    second, first = np.partition(noisy, -2, axis=1)[:, -2:].T
    clear = first - second >= made["mechanism"]["threshold"]
    right = (noisy.argmax(axis=1) == np.where(at % 4 == 0, 1, 0))[clear].mean()
    assert made["expected"]["answered"] == pytest.approx(300 * clear.mean(), abs=300 * 0.05)
    assert made["expected"]["accuracy"] == pytest.approx(right, abs=0.05)
    assert any("if teachers vote as in the proxy, expect" in line for line in made["in_words"])


def test_a_plan_of_one_release_is_said_in_words() -> None:
    base = ["--aggregator", "gnmax", "--teachers", "100", "--queries", "50"]
    shown = " ".join(typed(*base, "--release", "counts").stdout.split())
    assert "votes of 100 teachers, and a class that leads by" in shown
    assert "if each teacher is right on 85 % of the inputs, expect" in shown
    arrays = " ".join(typed(*base[:2], "--queries", "50", "--release", "axes-4").stdout.split())
    assert "as long as the sum of" in arrays
    for options, message in (
        (["--release", "counts", "--at-least", "9"], "--release labels"),
        (["--release", "axes-4", "--agreement", "0.9"], "arrays lack"),
        (["--release", "counts", "--expected-records", "9"], "--release arrays"),
        (["--release", "sums"], "release is"),
        (["--expected-records", "9"], "--aggregator neighbour"),
        (["--release", "counts", "--aggregator", "lnmax"], "not for lnmax"),
    ):
        with pytest.raises(UsageError, match=message):
            typed(*base, *options)
