"""The schema: what is refused, whose signature counts, and from cells to codes and back."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aggregator_server.cli.identities import sign_schema
from aggregator_server.identities import Identities
from party.synthesis.schema import Attribute, Domain, from_json, read
from party.synthesis.table import decode, encode
from pate.data.read import read_inputs
from pate.data.values import Table
from pate.errors import DataError, SchemaError, StateError
from pate.formats.synthesis_schema import sign, verify
from tests.support.party.domains import SCHEMAS, adult, everything, small
from tests.support.server.identities import NOW

AGE = {"name": "age", "kind": "number", "integer": True, "edges": [0, 18, 65, 120]}
SEX = {"name": "sex", "kind": "category", "codes": ["f", "m"], "missing": True}
GOOD: dict[str, Any] = {
    "format": "pate-synthesis-schema/1",
    "min_rows": 20,
    "label": "sex",
    "columns": [AGE, SEX | {"buckets": [0, 0, 1]}],
}


def test_a_schema_says_what_the_codes_mean() -> None:
    found = from_json(json.dumps(GOOD).encode())
    age, sex = found.attributes
    assert age.codes == ("[0, 18)", "[18, 65)", "[65, 120]")
    assert (age.edges, age.integer, age.buckets) == ((0.0, 18.0, 65.0, 120.0), True, (0, 1, 2))
    assert (sex.codes, sex.buckets, sex.missing) == (("f", "m", ""), (0, 0, 1), 2)
    assert (found.sizes, found.bucket_counts, found.min_rows) == ((3, 3), (3, 2), 20)
    assert found.label == "sex"


def test_the_digests_of_the_published_schemas_are_written_down() -> None:
    # Files and ledgers have them: they may never change.
    for name, digest in (("adult", "fc379355fdf0b3ea"), ("heart", "217172abd95bc599")):
        assert read(SCHEMAS / f"{name}_schema.json").digest.hex().startswith(digest)


def _changed(**change: object) -> dict[str, object]:
    return GOOD | change


def _column(**change: object) -> dict[str, object]:
    return _changed(columns=[AGE | change, SEX])


def _category(**change: object) -> dict[str, object]:
    return _changed(columns=[AGE, SEX | change])


NONSENSE: list[tuple[dict[str, object], str]] = [
    (_changed(format="pate-synthesis-schema/2"), "format"),
    (_changed(min_rows=0), "min_rows"),
    (_changed(min_rows="20"), "min_rows"),
    (_changed(min_rows=True), "min_rows"),
    (_changed(label="income"), "label"),
    (_changed(colums=[]), "'colums'"),
    (_changed(columns=[]), "columns"),
    (_changed(columns=[AGE, AGE]), "two columns"),
    (_changed(columns=["age"]), "must be an object"),
    (_changed(columns=[{"kind": "category", "codes": ["f"]}]), "'name'"),
    (_changed(columns=[{"name": "age"}, SEX]), "kind"),
    (_column(kind="date"), "kind"),
    (_column(kind=["number"]), "kind"),
    (_column(codes=["a"]), "'codes'"),
    (_column(edges=[0, 18, 18, 65]), "edges"),
    (_column(edges=[0, 65, 18]), "edges"),
    (_column(edges=[1]), "edges"),
    (_column(edges=[0, "18"]), "edge"),
    (_column(edges=[0, 1e300]), "edge"),
    (_column(edges=[0, 1.5]), "whole"),
    (_column(edges=list(range(5000))), "4999 codes"),
    (_column(integer=1), "integer"),
    (_column(buckets=[0, 1]), "bucket"),
    (_column(buckets=[0, 2, 2]), "bucket"),
    (_column(buckets=[0, 1, -1]), "bucket"),
    (_column(buckets=[0, 1, 2**60]), "bucket"),
    (_column(buckets=None), "bucket"),
    (_category(codes=[]), "can only be missing"),
    (_category(codes=["f", "f"]), "repeats"),
    (_category(codes=["1", 2]), "must be text"),
    (_category(codes="TODO: its codes"), "'sex' is not filled in yet"),
    (_category(codes=["f", "?"]), "empty cell"),
    (_category(codes=["f", "NaN"]), "empty cell"),
    (_category(codes=["f", " m"]), "space"),
    (_category(codes=["007", "1"]), "'7'"),
    (_category(codes=["1.0", "2"]), "'1'"),
    (_category(codes=["x" * 300]), "characters"),
    (_category(missing="yes"), "missing"),
    (_category(codes=["f", "m\ud800"]), "lone surrogate"),
    (_category(codes=["f", "m\x1b[31m"]), "control character"),
    (_category(codes=["f", "m\x00"]), "control character"),
    (_category(codes=["f", "m\u2028n"]), "control character"),
    (_category(name="sex\udfff"), "lone surrogate"),
    (_column(name="age\nof a patient"), "control character"),
]


def test_a_schema_that_makes_no_sense_is_refused() -> None:
    for fields, says in NONSENSE:
        with pytest.raises(SchemaError, match=says):
            from_json(json.dumps(fields).encode())


def test_what_is_no_schema_is_refused() -> None:
    for content in (
        b"", b"[]", b"\xff", b"[" * 100_000, json.dumps(GOOD).encode()[:-1],
        json.dumps(GOOD).replace("20", "NaN").encode(),
        b'{"label": "age", ' + json.dumps(GOOD).encode()[1:],
        json.dumps(GOOD).encode() + b" " * (4 << 20),
    ):  # fmt: skip
        with pytest.raises(SchemaError):
            from_json(content)


def test_a_digest_tells_any_two_domains_apart() -> None:
    domain = small()
    first, *rest = domain.attributes
    others = [
        domain,
        replace(domain, min_rows=11),
        replace(domain, label="x1"),
        replace(domain, attributes=tuple(rest)),
        replace(domain, attributes=(*rest, first)),
        replace(domain, attributes=(replace(first, name="y"), *rest)),
        replace(domain, attributes=(replace(first, codes=("a", "b", "d")), *rest)),
        replace(domain, attributes=(replace(first, buckets=(0, 1, 0)), *rest)),
        replace(domain, attributes=(replace(first, edges=(0.0, 1.0, 2.0, 3.0)), *rest)),
        replace(domain, attributes=(replace(first, edges=(0.0, 1.0, 2.0, 4.0)), *rest)),
        replace(
            domain, attributes=(replace(first, edges=(0.0, 1.0, 2.0, 3.0), integer=True), *rest)
        ),
    ]
    assert len({other.digest for other in others}) == len(others)
    assert small().digest == domain.digest


@pytest.fixture
def server(tmp_path: Path) -> Identities:
    return Identities.create(tmp_path / "server", (), 1, NOW)


def _sign(*arguments: object) -> Any:
    app = typer.Typer()
    app.command()(sign_schema)
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_party_takes_the_schema_that_its_coordinator_signed(
    server: Identities, tmp_path: Path
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(GOOD))
    key = server.signing_key.public_key().public_bytes_raw()
    with pytest.raises(SchemaError, match="not signed"):
        read(path, key)
    result = _sign(path, "--home", tmp_path / "server")
    assert result.exit_code == 0, result.exception
    assert read(path, key) == read(path)
    with pytest.raises(SchemaError, match="not with the key"):
        read(path, bytes(32))
    path.write_text(json.dumps(GOOD | {"min_rows": 2}))
    with pytest.raises(SchemaError, match="altered"):
        read(path, key)


def test_another_key_that_claims_to_be_the_coordinators_is_refused() -> None:
    content = json.dumps(GOOD).encode()
    real, thief = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    key = real.public_key().public_bytes_raw()
    verify(content, sign(content, real), key)
    forged = json.loads(sign(content, thief)) | {"key": key.hex()}
    with pytest.raises(SchemaError, match="altered"):
        verify(content, json.dumps(forged).encode(), key)
    # What the same key signs elsewhere is no signature of a schema.
    bare = json.loads(sign(content, real)) | {"signature": real.sign(content).hex()}
    with pytest.raises(SchemaError, match="altered"):
        verify(content, json.dumps(bare).encode(), key)
    for bad in (b"", b"{}", b"{}" + b" " * 2000, json.dumps(forged | {"signature": 5}).encode()):
        with pytest.raises(SchemaError):
            verify(content, bad, key)


def test_the_coordinator_signs_schemas_alone(server: Identities, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    home = tmp_path / "server"
    assert isinstance(_sign(path, "--home", home).exception, SchemaError)
    assert isinstance(_sign(path, "--home", tmp_path / "none").exception, StateError)
    assert not (tmp_path / "other.json.sig").exists()


# --- cells and codes -----------------------------------------------------------------------------


DOMAIN = Domain(
    (
        Attribute("age", ("low", "middle", "high"), (0, 1, 1), (0.0, 18.0, 65.0, 79.0), True),
        Attribute("ratio", ("under", "over", ""), (0, 1, 2), (0.0, 0.5, 1.0)),
        Attribute("sex", ("f", "m", ""), (0, 1, 2)),
        Attribute("stage", ("1", "2", "10"), (0, 1, 2)),
    ),
    1,
    "stage",
)


def table(tmp_path: Path, *rows: str, names: str = "age,ratio,sex,stage") -> Table:
    path = tmp_path / "data.csv"
    path.write_text("\n".join((names, *rows)) + "\n")
    found = read_inputs(path)
    assert isinstance(found, Table)
    return found


def test_cells_become_codes_and_codes_become_cells(tmp_path: Path) -> None:
    cells = table(tmp_path, "0,0,f,1", "17,0.49,m,2", "18,0.5,?,10", "79,1,f,2.0", "65,,m,1")
    codes = encode(cells, DOMAIN, "it")
    assert codes.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 2, 2], [2, 1, 0, 1], [2, 2, 1, 0]]
    assert codes.dtype == np.intp
    back = decode(codes, DOMAIN)
    assert back.names == DOMAIN.names
    # Whole numbers: the middle of 0..17, of 18..64, of 65..79, whose last is in the bin.
    assert back.columns[0].tolist() == [8, 8, 41, 72, 72]
    assert back.columns[1].tolist()[:4] == [0.25, 0.25, 0.75, 0.75]
    assert np.isnan(back.columns[1][4])
    assert back.columns[2].tolist() == ["f", "m", "", "f", "m"]
    assert back.columns[3].tolist() == [1, 2, 10, 2, 1]
    assert decode(codes, DOMAIN, keep_label=False).names == ("age", "ratio", "sex")


def test_the_order_of_columns_is_free(tmp_path: Path) -> None:
    cells = table(tmp_path, "2,m,0.7,20", names="stage,sex,ratio,age")
    assert encode(cells, DOMAIN, "it").tolist() == [[1, 1, 1, 1]]


def test_each_cell_is_coded_by_itself(tmp_path: Path) -> None:
    # Any text in a column makes it one of categories: the other rows' codes must not notice.
    alone = encode(table(tmp_path, "7.0,1e-1,f,02"), DOMAIN, "it")
    with pytest.raises(DataError, match=r"row 2, column age: 'old' is not a number"):
        encode(table(tmp_path, "7.0,1e-1,f,02", "old,x,f,x"), DOMAIN, "it")
    mixed = Table(
        DOMAIN.names, (np.array(["7.0"]), np.array(["1e-1"]), np.array(["f"]), np.array(["02"]))
    )
    assert (encode(mixed, DOMAIN, "it") == alone).all()


def test_a_cell_without_a_code_names_row_and_column(tmp_path: Path) -> None:
    for row, says in (
        ("99,0,f,1", "row 2, column age: 99 outside 0..79"),
        ("-1,0,f,1", "row 2, column age: -1 outside 0..79"),
        ("1.5,0,f,1", "row 2, column age: 1.5 is not a whole number"),
        (
            ",0,f,1",
            "row 2, column age: no value, but the schema does not allow missing values there",
        ),
        ("1,1.01,f,1", "row 2, column ratio: 1.01 outside 0..1"),
        ("1,0,x,1", "row 2, column sex: 'x' is not one of the schema's 3 codes"),
        ("1,0,f,3", "row 2, column stage: '3' is not one of the schema's 3 codes"),
        ("1,0,f,", "row 2, column stage: no value"),
        ("1,0,f,one", "row 2, column stage: 'one' is not one of the schema's"),
    ):
        with pytest.raises(DataError, match=says):
            encode(table(tmp_path, "1,0,f,1", row, "1,0,f,1"), DOMAIN, "it")


def test_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lacks column 'stage'"):
        encode(table(tmp_path, "1,0,f", names="age,ratio,sex"), DOMAIN, "it")
    with pytest.raises(DataError, match="has column 'town' that the schema does not have; leave"):
        encode(table(tmp_path, "1,0,f,1,x", names="age,ratio,sex,stage,town"), DOMAIN, "it")
    with pytest.raises(DataError, match="no records"):
        encode(table(tmp_path, "1,0,f,1").take([]), DOMAIN, "it")


@pytest.mark.parametrize("name", ["adult_schema.json", "heart_schema.json"])
def test_every_code_of_a_public_schema_comes_back_as_itself(name: str) -> None:
    domain = read(SCHEMAS / name)
    rows = np.stack(
        [np.arange(200, dtype=np.intp) % size for size in domain.sizes], axis=1, dtype=np.intp
    )
    assert (encode(decode(rows, domain), domain, "it") == rows).all()


def test_what_is_decoded_is_a_table_whatever_the_codes() -> None:
    rows = everything(DOMAIN)
    assert (encode(decode(rows, DOMAIN), DOMAIN, "it") == rows).all()
    assert len(decode(rows[:0], DOMAIN)) == 0


def test_the_schemas_describe_the_real_tables(test_data: Path, tmp_path: Path) -> None:
    domain = read(SCHEMAS / "adult_schema.json")
    assert encode(adult(test_data, tmp_path), domain, "adult").shape == (32_561, 13)
    domain = read(SCHEMAS / "heart_schema.json")
    for site, rows in (("cleveland", 303), ("hungarian", 294), ("switzerland", 123), ("va", 200)):
        text = (test_data / "heart_disease" / f"processed.{site}.data").read_text()
        path = tmp_path / f"{site}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(domain.names)
            for *cells, number in csv.reader(text.splitlines()):
                # A pressure or cholesterol of 0 says that it was not measured.
                features = [
                    "?" if at in (3, 4) and cell in ("0", "0.0") else cell
                    for at, cell in enumerate(cells)
                ]
                writer.writerow([*features, "healthy" if float(number) == 0 else "disease"])
        found = read_inputs(path)
        assert isinstance(found, Table)
        assert encode(found, domain, site).shape == (rows, 14)
