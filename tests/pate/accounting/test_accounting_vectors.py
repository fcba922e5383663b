"""The accountant against independent figures with 50 digits, where their files are available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.accounting.account import LaplaceSetting, account
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from tests.support.accounting.vectors import OPS, main, problems

Case = dict[str, Any]

#: Figures of noise that no campaign draws, of one that its event bounds in another way, and of the
#: noisy release that the gate is better than.
NOT_OURS = {
    "server_view_rdp", "skellam_rdp", "dgauss_rdp", "skellam_logtail",
    "gnmax_logq0", "gnmax_ls", "gnmax_smooth_sensitivity", "threshold_ls", "gnss_cost",
}  # fmt: skip

#: Best orders of the published runs are among them.
ORDERS = np.arange(1.5, 33.0, 0.5)


def read(test_data: Path, name: str) -> list[Case]:
    file = test_data.parent / "vectors" / name
    if not file.is_file():
        pytest.skip(f"the file of vectors {name} is not here")
    cases: list[Case] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return cases


def test_single_figures(test_data: Path) -> None:
    cases = [each for each in read(test_data, "accounting.json") if each["op"] not in NOT_OURS]
    assert len(cases) > 30
    assert {case["op"] for case in cases} <= set(OPS)
    assert [f"{case['id']}: {line}" for case in cases for line in problems(case)] == []


def test_a_case_of_another_operation_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {
        "id": "R", "op": "gauss_delta", "inputs": {"mu": 1.0, "eps": 1e9}, "expected": {"delta": 0},
        "tol": {"abs": 1e-9, "rel": 0}, "kind": "close",
    }  # fmt: skip
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [right, {**right, "id": "G", "op": "gone"}, {"T": 200}]}))
    assert main([str(file)]) == 0
    said = capsys.readouterr().out
    assert "G: no such operation: gone" in said
    assert "case 2: no such operation" in said
    assert "in all: 1 passed, 0 failed, 2 no such operation" in said
    wrong = {**right, "expected": {"delta": 1}}
    del wrong["id"]
    file.write_text(json.dumps({"cases": [wrong]}))
    assert main([str(file)]) == 1
    assert "case 0: delta" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["mnist", "svhn", "adult"])
def test_published_votes(test_data: Path, dataset: str) -> None:
    (case,) = (c for c in read(test_data, "published_votes.json") if c["dataset"] == dataset)
    votes = np.load(test_data / "pate_votes" / case["file"], allow_pickle=False)
    rows = votes[: case["rows_used"]]
    setting = GaussianSetting(
        label=Gaussian(case["sigma2"]), check=Gaussian(case["sigma1"]), threshold=case["T"]
    )
    found = account(
        rows,
        setting,
        delta=case["delta"],
        neighbours=Neighbours(),
        orders=ORDERS,
    )
    close = pytest.approx
    assert found.answered == close(case["expected_answered"], rel=1e-8)
    paper, expected = found.figures["paper-2018"], found.figures["expected"]
    assert paper.classical == close(case["eps_reference_classical"], rel=1e-8)
    assert paper.improved == close(case["eps_improved_conversion"], rel=1e-8)
    assert paper.best_orders == (case["order"], case["order_improved"])
    at = dict(zip(paper.orders, paper.rdp, strict=True))
    wanted = zip(case["rdp_orders"], case["rdp_reference_expected"], strict=True)
    for order, value in wanted:
        assert at[order] == close(float(value), rel=1e-8)
    assert expected.classical == close(case["eps_data_independent_classical"], rel=1e-8)
    assert expected.exact == close(case["eps_data_independent_gdp_exact"], rel=1e-8)
    # The bound by outcomes is below even the expected cost by Theorem 6+, which is no bound.
    sharp = found.figures["sharp"].improved
    assert 0.9 < sharp / case["eps_plus_expected_improved"] < 0.99
    assert sharp < found.figures["theorem6"].improved


@pytest.mark.parametrize("dataset", ["mnist", "svhn", "adult"])
def test_published_votes_by_lnmax(test_data: Path, dataset: str) -> None:
    (case,) = (c for c in read(test_data, "published_votes.json") if c["dataset"] == dataset)
    votes = np.load(test_data / "pate_votes" / case["file"], allow_pickle=False)
    for given in case["lnmax"]:
        found = account(
            votes[: given["queries"]],
            LaplaceSetting(gamma=given["gamma"]),
            delta=case["delta"],
            neighbours=Neighbours(),
        )
        assert found.figures["paper-2017"].classical == pytest.approx(given["eps"], rel=1e-8)
        # All orders and the better conversion only help.
        assert found.figures["sharp"].improved < given["eps_plus_same_moments"]
        same = account(
            votes[: given["queries"]],
            LaplaceSetting(gamma=given["gamma"]),
            delta=case["delta"],
            neighbours=Neighbours(),
            bounds=("sharp",),
            orders=np.arange(2.0, 10.0),
        )
        assert same.figures["sharp"].classical == pytest.approx(
            given["eps_plus_same_moments"], rel=1e-8
        )
