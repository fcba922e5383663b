"""Dividing records among parties, and the files for the roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images, content_hash
from pate.errors import DataError
from simulation.datasets import deal, digits, digits_like, write_inputs, write_labelled


def test_nobody_holds_what_another_holds() -> None:
    records = digits()
    dealt = deal(records, 4, public=300, test=200)
    hashes = [set(d.row_hashes()) for d in (*dealt.parties, dealt.public, dealt.test)]
    sizes = [len(d) for d in (*dealt.parties, dealt.public, dealt.test)]
    assert sum(sizes) == len(records) == 1797
    assert len(set.union(*hashes)) == sum(len(h) for h in hashes)


def test_made_up_digits_are_as_many_as_wanted_and_like_the_real_ones() -> None:
    made, real = digits_like(3000), digits()
    assert len(made) == 3000
    assert (made.inputs.schema(), made.classes) == (real.inputs.schema(), real.classes)
    assert len(set(made.row_hashes())) == 3000, "no two are the same"
    assert digits_like(3000).row_hashes() == made.row_hashes()
    assert isinstance(made.inputs, Images)
    assert isinstance(real.inputs, Images)
    for label in range(10):
        mean = made.inputs.pixels[made.labels == label].mean(axis=0)
        others = [real.inputs.pixels[real.labels == at].mean(axis=0) for at in range(10)]
        assert int(np.argmin([np.abs(mean - each).sum() for each in others])) == label


def test_too_many_parties_are_refused() -> None:
    with pytest.raises(DataError, match="too few"):
        deal(digits().take(range(20)), 5, public=10, test=8)


def test_records_and_queries_survive_their_files(tmp_path: Path) -> None:
    records = digits().take(range(60))
    write_labelled(tmp_path / "records.npz", records)
    again = read_dataset(tmp_path / "records.npz")
    assert again.row_hashes() == records.row_hashes()
    assert again.classes == records.classes
    made = write_inputs(tmp_path / "public.npz", records.inputs)
    assert content_hash(read_inputs(made)) == content_hash(records.inputs)
