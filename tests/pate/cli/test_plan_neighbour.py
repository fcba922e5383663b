"""``pate plan --aggregator neighbour``, and the server's own choice that it shows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator_server.options import CampaignOptions
from pate.campaign.representatives import default_number
from pate.campaign.settings import spec_of
from pate.campaign.terms import matrix_mechanism
from pate.data.values import Images, Table
from pate.errors import BudgetError, UsageError
from pate.mechanisms import DistributedNeighbour
from simulation.cli import app


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", "--aggregator", "neighbour", *options])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_it_shows_what_the_server_would_choose() -> None:
    code, text = run(
        "--expected-records",
        "60000",
        "--parties",
        "5",
        "--epsilon",
        "0.1",
        "--purity",
        "0.95",
        "--json",
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
    assert found["noise"]["counted_shares"] == mechanism.honest == spec.sums.honest
    assert found["noise"]["threshold"] == mechanism.threshold
    assert found["server_default"] == default_number(60_000, 10**9, 0.1, 0.0)
    assert len(found["plans"]) == 5
    assert "removed or altered; observer: public" in found["guarantee"]["in_words"]


def test_the_table_says_what_it_stands_for() -> None:
    code, text = run(
        "--expected-records", "1000", "--parties", "2", "--epsilon", "1", "--delta", "1e-4"
    )
    assert code == 0
    assert "whatever the number of representatives" in " ".join(text.split())
    assert "* as the server would choose" in text
    code, text = run("--expected-records", "1000", "--representatives", "77")
    assert code == 0
    assert "*" not in text
    assert " 77 " in text


def test_both_laws_are_shown_and_either_can_be_stated() -> None:
    asked = ("--expected-records", "1000", "--epsilon", "0.1", "--parties", "5")
    text = " ".join(run(*asked)[1].split())
    assert "epsilon 0.1 at delta 0 (" in text
    assert (
        "noise on each count: geometric, standard deviation 36.51, at delta 0 (Gaussian: 56.14, at "
        "delta 1e-05); 3 shares are counted" in text
    )
    text = " ".join(run(*asked, "--noise-law", "gaussian")[1].split())
    assert "epsilon 0.1 at delta 1e-05 (" in text
    assert (
        "Gaussian, standard deviation 56.14, at delta 1e-05 (geometric: 36.51, at delta 0)" in text
    )
    found = json.loads(run(*asked, "--noise-law", "gaussian", "--json")[1])
    assert found["noise"]["law"] == "gaussian"
    assert "share" in found["noise"]
    assert "scale" not in found["noise"]
    # A delta that is worth more than it costs.
    assert json.loads(run(*asked, "--delta", "0.01", "--json")[1])["noise"]["law"] == "gaussian"


def test_the_table_shows_what_a_student_gets_besides_labels() -> None:
    typed = ("--expected-records", "24000", "--parties", "4", "--epsilon", "1", "--purity", "0.5")
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
    with pytest.raises(UsageError, match="two laws of noise"):
        run("--delta", "0", "--noise-law", "gaussian")
    for option, value in (("--delta", "-1"), ("--delta", "1"), ("--epsilon", "0")):
        with pytest.raises(UsageError):
            run(option, value)


@pytest.mark.parametrize(("answer", "labels"), [("class", None), ("labels-2", 0)])
def test_labels_of_directions_are_not_planned(answer: str, labels: int | None) -> None:
    """Directions get labels by how the public set lies; other answers never do."""
    typed = ("--code", "dense-16", "--answer", answer, "--epsilon", "1")
    assert [each["labels"] for each in json.loads(run(*typed, "--json")[1])["plans"]] == [labels]
    text = " ".join(run(*typed)[1].split())
    assert ("How many directions get a label" in text) == (labels is None)


@pytest.mark.parametrize("answer", ["class", "labels-2", "ordered", "number"])
@pytest.mark.parametrize("code", ["nearest", "dense", "dense-16"])
def test_the_server_named_has_the_code_and_noise_that_are_shown(code: str, answer: str) -> None:
    """With its own words on the screen, and all from public numbers."""
    typed = ["--code", code, "--answer", answer, "--epsilon", "0.5", "--expected-records", "6000"]
    done, text = run(*typed, "--json")
    assert done == 0
    found = json.loads(text)
    rng = np.random.default_rng(4)
    public = Table(("x", "y"), (rng.normal(size=900), rng.normal(size=900)))
    words = shlex.split(found["server"])
    assert words[:3] == ["pate-server", "--aggregator", "neighbour"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    given = {name[2:].replace("-", "_"): value for name, value in options.items()}
    said: list[str] = []
    spec = spec_of(
        CampaignOptions(
            aggregator="neighbour",
            parties=given.pop("parties"),
            epsilon=float(given.pop("epsilon")),
            delta=float(given.pop("delta")),
            expected_records=int(given.pop("expected_records")),
            classes=None if answer == "number" else ",".join(f"c{at}" for at in range(10)),
            range="0,14" if answer == "number" else None,
            **given,  # type: ignore[arg-type]
        ),
        public,
        say=said.append,
        chosen=lambda _, number, __: tuple(range(number)),
    )
    assert found["code"] == spec.code
    assert found["server_default"] == len(spec.representatives or ())
    noise, mechanism = found["noise"], matrix_mechanism(spec, 1)
    assert isinstance(mechanism, DistributedNeighbour)
    assert noise.get("scale") == (None if mechanism.scale is None else str(mechanism.scale))
    assert noise.get("share") == (None if mechanism.share is None else str(mechanism.share))
    assert noise["threshold"] == mechanism.threshold
    assert found["guarantee"]["delta"] == spec.delta
    shown = " ".join(run(*typed)[1].split())
    assert said[-1] in shown
    assert "The same campaign: pate-server --aggregator neighbour" in shown
    row = next(
        each for each in found["plans"] if each["representatives"] == found["server_default"]
    )
    columns = {"number": 2, "labels-2": 11}.get(answer, 10)
    if "error" in row:
        assert row["noise"] == pytest.approx(noise["carried_sigma"])
        assert row["counts"] == len(spec.representatives or ()) * columns
    else:
        assert answer in ("class", "ordered")
        assert not code.startswith("dense")


def test_more_points_of_a_number_are_more_counts_and_more_noise_in_a_mean() -> None:
    plans = {}
    for text in (None, "0,14", "0,7,14", "0,1,14"):
        typed = [] if text is None else ["--range", text]
        done, said = run("--answer", "number", "--representatives", "100", *typed, "--json")
        assert done == 0
        found = json.loads(said)
        assert (f"--range {text}" in found["server"]) == (text is not None)
        (plans[text],) = [row for row in found["plans"] if row["representatives"] == 100]
    assert plans[None] == plans["0,14"]
    assert plans["0,14"]["counts"] == 200
    assert plans["0,7,14"]["counts"] == 300
    # Weights of the noise: at an end 0, 1/2 and 1; or 1, 13/14 and 0.
    for text, more in (("0,7,14", 5 / 4), ("0,1,14", 1 + (13 / 14) ** 2)):
        assert plans[text]["error"] == pytest.approx(plans["0,14"]["error"] * more**0.5)
        assert plans[text]["noise"] == plans["0,14"]["noise"]
    for wrong in (["--range", "0,14"], ["--answer", "number", "--range", "3,1"]):
        with pytest.raises(UsageError, match="range"):
            run(*wrong)


def test_a_public_set_bounds_the_representatives(tmp_path: Path) -> None:
    place = tmp_path / "public.csv"
    place.write_text("x,y\n" + "".join(f"{at % 30},1\n" for at in range(60)), encoding="utf-8")
    found = json.loads(run("--public", str(place), "--code", "dense", "--json")[1])
    assert (found["code"], found["server_default"]) == ("dense-30", 30)
    assert max(each["representatives"] for each in found["plans"]) == 30
    with pytest.raises(UsageError, match="has 30 different inputs, not 31"):
        run("--public", str(place), "--representatives", "31")


def test_answers_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="needs 3 labels or more"):
        run("--answer", "labels-3", "--classes", "2")
    with pytest.raises(UsageError, match="an answer is class"):
        run("--answer", "labels")
    for code in ("dense-1025", "far"):
        with pytest.raises(UsageError, match="from 2 to"):
            run("--code", code)
    with pytest.raises(UsageError, match="needs that many representatives"):
        run("--code", "dense-64", "--representatives", "65")
