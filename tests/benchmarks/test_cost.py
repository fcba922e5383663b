"""What costs are measured by: exact sums, a party's own step, and a campaign of processes."""

from __future__ import annotations

import json
import tomllib

import pytest

from benchmarks import cost
from benchmarks.__main__ import main
from benchmarks.record import RESULTS, ROOT


def test_a_masked_sum_is_exact_and_its_bytes_are_counted() -> None:
    size = cost.Size(5, 40)
    plain, masked = cost.plain_sum(size), cost.masked_sum(size)  # sums are compared there
    assert list(masked["bytes"]) == ["keys", "shares", "mask", "sign_survivors", "unmask"]
    assert masked["bytes"]["mask"] == 40 * 10 * size.bits // 8
    assert masked["party_bytes"] > plain["party_bytes"] >= 400
    assert masked["party_seconds"] > 0
    assert masked["server_seconds"] > 0
    assert cost.masked_sum(size, lost=1)["bytes"].keys() == masked["bytes"].keys()


@pytest.mark.slow
def test_the_accountant_says_what_the_paper_says() -> None:
    (found,) = cost.accounting(quick=True).values()  # figures are compared there
    assert found["theorem6"] > found["one query at a time"]


@pytest.mark.slow
def test_a_campaign_is_measured_at_its_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "campaign", "--quick"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parties"], found["queries"]) == (3, 200)
    assert found["server_seconds"] > 0
    assert found["server_memory_peak"] >= found["server_memory_before"] > 0
    assert found["bytes_up"] > 3 * 200 * 10 // 2, "masked votes of half a byte or more"
    assert found["bytes_down"] > 0


def test_figures_that_were_measured_once_are_still_on_their_pages() -> None:
    told = tomllib.loads((RESULTS / "measured.toml").read_text(encoding="utf-8"))
    for each in told["figure"]:
        assert each["text"] in (ROOT / each["page"]).read_text(encoding="utf-8"), each
        assert each["program"].startswith("benchmarks/")
        assert each["method"]
