"""Releases: what is planned and paid, the order of a release, its files, and its report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.synthesis import files
from party.synthesis.files import KEY, About, Source, merge, read
from party.synthesis.options import ReleaseRequest
from party.synthesis.plan import MOST_CELLS, Plan, check_size, plan_of
from party.synthesis.release import Made, Places, release, release_again
from party.synthesis.schema import Attribute, Domain
from party.synthesis.table import decode
from pate.accounting.filters import Delta
from pate.data.limits import MAX_BYTES
from pate.data.values import Table
from pate.errors import DataError, InfeasibleError, PateError, UsageError
from pate.noise.exact import Randomness, SystemNoise
from tests.support.party.domains import small
from tests.support.simulated_noise import SimulatedNoise

SEEDED = ReleaseRequest(rows=4, method="cfs", release="seeded", k=50, attempts=5)
FOUR = ReleaseRequest(rows=4)
LABEL_ALONE = Domain((Attribute("ill", ("no", "yes"), (0, 1)),), 2, "ill")


def make(folder: Path, plan: Plan, name: str = "a", *, source: Randomness | None = None) -> Made:
    """Make a release in a folder."""
    return release(
        plan,
        plan.entry("record", "00" * 32),
        np.zeros((50, len(plan.domain)), dtype=np.intp),
        ledger=PartyLedger(folder / LEDGER_FILE),
        places=Places(out=folder / f"{name}.parquet", model_out=folder / f"{name}.safetensors"),
        source=source or SystemNoise(),
    )


def again(folder: Path, rows: int, domain: Domain) -> None:
    """Ask a model that is not there for rows: the error comes before it is looked for."""
    release_again(
        rows,
        folder / "none.safetensors",
        domain,
        ledger=PartyLedger(folder / LEDGER_FILE),
        places=Places(out=folder / "b.parquet"),
        source=SystemNoise(),
    )


def check_nothing_is_paid(folder: Path, asked: ReleaseRequest, domain: Domain) -> PateError:
    """Return the error of a release of which nothing may stand in the ledger."""
    with pytest.raises(PateError) as found:
        make(folder, plan_of(asked, domain))
    assert not PartyLedger(folder / LEDGER_FILE).syntheses()
    assert not list(folder.glob("*.parquet"))
    return found.value


# --- what is planned -----------------------------------------------------------------------------


def test_the_cost_is_the_dearer_of_model_and_seeds() -> None:
    domain = replace(small(), min_rows=20_000)
    asked = replace(SEEDED, epsilon=Fraction(1, 2))
    plan = plan_of(asked, domain)
    assert plan.total is not None
    assert plan.rho == plan.total.rho > plan.price.rho
    assert plan.total.rho_delta < plan.delta < asked.delta
    dear = plan_of(replace(asked, epsilon=Fraction(50)), domain)
    assert dear.rho >= dear.price.rho > plan.rho
    assert plan.figure[0] == pytest.approx(float(plan.total.epsilon))
    assert plan.figure[1] == 1e-6


def test_that_too_few_rows_became_seeds_is_in_delta() -> None:
    asked = replace(SEEDED, k=3000, epsilon0=Fraction(1, 100))
    plan = plan_of(asked, replace(small(), min_rows=20_000))
    assert plan.total is not None
    assert plan.delta == plan.total.rho_delta + asked.delta / 100 > plan.price.delta
    assert plan.delta <= asked.delta


@pytest.mark.parametrize("epsilon", ["0.123456789012", "1.234567890123", "99.999999999999"])
def test_a_cost_can_be_entered_however_many_digits_it_has(epsilon: str) -> None:
    plan = plan_of(ReleaseRequest(rows=2, epsilon=Fraction(epsilon)), small((3,)))
    entry = plan.entry("record", "00" * 32)
    assert plan.price.rho <= entry.rho < plan.price.rho * (1 + Fraction(1, 10**15))


def test_k_and_gamma_are_told_of_seedless_rows_only_where_they_hold() -> None:
    domain = small()  # of which a party has ten rows
    for changes, told in (
        ({"k": domain.min_rows}, True),
        ({"k": domain.min_rows + 1}, False),
        ({"k": 0}, False),
        ({"k": 2, "gamma": Fraction(1)}, False),
    ):
        kept = plan_of(replace(FOUR, **changes), domain).entry("record", "00" * 32).settings
        assert ("k" in kept) == ("gamma" in kept) == told


def test_plain_figures() -> None:
    assert plan_of(replace(FOUR, epsilon=Fraction(2)), small()).figure == (2.0, 0.0)
    found = plan_of(replace(FOUR, method="cfs"), small()).figure
    assert 0.2 < found[0] <= 1
    assert found[1] == 1e-6


# --- what cannot be is not paid for --------------------------------------------------------------


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
    for rows in (2_000, 2):  # what makes no sense is told first, also where no seed is sure
        error = check_nothing_is_paid(tmp_path, asked, replace(small(), min_rows=rows))
        if rows == 2_000 or kind is UsageError:
            assert isinstance(error, kind)
            assert words in str(error)


def test_a_gamma_near_1_is_fine_where_all_rows_resample_one_number() -> None:
    domain = replace(small(), min_rows=40_000)
    plan_of(replace(SEEDED, resampled=(1,), gamma=Fraction("1.0005")), domain)


def test_a_label_alone_leaves_no_column(tmp_path: Path) -> None:
    error = check_nothing_is_paid(tmp_path, ReleaseRequest(rows=2), LABEL_ALONE)
    assert "without --keep-label" in str(error)
    assert Places(out=tmp_path / "a.parquet", keep_label=True).columns(LABEL_ALONE) == [0]
    with pytest.raises(UsageError, match="without --keep-label"):
        again(tmp_path, 2, LABEL_ALONE)


def test_more_cells_than_can_be_held(tmp_path: Path) -> None:
    codes = tuple(f"{at}" + "x" * 250 for at in range(3))
    wide = Domain(tuple(Attribute(f"c{at}", ("a", "b"), (0, 1)) for at in range(128)), 2, None)
    long = Domain((Attribute("c", codes, (0, 1, 2)),), 2, None)
    cell = 4 * 251  # bytes of a text of 251 characters in an array
    for domain, most in ((wide, MOST_CELLS // 128), (long, MAX_BYTES // cell)):
        error = str(check_nothing_is_paid(tmp_path, ReleaseRequest(rows=10**7), domain))
        assert f"at most {most} rows fit in one file" in error
        check_size(most, domain)
        with pytest.raises(UsageError, match="rows fit in one file"):
            check_size(most + 1, domain)
    assert decode(np.zeros((1, 1), dtype=np.intp), long).columns[0].itemsize == cell
    with pytest.raises(UsageError, match="rows fit in one file"):
        again(tmp_path, 10**7, wide)
    check_size(10**7, small())


def test_two_names_of_one_place(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    for other in ("d/a.parquet", "d/../d/a.parquet", "link/a.parquet"):
        with pytest.raises(UsageError, match="the same file"):
            Places(out=tmp_path / "d" / "a.parquet", model_out=tmp_path / other)
    Places(out=tmp_path / "d" / "a.parquet", model_out=tmp_path / "d" / "a.safetensors")


def test_nothing_leaves_with_seeded_noise(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gives no protection"):
        make(tmp_path, plan_of(FOUR, small()), source=SimulatedNoise(1))
    assert not PartyLedger(tmp_path / LEDGER_FILE).syntheses()
    assert not list(tmp_path.glob("*.parquet"))


# --- a release -----------------------------------------------------------------------------------


def test_the_same_data_give_other_rows_each_time(tmp_path: Path) -> None:
    """Noise is never derived from what is public; nor do two releases share any."""
    made = [make(tmp_path, plan_of(FOUR, small()), name) for name in "ab"]
    assert [len(each.rows) for each in made] == [4, 4]
    assert len({each.model for each in made}) == 2
    assert len(PartyLedger(tmp_path / LEDGER_FILE).syntheses()) == 2


class _Dies(SystemNoise):
    def laplace(self, scale: Fraction, count: int) -> Any:
        raise MemoryError


def test_what_fails_after_the_reservation_counts(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        make(tmp_path, plan_of(FOUR, small()), source=_Dies())
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    (record,) = ledger.syntheses()
    assert record.synthesis.epsilon == 1
    assert record.spent_at is None
    assert ledger.cumulative_epsilon(Delta(1e-5)).epsilon > 0


# --- files ---------------------------------------------------------------------------------------

SOURCE = Source(
    method="l1", release="seedless", epsilon=1.0, delta=0.0, unit="record",
    neighbours="add or remove one record", version="0.1.0", rows=3,
)  # fmt: skip
TABLE = Table(
    ("age", "ward"), (np.array([30.0, np.nan, 41.5]), np.array(["a", "", "c"], dtype=np.str_))
)
ABOUT = About("ab" * 32, (SOURCE,))


def written(folder: Path, name: str, table: Table, about: About) -> Path:
    path = folder / name
    path.write_bytes(files.to_bytes(table, about))
    return path


def test_the_metadata_are_written_down() -> None:
    # Files of other parties have them: they may never change.
    other = replace(SOURCE, rows=0)
    assert About("ab" * 32, (SOURCE, other)).to_json().decode() == (
        '{"format": "pate-synthetic-rows/1", "schema": "' + "ab" * 32 + '", "sources": ['
        '{"delta": 0.0, "epsilon": 1.0, "method": "l1", "neighbours": "add or remove one record", '
        '"release": "seedless", "rows": 3, "unit": "record", "version": "0.1.0"}, '
        '{"delta": 0.0, "epsilon": 1.0, "method": "l1", "neighbours": "add or remove one record", '
        '"release": "seedless", "rows": 0, "unit": "record", "version": "0.1.0"}]}'
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table, about = read(written(tmp_path, "a.parquet", TABLE, ABOUT))
    assert about == ABOUT
    assert table.schema() == TABLE.schema()
    assert table.row_hashes() == TABLE.row_hashes()  # missing cells, too


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": None}, {"epsilon": float("inf")}, {"epsilon": -1.0}, {"delta": float("nan")},
        {"rows": -1}, {"rows": 3.0}, {"unit": "party"}, {"release": "other"},
        {"method": "two\nlines"}, {"more": 1},
    ],
)  # fmt: skip
def test_metadata_of_others_are_hostile(tmp_path: Path, wrong: dict[str, Any]) -> None:
    body = {"format": "pate-synthetic-rows/1", "schema": "ab" * 32}
    text = json.dumps(body | {"sources": [asdict(SOURCE) | wrong]}).encode()
    with pytest.raises(DataError):
        About.from_json(text)
    held = pq.read_table(written(tmp_path, "a.parquet", TABLE, ABOUT))
    pq.write_table(held.replace_schema_metadata({KEY: text}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet"):
        read(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    "text",
    [
        b"", b"[]", b"{}", b"\xff", b"[" * 10**5, b'{"format":"pate-synthetic-rows/1"}',
        json.dumps({"format": "pate-synthetic-rows/2", "schema": "ab" * 32, "sources": []}).encode(),
        json.dumps({"format": "pate-synthetic-rows/1", "schema": "AB" * 32, "sources": []}).encode(),
        json.dumps({"format": "pate-synthetic-rows/1", "schema": "ab" * 32, "sources": []}).encode(),
        b" " * (2**20 + 1),
    ],
)  # fmt: skip
def test_metadata_that_are_none(text: bytes) -> None:
    with pytest.raises(DataError):
        About.from_json(text)


def test_a_file_that_was_cut_or_has_other_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "a.parquet", TABLE, ABOUT)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="truncated"):
        read(path)
    more = About(ABOUT.schema, (replace(SOURCE, rows=4),))
    with pytest.raises(DataError, match="not have the stated number of rows"):
        read(written(tmp_path, "b.parquet", TABLE, more))
    with pytest.raises(DataError, match="there is no file"):
        read(tmp_path / "none.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="has no metadata of synthetic rows"):
        read(tmp_path / "c.parquet")


def test_merged_rows_are_there_once_and_counted_at_the_first(tmp_path: Path) -> None:
    first = written(tmp_path, "a.parquet", TABLE, ABOUT)
    swapped = Table(("ward", "age"), (TABLE.columns[1], TABLE.columns[0]))
    other = swapped.take([0, 2, 2]), About(ABOUT.schema, (replace(SOURCE, method="cfs"),))
    new = Table(("age", "ward"), (np.array([7.0]), np.array(["a"], dtype=np.str_)))
    third = new, About(ABOUT.schema, (replace(SOURCE, rows=1, unit="patient"),))
    table, about = merge(
        [first, written(tmp_path, "b.parquet", *other), written(tmp_path, "c.parquet", *third)]
    )
    assert table.row_hashes() == [*TABLE.row_hashes(), *new.row_hashes()]
    assert [(each.method, each.unit, each.rows) for each in about.sources] == [
        ("l1", "record", 3),
        ("cfs", "record", 0),  # its party paid all the same
        ("l1", "patient", 1),
    ]
    # What was merged can be merged again.
    again = written(tmp_path, "d.parquet", table, about)
    assert merge([again, first])[1].sources == (*about.sources, replace(SOURCE, rows=0))
    many = [
        written(
            tmp_path,
            f"{at}.parquet",
            table,
            About(
                about.schema,
                about.sources[:2] + (replace(SOURCE, rows=0),) * 997 + about.sources[2:],
            ),
        )
        for at in (1, 2)
    ]
    assert merge(many[:1])[0].row_hashes() == table.row_hashes()
    with pytest.raises(DataError, match="have 2000 sources, more than 1000"):
        merge(many)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_codes_that_look_like_numbers_merge_in_any_order(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """A column of text is text, even where a file has only such codes as could be numbers."""
    about = About(ABOUT.schema, (replace(SOURCE, rows=2),))
    tables = [["01", "2"], ["01", "unknown"]]
    files = [
        written(tmp_path, f"{at}.parquet", Table(("g",), (np.array(tables[at]),)), about)
        for at in order
    ]
    table, merged = merge(files)
    assert sorted(table.columns[0].tolist()) == ["01", "2", "unknown"]
    assert [each.rows for each in merged.sources] == [2, 1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_column_is_numbers_only_where_all_files_have_numbers(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    about = About(ABOUT.schema, (replace(SOURCE, rows=2),))
    columns = [np.array([1.0, 2.5]), np.array(["1", "old"])]
    files = [
        written(tmp_path, f"{at}.parquet", Table(("g",), (columns[at],)), about) for at in order
    ]
    assert sorted(merge(files)[0].columns[0].tolist()) == ["1", "2.5", "old"]
    both = merge([files[order.index(0)]] * 2)[0]
    assert both.columns[0].dtype == np.float64


def test_a_file_of_others_is_read_only_if_its_rows_are_those_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = pa.table({"a": ["x"] * 4}).replace_schema_metadata({KEY: ABOUT.to_json()})
    pq.write_table(four, tmp_path / "a.parquet")
    monkeypatch.delattr(files, "read_parquet")
    with pytest.raises(DataError, match="not have the stated number of rows"):
        read(tmp_path / "a.parquet")
