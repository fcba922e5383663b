"""Invalid public values are reported before a release is reserved: nothing is charged."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.synthesis.release import parquet
from party.synthesis.release.ledger_entry import entry_of
from party.synthesis.release.parquet import KEY, About, Source
from party.synthesis.release.plan import MOST_CELLS, ReleaseRequest, check_size, plan_of
from party.synthesis.release.release import Places, release, release_again
from party.synthesis.table.coding import decode
from party.synthesis.table.domain import Attribute, Domain
from party.synthesis.table.randomness import SystemRandomness
from pate.data.limits import MAX_BYTES
from pate.errors import DataError, InfeasibleError, PateError, UsageError
from pate.noise.exact import SystemNoise
from tests.support.party.domains import small

if TYPE_CHECKING:
    from pathlib import Path

    from party.synthesis.release.release import Made

SEEDED = ReleaseRequest(rows=4, method="cfs", release="seeded", k=50, attempts=5)
LABEL_ALONE = Domain((Attribute("ill", ("no", "yes"), (0, 1)),), 2, "ill")


def make(folder: Path, asked: ReleaseRequest, domain: Domain) -> Made:
    """Plan and make a release in a folder."""
    plan = plan_of(asked, domain)
    return release(
        plan,
        entry_of(plan, domain, "record", "00" * 32),
        np.zeros((50, len(domain)), dtype=np.intp),
        domain,
        ledger=PartyLedger(folder / LEDGER_FILE),
        places=Places(out=folder / "a.parquet", model_out=folder / "m.npz"),
        noise=SystemNoise(),
        randomness=SystemRandomness(),
    )


def check_nothing_is_paid(folder: Path, asked: ReleaseRequest, domain: Domain) -> PateError:
    """Return the error of a release of which nothing may stand in the ledger."""
    with pytest.raises(PateError) as found:
        make(folder, asked, domain)
    assert not PartyLedger(folder / LEDGER_FILE).syntheses()
    assert not list(folder.glob("*.parquet"))
    return found.value


def test_a_release_that_can_be_is_paid(tmp_path: Path) -> None:
    made = make(tmp_path, ReleaseRequest(rows=2), small())
    assert len(made.rows) == 2
    assert len(PartyLedger(tmp_path / LEDGER_FILE).syntheses()) == 1


@pytest.mark.parametrize(
    ("asked", "kind", "words"),
    [
        (replace(SEEDED, rows=1_000_000, attempts=None), UsageError, "attempts must be from 1 to"),
        (replace(SEEDED, resampled=(1, 2), gamma=Fraction("1.0005")), UsageError, "at least 1.001"),
        (replace(SEEDED, k=10_000), InfeasibleError, "k = 10000 is more than the"),
        (replace(SEEDED, k=0), UsageError, "k counts records"),
    ],
)
def test_a_test_that_cannot_be(
    tmp_path: Path, asked: ReleaseRequest, kind: type[PateError], words: str
) -> None:
    domain = replace(small(), min_rows=2_000)
    error = check_nothing_is_paid(tmp_path, asked, domain)
    assert isinstance(error, kind)
    assert words in str(error)


def test_a_gamma_near_1_is_fine_where_all_rows_resample_one_number() -> None:
    domain = replace(small(), min_rows=40_000)
    plan_of(replace(SEEDED, resampled=(1,), gamma=Fraction("1.0005")), domain)


def test_a_label_alone_leaves_no_column(tmp_path: Path) -> None:
    error = check_nothing_is_paid(tmp_path, ReleaseRequest(rows=2), LABEL_ALONE)
    assert "without --keep-label" in str(error)
    Places(out=tmp_path / "a.parquet", keep_label=True).check_columns(LABEL_ALONE)
    with pytest.raises(UsageError, match="without --keep-label"):
        _again(tmp_path, ReleaseRequest(rows=2), LABEL_ALONE)


def test_more_cells_than_can_be_held(tmp_path: Path) -> None:
    codes = tuple(f"{at}" + "x" * 250 for at in range(3))
    wide = Domain(tuple(Attribute(f"c{at}", ("a", "b"), (0, 1)) for at in range(128)), 2, None)
    long = Domain((Attribute("c", codes, (0, 1, 2)),), 2, None)
    cell = 4 * 251  # bytes of a text of 251 characters in an array
    for domain, most in ((wide, MOST_CELLS // 128), (long, MAX_BYTES // cell)):
        error = str(check_nothing_is_paid(tmp_path, ReleaseRequest(rows=10**7), domain))
        assert f"at most {most} rows fit in one file" in error
        check_size(ReleaseRequest(rows=most), domain)
        with pytest.raises(UsageError, match="rows fit in one file"):
            check_size(ReleaseRequest(rows=most + 1), domain)
    assert decode(np.zeros((1, 1), dtype=np.intp), long).columns[0].itemsize == cell
    with pytest.raises(UsageError, match="rows fit in one file"):
        _again(tmp_path, ReleaseRequest(rows=10**7), wide)
    check_size(ReleaseRequest(rows=10**7), small())


def _again(folder: Path, asked: ReleaseRequest, domain: Domain) -> None:
    """Ask a model that is not there for rows: the error comes before it is looked for."""
    release_again(
        asked,
        folder / "none.npz",
        domain,
        ledger=PartyLedger(folder / LEDGER_FILE),
        places=Places(out=folder / "b.parquet"),
        randomness=SystemRandomness(),
    )


def test_two_names_of_one_place(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    for other in ("d/a.parquet", "d/../d/a.parquet", "link/a.parquet"):
        with pytest.raises(UsageError, match="the same file"):
            Places(out=tmp_path / "d" / "a.parquet", model_out=tmp_path / other)
    Places(out=tmp_path / "d" / "a.parquet", model_out=tmp_path / "d" / "a.npz")


def test_a_file_of_others_is_read_only_if_its_rows_are_those_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(
        method="l1", release="seedless", epsilon=1.0, delta=0.0, unit="record",
        neighbours="add or remove one record", version="1", rows=3,
    )  # fmt: skip
    held = pa.table({"a": ["x"] * 4}).replace_schema_metadata(
        {KEY: About("ab" * 32, (source,)).to_json()}
    )
    pq.write_table(held, tmp_path / "a.parquet")
    monkeypatch.delattr(parquet, "read_parquet")
    with pytest.raises(DataError, match="not have the stated number of rows"):
        parquet.read(tmp_path / "a.parquet")
