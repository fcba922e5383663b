"""The network: its law, sampling by it, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from party.synthesis.network import Network
from party.synthesis.schema import Attribute, Domain
from pate.errors import PateError, SchemaError, StateError
from pate.noise.exact import SystemNoise
from pate.noise.lanes import Lanes
from tests.support.party.domains import everything, network, small

FALSE_ALARM = 1e-6
LANES = SystemNoise().lanes


def test_configurations_count_the_buckets_of_parents_in_mixed_radix() -> None:
    model = network(small())
    rows = np.array([[0, 2, 3, 1], [2, 0, 1, 0]], dtype=np.intp)
    assert model.configurations(0, rows).tolist() == [0, 0]
    assert model.configurations(1, rows).tolist() == [0, 1]
    assert model.configurations(2, rows).tolist() == [1, 2]


def test_conditionals_multiply_to_a_law_and_rows_are_drawn_by_it() -> None:
    from scipy.stats import chisquare

    domain = small()
    model = network(domain)
    law = model.conditionals(everything(domain)).prod(axis=1)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    rows = model.sample(60_000, LANES)
    at = np.ravel_multi_index(tuple(rows.T), domain.sizes)
    assert chisquare(np.bincount(at, minlength=law.size), law * len(rows)).pvalue > FALSE_ALARM


def test_resampling_keeps_the_first_and_draws_the_rest_given_them() -> None:
    from scipy.stats import chisquare

    domain = small()
    model = network(domain)
    seeds = np.tile(np.array([[2, 1, 3, 1]], dtype=np.intp), (40_000, 1))
    for omega in (0, 2, np.tile(np.array([0, 4]), 20_000)):
        made = model.resample(seeds, omega, LANES)
        drawn = np.broadcast_to(omega, len(seeds))
        assert (made[drawn <= 2, :2] == seeds[drawn <= 2, :2]).all()
        assert (made[drawn == 0] == seeds[drawn == 0]).all()
    made = model.resample(seeds, 2, LANES)
    law = model.tables[2][model.configurations(2, seeds[:1])[0]]
    found = np.bincount(made[:, 2], minlength=4)
    assert chisquare(found, law * len(seeds)).pvalue > FALSE_ALARM
    with pytest.raises(SchemaError):
        model.resample(seeds, 5, LANES)


def test_a_code_of_probability_zero_is_never_drawn() -> None:
    domain = Domain((Attribute("x", ("a", "b", "c", "d"), (0, 1, 2, 3)),), 1, None)
    model = Network(domain, (0,), ((),), (np.array([[0.0, 0.3, 0.0, 0.7]]),))
    assert set(model.sample(5000, LANES)[:, 0].tolist()) == {1, 3}

    assert set(model.sample(5, Lanes(bytes))[:, 0].tolist()) == {1}
    highest = Lanes(lambda count: b"\xff" * count)
    assert set(model.sample(5, highest)[:, 0].tolist()) == {3}
    model = Network(domain, (0,), ((),), (np.array([[0.1] * 3 + [0.7]]),))
    assert np.unique(model.sample(5000, LANES)).size == 4


def test_order_need_not_be_that_of_the_columns() -> None:
    domain = small((2, 2))
    tables = (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 0.5]]))
    model = Network(domain, (1, 0), ((1,), ()), tables)
    rows = model.sample(100, LANES)
    assert (rows[:, 0] != rows[:, 1]).all()
    assert model.conditionals(rows)[0].tolist() == [0.5, 1.0]
    kept = model.resample(np.array([[0, 0]], dtype=np.intp), 1, LANES)
    assert kept.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    "change",
    [
        {"order": (0, 1, 2, 2)},
        {"order": (3, 2, 1, 0)},
        {"parents": ((), (0,), (0, 0), (1, 2))},
        {"parents": ((), (0,), (0, 9), (1, 2))},
    ],
)
def test_a_network_that_does_not_fit_together_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        replace(network(small()), **change)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("bad", [np.nan, -0.1, 2.0])
def test_tables_hold_probabilities(bad: float) -> None:
    model = network(small())
    table = model.tables[1].copy()
    table[0, 0] = bad
    with pytest.raises(SchemaError, match="probabilities"):
        replace(model, tables=(model.tables[0], table, *model.tables[2:]))


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = network(small())
    path = tmp_path / "model.safetensors"
    path.write_bytes(model.to_bytes())
    back = Network.load(path, small())
    assert back.order == model.order
    assert back.parents == model.parents
    for table, other in zip(back.tables, model.tables, strict=True):
        assert table.tobytes() == other.tobytes()
    # A ledger has the digest of the file: one model has one.
    assert back.to_bytes() == model.to_bytes()
    with pytest.raises(SchemaError, match=r"model\.safetensors.*another schema"):
        Network.load(path, small(label="x0"))
    with pytest.raises(StateError, match="cannot read"):
        Network.load(tmp_path / "none.safetensors", small())


def _header(length: int, text: bytes = b"{}") -> bytes:
    return length.to_bytes(8, "little") + text


def test_hostile_files_are_refused() -> None:
    from safetensors.numpy import load, save

    model = network(small())
    content = model.to_bytes()
    good, table = load(content), model.tables[1]

    def changed(**arrays: object) -> bytes:
        made: bytes = save(good | {name: np.array(value) for name, value in arrays.items()})
        return made

    parents = good["parents"].tolist()
    assert Network.from_bytes(changed(), model.domain).order == model.order
    bad: list[bytes] = [
        b"",
        content[:-40],
        content[:200],
        content + bytes(8),
        _header(2**63),
        _header(10**9),
        _header(60_000, b"[" * 60_000),
        _header(2),
        _header(60, b'{"order": {"dtype": "F64", "shape": [], "data_offsets": []}}'),
        save({name: good[name] for name in ("domain", "order", "parents")}),
        save({name: good[name] for name in good if name != "parents"}),
        changed(more=[1]),
        changed(order=[0, 1, 2, 2]),
        changed(order=[[0, 1, 2, 3]]),
        changed(order=[0.0, 1.0, 2.0, 3.0]),
        changed(order=[0, 1, 2]),
        changed(parents=parents[:-1]),
        changed(parents=[*parents[:-1], [-2, -1]]),
        changed(parents=[*parents[:-1], [3, -1]]),
        changed(parents=[*parents[:-1], [0, 9]]),
        changed(parents=[[0, -1], *parents[1:]]),
        changed(parents=[[*each, *[-1] * 9] for each in parents]),
        changed(parents=parents[0]),
        changed(table_1=table.astype("float32")),
        changed(table_1=table[:1]),
        changed(table_1=table.ravel()),
        changed(table_1=-table),
        changed(table_1=np.full_like(table, np.nan)),
    ]
    for each in bad:
        with pytest.raises(StateError):
            Network.from_bytes(each, model.domain)
    with pytest.raises(SchemaError, match="another schema"):
        Network.from_bytes(changed(domain=np.zeros(32, dtype=np.uint8)), model.domain)


def test_a_file_without_an_end_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.synthesis.network._MAX_FILE", 2**16)
    with pytest.raises(StateError, match="/dev/zero: it is too large for a model"):
        Network.load(Path("/dev/zero"), small())


def test_damage_anywhere_is_an_error_of_ours_or_another_model() -> None:
    """A ledger knows a model by its digest: another one was not paid for."""
    model = network(small())
    content = model.to_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        changed[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        try:
            assert Network.from_bytes(bytes(changed), model.domain).to_bytes() != content
        except PateError:
            refused += 1
    assert refused > 100
