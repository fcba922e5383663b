"""The made-up tables, and the training of the network that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import party.teachers
from party.teachers import by_records

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.prior import Batch


def drawn(seed: int) -> Batch:
    import torch

    from benchmarks import prior

    return prior.draw(torch.Generator().manual_seed(seed))


def test_tables_are_varied_and_finite() -> None:
    import torch

    from benchmarks import prior

    batches = [drawn(seed) for seed in range(12)]
    for batch in batches:
        count, known = batch.labels.shape
        assert batch.values.shape[:2] == (count, known + prior.ASKED)
        assert batch.chances.shape == (count, prior.ASKED)
        assert not batch.values.isinf().any()
        assert ((batch.chances >= 0) & (batch.chances <= 1)).all()
        assert set(batch.labels.flatten().tolist()) == {0, 1}
    missing = [float(batch.values.isnan().float().mean()) for batch in batches]
    assert 0.01 < np.mean(missing) < 0.3
    assert len({batch.values.shape for batch in batches}) > 6
    # Neither class is the rule, and binary columns and plain ones occur.
    assert abs(np.mean([float(batch.chances.mean()) for batch in batches]) - 0.5) < 0.1
    values = torch.cat([batch.values.nan_to_num().flatten() for batch in batches])
    assert 0.02 < float((values == 1).float().mean()) < 0.5


def test_a_seed_decides_the_tables() -> None:
    import torch

    one, other = drawn(3), drawn(3)
    assert torch.equal(one.values.nan_to_num(9), other.values.nan_to_num(9))
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(one.chances, other.chances)


def test_the_rate_rises_stays_and_falls() -> None:
    from benchmarks.prior import RATES, rate

    assert rate(0, RATES) == pytest.approx(1 / 300)
    assert [rate(step, RATES) for step in (299, 1_000, 2_000)] == [1, 1, 1]
    assert rate(4_750, RATES) == pytest.approx(0.3)
    assert rate(5_500, RATES) == 0


def test_a_resumed_training_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from benchmarks import prior

    monkeypatch.setattr(prior, "_CELLS", 2_000)
    monkeypatch.setattr(prior, "_TABLES", (2, 4))
    monkeypatch.setattr(prior, "_SAVE", 2)
    monkeypatch.setattr(prior, "_REPORT", 2)
    rates = ((-1, 0.0), (1, 1.0), (4, 0.0))
    threads = torch.get_num_threads()
    try:
        whole = prior.train(tmp_path / "a", seed=5, rates=rates)
        middle = tmp_path / "a" / "step-000002.pt"
        rest = prior.train(tmp_path / "b", seed=5, rates=rates, resume=middle)
    finally:
        torch.set_num_threads(threads)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, rest.state_dict()[name]), name
    assert '"step": 4' in (tmp_path / "b" / "log.jsonl").read_text()
    # What is exported is what the package loads, to the last byte.
    monkeypatch.setattr(party.teachers, "__path__", [str(tmp_path)])
    digest = prior.export(tmp_path / "b" / "step-000004.pt")
    content = (tmp_path / by_records.NAME).read_bytes()
    assert prior.export(tmp_path / "a" / "step-000004.pt") == digest
    monkeypatch.setattr(by_records, "DIGEST", digest)
    by_records.check_weights(content)
