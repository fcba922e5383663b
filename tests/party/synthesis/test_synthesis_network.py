"""The network: its law, sampling by it, and its file."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from party.synthesis.table.domain import Attribute, Domain
from party.synthesis.table.network import Network
from party.synthesis.table.randomness import SystemRandomness
from pate.errors import PateError, SchemaError, StateError
from tests.support.party.domains import everything, network, small

FALSE_ALARM = 1e-6


def test_configurations_count_the_buckets_of_parents_in_mixed_radix() -> None:
    held = network(small())
    rows = np.array([[0, 2, 3, 1], [2, 0, 1, 0]], dtype=np.intp)
    assert held.configurations(0, rows).tolist() == [0, 0]
    assert held.configurations(1, rows).tolist() == [0, 1]
    assert held.configurations(2, rows).tolist() == [1, 2]


def test_conditionals_multiply_to_a_law_and_rows_are_drawn_by_it() -> None:
    from scipy.stats import chisquare

    domain = small()
    held = network(domain)
    law = held.conditionals(everything(domain)).prod(axis=1)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    rows = held.sample(60_000, SystemRandomness())
    at = np.ravel_multi_index(tuple(rows.T), domain.sizes)
    assert chisquare(np.bincount(at, minlength=law.size), law * len(rows)).pvalue > FALSE_ALARM


def test_resampling_keeps_the_first_and_draws_the_rest_given_them() -> None:
    from scipy.stats import chisquare

    domain = small()
    held = network(domain)
    source = SystemRandomness()
    seeds = np.tile(np.array([[2, 1, 3, 1]], dtype=np.intp), (40_000, 1))
    for omega in (0, 2, np.tile(np.array([0, 4]), 20_000)):
        made = held.resample(seeds, omega, source)
        drawn = np.broadcast_to(omega, len(seeds))
        assert (made[drawn <= 2, :2] == seeds[drawn <= 2, :2]).all()
        assert (made[drawn == 0] == seeds[drawn == 0]).all()
    made = held.resample(seeds, 2, source)
    law = held.tables[2][held.configurations(2, seeds[:1])[0]]
    found = np.bincount(made[:, 2], minlength=4)
    assert chisquare(found, law * len(seeds)).pvalue > FALSE_ALARM
    with pytest.raises(SchemaError):
        held.resample(seeds, 5, source)


def test_a_code_of_probability_zero_is_never_drawn() -> None:
    domain = Domain((Attribute("x", ("a", "b", "c", "d"), (0, 1, 2, 3)),), 1, None)
    held = Network(domain, (0,), ((),), (np.array([[0.0, 0.3, 0.0, 0.7]]),))
    assert set(held.sample(5000, SystemRandomness())[:, 0].tolist()) == {1, 3}

    class Least(SystemRandomness):
        def uniform(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            return np.zeros(count)

    assert set(held.sample(5, Least())[:, 0].tolist()) == {1}
    held = Network(domain, (0,), ((),), (np.array([[0.1] * 3 + [0.7]]),))
    assert np.unique(held.sample(5000, SystemRandomness())).size == 4


def test_order_need_not_be_that_of_the_columns() -> None:
    domain = small((2, 2))
    tables = (np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.5, 0.5]]))
    held = Network(domain, (1, 0), ((1,), ()), tables)
    rows = held.sample(100, SystemRandomness())
    assert (rows[:, 0] != rows[:, 1]).all()
    assert held.conditionals(rows)[0].tolist() == [0.5, 1.0]
    kept = held.resample(np.array([[0, 0]], dtype=np.intp), 1, SystemRandomness())
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
    held = network(small())
    table = held.tables[1].copy()
    table[0, 0] = bad
    with pytest.raises(SchemaError, match="probabilities"):
        replace(held, tables=(held.tables[0], table, *held.tables[2:]))


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    held = network(small())
    path = tmp_path / "model.npz"
    held.save(path)
    back = Network.load(path, small())
    assert back.order == held.order
    assert back.parents == held.parents
    for table, other in zip(back.tables, held.tables, strict=True):
        assert table.tobytes() == other.tobytes()
    with pytest.raises(SchemaError, match=r"model\.npz.*another schema"):
        Network.load(path, small(label="x0"))
    with pytest.raises(StateError, match="cannot read"):
        Network.load(tmp_path / "none.npz", small())


def _files(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def _array(value: object, **kind: str) -> bytes:
    made = io.BytesIO()
    np.save(made, np.array(value, **kind), allow_pickle=True)  # type: ignore[call-overload]
    return made.getvalue()


def _header(held: Network, **change: object) -> bytes:
    text = bytes(np.load(io.BytesIO(_files(held.to_bytes())["header.npy"])))
    changed = json.dumps(json.loads(text) | change).encode()
    return _array(list(changed), dtype="uint8")


def test_hostile_files_are_refused() -> None:
    held = network(small())
    good = _files(held.to_bytes())
    Network.from_bytes(_packed(good), held.domain)
    table = held.tables[1]
    bad: list[bytes] = [
        b"",
        b"PK\x05\x06" + bytes(18),
        held.to_bytes()[:-40],
        held.to_bytes()[:200],
        _packed({"header.npy": good["header.npy"]}),
        _packed(good | {"header.npy": _header(held, format="another/1")}),
        _packed(good | {"header.npy": _header(held, order=[0, 1, 2, 2])}),
        _packed(good | {"header.npy": _header(held, order="0123")}),
        _packed(good | {"header.npy": _header(held, order=[0, 1, 2, 3.0])}),
        _packed(good | {"header.npy": _header(held, parents=[[], [0], [0, 1]])}),
        _packed(good | {"header.npy": _header(held, parents=[[], [0], [0, 1], [-1]])}),
        _packed(good | {"header.npy": _header(held, parents=[[], [0], [0, 1], [3]])}),
        _packed(good | {"header.npy": _header(held, parents=[[0] * 9, [0], [0, 1], [1]])}),
        _packed(good | {"header.npy": _array(list(b"[" * 60_000), dtype="uint8")}),
        _packed(good | {"header.npy": _array(list(bytes(70_000)), dtype="uint8")}),
        _packed(good | {"table_1.npy": _array([[{}, {}, {}]] * 2, dtype="object")}),
        _packed(good | {"table_1.npy": _array(table.astype("float32"), dtype="float32")}),
        _packed(good | {"table_1.npy": _array(table[:1], dtype="float64")}),
        _packed(good | {"table_1.npy": _array(table.T.copy().T, dtype="float64", order="F")}),
        _packed(good | {"table_1.npy": _array(-table, dtype="float64")}),
        _packed(good | {"table_1.npy": good["table_1.npy"][:-8]}),
        _packed(good | {"table_1.npy": good["table_1.npy"] + bytes(2**24)}),
    ]
    for content in bad:
        with pytest.raises(StateError):
            Network.from_bytes(content, held.domain)


def _npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': ('<f8', 'fortran_order': False, 'shape': (((1,), }\n",
        b"(" * 9000,
        b"-" * 9000 + b"1",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1, " + b"9" * 5000 + b")}",
        b"\xff" * 100,
    ],
)
def test_a_header_that_nobody_could_read_is_refused(header: bytes) -> None:
    held = network(small())
    content = _packed(_files(held.to_bytes()) | {"table_0.npy": _npy(header)})
    with pytest.raises(StateError, match="damaged"):
        Network.from_bytes(content, held.domain)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_model_is_not_packed(method: int) -> None:
    held = network(small())
    content = bytearray(_packed(_files(held.to_bytes()), method))
    for damage in (False, True):
        if damage:
            start = content.find(b"header.npy") + 10
            content[start + 10 : start + 30] = b"\xff" * 20
        with pytest.raises(
            StateError, match=r"header.* is (compressed|encrypted|packed by another method)"
        ):
            Network.from_bytes(bytes(content), held.domain)


def test_a_model_is_not_encrypted() -> None:
    held = network(small())
    content = bytearray(held.to_bytes())
    for magic, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = -1
        while (at := content.find(magic, at + 1)) >= 0:
            content[at + flags] |= 1
    with pytest.raises(
        StateError, match=r"header.* is (compressed|encrypted|packed by another method)"
    ):
        Network.from_bytes(bytes(content), held.domain)


def test_a_file_without_an_end_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("party.synthesis.table.network._MAX_FILE", 2**16)
    with pytest.raises(StateError, match="/dev/zero: it is too large for a model"):
        Network.load(Path("/dev/zero"), small())


def test_damage_anywhere_is_an_error_of_ours_or_harmless() -> None:
    held = network(small())
    content = held.to_bytes()
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        changed[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        try:
            Network.from_bytes(bytes(changed), held.domain)
        except PateError:
            refused += 1
    assert refused > 200
