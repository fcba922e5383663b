"""``pate plan-neighbour``, and the server's own choice that it shows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator_server.options import CampaignOptions
from pate.campaign.representatives import choose, default_number, first_of_each
from pate.campaign.settings import spec_of
from pate.campaign.terms import matrix_mechanism
from pate.data.values import Images, Table
from pate.errors import BudgetError, UsageError
from pate.mechanisms import DistributedNeighbour
from simulation.cli import app


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan-neighbour", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_it_shows_what_the_server_would_choose() -> None:
    code, text = run(
        "--records", "60000", "--parties", "5", "--epsilon", "0.1", "--purity", "0.95", "--json"
    )
    assert code == 0
    found = json.loads(text)
    public = Images(np.random.default_rng(3).integers(0, 255, (300, 8, 8, 1), dtype=np.uint8))
    asked = CampaignOptions(
        aggregator="neighbour", parties="5", epsilon=0.1, delta=1e-5, representatives=20
    )
    spec = spec_of(asked, public)
    mechanism = matrix_mechanism(spec, 1)
    assert isinstance(mechanism, DistributedNeighbour)
    assert found["noise"]["law"] == "geometric"
    assert found["noise"]["scale"] == str(mechanism.scale)
    assert found["guarantee"]["delta"] == spec.delta == 0.0
    spreads = found["noise"]["sigma_of_each_law"]
    assert spreads["geometric"] == found["noise"]["carried_sigma"] < spreads["gaussian"]
    assert found["noise"]["counted_shares"] == mechanism.honest == spec.sums.honest
    assert found["noise"]["threshold"] == mechanism.threshold
    assert found["server_default"] == default_number(60_000, 10**9, 0.1, 0.0)
    assert len(found["plans"]) == 5
    assert "removed or altered; observer: public" in found["guarantee"]["in_words"]


def test_the_table_says_what_it_stands_for() -> None:
    code, text = run("--records", "1000", "--parties", "2", "--epsilon", "1", "--delta", "1e-4")
    assert code == 0
    assert "whatever the number of representatives" in " ".join(text.split())
    assert "* as the server would choose" in text
    code, text = run("--records", "1000", "--representatives", "77")
    assert code == 0
    assert "*" not in text
    assert " 77 " in text


def test_both_laws_are_shown_and_either_can_be_stated() -> None:
    asked = ("--records", "1000", "--epsilon", "0.1")
    text = " ".join(run(*asked)[1].split())
    assert "epsilon 0.1 at delta 0 (" in text
    assert "carries geometric noise of standard deviation 36.51 (3 shares are counted)" in text
    assert "Gaussian noise would have 56.14, at delta 1e-05" in text
    text = " ".join(run(*asked, "--noise-law", "gaussian")[1].split())
    assert "epsilon 0.1 at delta 1e-05 (" in text
    assert "geometric noise would have 36.51, at delta 0" in text
    found = json.loads(run(*asked, "--noise-law", "gaussian", "--json")[1])
    assert found["noise"]["law"] == "gaussian"
    assert "share" in found["noise"]
    assert "scale" not in found["noise"]
    # A delta that is worth more than it costs.
    assert json.loads(run(*asked, "--delta", "0.01", "--json")[1])["noise"]["law"] == "gaussian"


def test_the_table_shows_what_a_student_gets_besides_labels() -> None:
    typed = ("--records", "24000", "--parties", "4", "--epsilon", "1", "--purity", "0.5")
    found = json.loads(run(*typed, "--json")[1])
    for plan in found["plans"]:
        # A label is given where the largest count leads clearly, so it is right more often.
        assert plan["labelled"] * plan["right"] <= plan["top_right"] < 1
    shares = [plan["top_right"] for plan in found["plans"]]
    assert shares == sorted(shares, reverse=True)
    text = " ".join(run(*typed)[1].split())
    assert f"{shares[2]:.1%}" in text
    assert "noisy counts at every representative" in text


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="--unit patient"):
        run("--votes-per-patient", "2")
    with pytest.raises(BudgetError):
        run("--epsilon", "1e-9", "--delta", "1e-12")
    with pytest.raises(UsageError, match="delta above 0"):
        run("--delta", "0", "--noise-law", "gaussian")
    for option, value in (("--delta", "-1"), ("--delta", "1"), ("--epsilon", "0")):
        with pytest.raises(UsageError):
            run(option, value)


def test_more_budget_pays_for_more_representatives() -> None:
    numbers = [default_number(60_000, 9_000, e, 1e-5) for e in (0.05, 0.1, 0.5, 1.0)]
    assert numbers == sorted(numbers)
    assert default_number(60_000, 50, 1.0, 1e-5) == 50  # no more than there are inputs
    assert default_number(60_000, 9_000, 1.0, 1e-5, 4) < default_number(60_000, 9_000, 1.0, 1e-5)


def test_no_representative_is_there_twice() -> None:
    rows = np.array([0.0, 1.0, 0.0, 2.0, 1.0, 5.0])
    public = Table(("x",), (rows,))
    assert first_of_each(public).tolist() == [0, 1, 3, 5]
    said: list[str] = []
    assert choose(public, 6, said.append) == (0, 1, 3, 5)
    assert said == ["choosing 4 representatives of 6 public inputs"]


def test_spread_votes_are_planned_with_the_code_that_the_server_would_take() -> None:
    code, text = run("--records", "60000", "--epsilon", "0.1", "--code", "spread", "--json")
    assert code == 0
    found = json.loads(text)
    usual = default_number(60_000, 10**9, 0.1, 1e-5)
    assert found["server_default"] == 4 * usual
    assert [each["places"] for each in found["plans"]] == [2, 4, 8, 16, 32]
    # The same share of the representatives, and the same noise of all that are taken together.
    right = [each["top_right"] for each in found["plans"]]
    assert max(right) - min(right) < 0.02
    code, text = run("--records", "60000", "--epsilon", "0.1", "--code", "spread")
    assert code == 0
    assert "grows with the square root of the representatives" in " ".join(text.split())
    with pytest.raises(UsageError, match="spread votes are for Gaussian noise"):
        run("--code", "spread", "--delta", "0")
    with pytest.raises(UsageError, match="needs that many representatives, not 100"):
        run("--code", "spread-4000", "--representatives", "100")
    with pytest.raises(UsageError, match="a code is nearest, or spread-K"):
        run("--code", "far")
    with pytest.raises(UsageError, match="dense votes have no cells"):
        run("--code", "dense")
