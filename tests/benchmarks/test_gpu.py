"""The benchmark of devices runs; where there is no GPU, on the processor alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_each_device_that_is_here_is_measured(
    test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from benchmarks.scale import gpu

    monkeypatch.setenv("PATE_TEST_DATA", str(test_data))
    found = gpu.run(quick=True)
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    assert [each["device"] for each in found["teachers"]] == devices
    assert [each["device"] for each in found["students"]] == devices
    assert all(each["train_seconds_each"] > 0 for each in found["teachers"])
    assert found["teachers"][0]["accuracy"] > 0.8  # 0.97 by two linear teachers
