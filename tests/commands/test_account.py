"""``pate account``: the figures of the papers beside ours, and errors that say what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pate.commands.cli import app
from pate.errors import AccountingError, DataError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

CONFIDENT = ("--threshold", "200", "--sigma1", "150", "--sigma2", "40")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["account", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def published(test_data: Path, name: str) -> str:
    return str(test_data / "pate_votes" / f"{name}_250_teachers.npy")


@pytest.mark.parametrize(
    ("name", "options", "paper", "most"),
    [
        (
            "mnist",
            ("--threshold", "200", "--sigma1", "150", "--queries", "640"),
            (1.999, 1.712),
            1.25,
        ),
        (
            "svhn",
            ("--threshold", "300", "--sigma1", "200", "--queries", "8500", "--delta", "1e-6"),
            (4.915, 4.450),
            3.30,
        ),
        (
            "adult",
            ("--threshold", "300", "--sigma1", "200", "--queries", "1500"),
            (1.678, 1.414),
            1.10,
        ),
    ],
)
def test_the_published_runs(
    test_data: Path, name: str, options: tuple[str, ...], paper: tuple[float, float], most: float
) -> None:
    found = run(
        "--votes", published(test_data, name), "--mechanism", "confident-gnmax",
        "--sigma2", "40", *options,
    )  # fmt: skip
    bounds = found["bounds"]
    assert bounds["paper-2018"]["classical"] == pytest.approx(paper[0], abs=5e-4)
    assert bounds["paper-2018"]["improved"] == pytest.approx(paper[1], abs=5e-4)
    assert 1.0 < bounds["sharp"]["improved"] <= most
    assert bounds["sharp"]["improved"] < bounds["theorem6"]["improved"]
    assert bounds["independent"]["exact"] < bounds["independent"]["improved"]
    assert "NOT a bound" in bounds["paper-2018"]["meaning"]
    assert (found["unit"], found["observer"]) == ("record", "public")


def test_the_published_run_of_2017(test_data: Path) -> None:
    found = run(
        "--votes", published(test_data, "svhn"), "--mechanism", "lnmax", "--gamma", "0.1",
        "--queries", "1000", "--delta", "1e-6",
    )  # fmt: skip
    assert found["answered"] == 1000
    assert found["bounds"]["paper-2017"]["classical"] == pytest.approx(8.192, abs=5e-4)
    assert found["bounds"]["sharp"]["improved"] <= 5.0


def test_the_noise_of_a_campaign_costs_hardly_more_and_a_party_costs_much_more(
    tmp_path: Path,
) -> None:
    votes = np.random.default_rng(3).multinomial(250, [0.8, 0.1, 0.1], size=100)
    np.save(tmp_path / "votes.npy", votes)
    options = ("--votes", str(tmp_path / "votes.npy"), *CONFIDENT, "--bounds", "sharp")
    plain = run(*options)["bounds"]["sharp"]["improved"]
    drawn = run(*options, "--noise", "discrete")["bounds"]["sharp"]["improved"]
    assert plain < drawn < 1.01 * plain
    party = run(*options, "--unit", "party", "--votes-per-unit", "5")
    assert party["bounds"]["sharp"]["improved"] > 3 * plain
    assert party["adjacency"].startswith("5 of the votes")


def test_interactive_looks_at_margins(tmp_path: Path) -> None:
    votes = np.random.default_rng(3).multinomial(250, [0.8, 0.1, 0.1], size=100)
    np.save(tmp_path / "votes.npy", votes)
    options = (
        "--votes", str(tmp_path / "votes.npy"), "--mechanism", "interactive-gnmax",
        "--threshold", "100", "--sigma1", "30", "--sigma2", "40",
    )  # fmt: skip
    answered = []
    for name, row in (("same", [0.8, 0.1, 0.1]), ("other", [0.1, 0.8, 0.1])):
        np.save(tmp_path / f"{name}.npy", np.tile(np.array(row), (100, 1)))
        answered.append(run(*options, "--predictions", str(tmp_path / f"{name}.npy"))["answered"])
    assert answered[0] < 1 < 95 < answered[1]


def test_the_table_says_what_each_figure_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    np.save(tmp_path / "votes.npy", np.array([[200, 30, 20], [90, 80, 80]]))
    result = CliRunner().invoke(
        app, ["account", "--votes", str(tmp_path / "votes.npy"), *CONFIDENT], catch_exceptions=False
    )
    text = " ".join(result.stdout.split())
    for words in ("NOT a bound", "unit: record", "adjacency: 1 of the votes", "observer: public"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--mechanism", "gnmax"), UsageError, "needs --sigma2"),
        (("--mechanism", "gnmax", "--sigma2", "40", "--sigma1", "3"), UsageError, "no --sigma1"),
        (("--mechanism", "lnmax"), UsageError, "--scale"),
        (("--mechanism", "lnmax", "--gamma", "0"), UsageError, "above 0"),
        (("--mechanism", "vote"), UsageError, "--mechanism is one of"),
        ((*CONFIDENT, "--queries", "3"), UsageError, "the file has 2 rows"),
        ((*CONFIDENT, "--bounds", "theorem3"), UsageError, "no bound 'theorem3'"),
        ((*CONFIDENT, "--bounds", "best"), UsageError, "unknown bound"),
        ((*CONFIDENT, "--votes-per-unit", "2"), UsageError, "--unit party"),
        ((*CONFIDENT, "--unit", "hospital"), UsageError, "--unit"),
        ((*CONFIDENT, "--adjacency", "swap"), UsageError, "adjacency"),
        ((*CONFIDENT, "--noise", "none"), UsageError, "--noise"),
        ((*CONFIDENT, "--delta", "0"), AccountingError, "delta"),
        (("--mechanism", "gnmax", "--sigma2", "nan"), AccountingError, "sigma"),
        (("--mechanism", "interactive-gnmax", *CONFIDENT), UsageError, "--predictions"),
    ],
)
def test_errors(
    tmp_path: Path, arguments: tuple[str, ...], error: type[Exception], message: str
) -> None:
    np.save(tmp_path / "votes.npy", np.array([[200, 30, 20], [90, 80, 80]]))
    with pytest.raises(error, match=message):
        run("--votes", str(tmp_path / "votes.npy"), *arguments)


def test_a_file_that_is_no_votes(tmp_path: Path) -> None:
    (tmp_path / "votes.npy").write_bytes(b"not numpy")
    with pytest.raises(DataError):
        run("--votes", str(tmp_path / "votes.npy"), *CONFIDENT)
