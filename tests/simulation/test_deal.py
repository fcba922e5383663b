"""Dividing records among parties, and the files for the roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images, content_hash
from pate.errors import DataError
from pate.runtime.screen import Screen
from simulation.datasets import deal, digits, digits_like, write_inputs, write_labelled
from simulation.options import SimulationOptions
from simulation.simulate import _dealt


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


@pytest.mark.parametrize(("parties", "each"), [(100, 9), (300, 10)])
def test_no_party_of_a_simulation_has_one_class_only(parties: int, each: int) -> None:
    """300 parties of three real digits would: then digits are made, ten for each."""
    setting = SimulationOptions(parties=parties, teachers=1)
    dealt = _dealt(setting, None, Screen("pate"))
    assert min(map(len, dealt.parties)) == each
    # A party of ten digits has one class with chance 1e-9.
    assert all(len(set(part.labels.tolist())) > 1 for part in dealt.parties)


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
