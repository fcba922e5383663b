"""Domains and the files that describe them: what is refused, and whose signature counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from aggregator_server.cli.identities import sign_schema
from aggregator_server.identities import Identities
from party.synthesis.table import schema
from party.synthesis.table.domain import Attribute, Domain
from pate.errors import SchemaError, StateError
from pate.formats.synthesis_schema import sign, verify
from tests.support.party.domains import SCHEMAS, small
from tests.support.server.identities import NOW

if TYPE_CHECKING:
    from pathlib import Path

AGE = {"name": "age", "kind": "number", "integer": True, "edges": [0, 18, 65, 120]}
SEX = {"name": "sex", "kind": "category", "codes": ["f", "m"], "missing": True}
GOOD: dict[str, Any] = {
    "format": "pate-synthesis-schema/1",
    "min_rows": 20,
    "label": "sex",
    "columns": [AGE, SEX | {"buckets": [0, 0, 1]}],
}


def test_a_schema_says_what_the_codes_mean() -> None:
    found = schema.from_json(json.dumps(GOOD).encode())
    age, sex = found.attributes
    assert age.codes == ("[0, 18)", "[18, 65)", "[65, 120]")
    assert (age.edges, age.integer, age.buckets) == ((0.0, 18.0, 65.0, 120.0), True, (0, 1, 2))
    assert (sex.codes, sex.buckets, sex.missing) == (("f", "m", ""), (0, 0, 1), 2)
    assert (found.sizes, found.bucket_counts, found.min_rows) == ((3, 3), (3, 2), 20)
    assert found.label == "sex"


def test_it_is_written_as_it_is_read() -> None:
    for name in ("adult_schema.json", "heart_schema.json"):
        found = schema.read(SCHEMAS / name)
        again = schema.from_json(schema.to_json(found))
        assert again == found
        assert again.digest == found.digest
        assert schema.warnings(found) == []


def _changed(**change: object) -> dict[str, object]:
    return GOOD | change


def _column(**change: object) -> dict[str, object]:
    return _changed(columns=[AGE | change, SEX])


def _category(**change: object) -> dict[str, object]:
    return _changed(columns=[AGE, SEX | change])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (_changed(format="pate-synthesis-schema/2"), "format"),
        (_changed(min_rows=0), "min_rows"),
        (_changed(min_rows="20"), "min_rows"),
        (_changed(min_rows=True), "min_rows"),
        (_changed(label="income"), "label"),
        (_changed(colums=[]), "'colums'"),
        (_changed(columns=[]), "columns"),
        (_changed(columns=[AGE, AGE]), "two columns"),
        (_changed(columns=["age"]), "no name"),
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
        (_column(edges=list(range(5000))), "edges"),
        (_column(integer=1), "integer"),
        (_column(buckets=[0, 1]), "bucket"),
        (_column(buckets=[0, 2, 2]), "bucket"),
        (_column(buckets=[0, 1, -1]), "bucket"),
        (_category(codes=[]), "codes"),
        (_category(codes=["f", "f"]), "repeats"),
        (_category(codes=["1", 2]), "must be text"),
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
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        schema.from_json(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        json.dumps(GOOD).encode()[:-1],
        json.dumps(GOOD).replace("20", "NaN").encode(),
        b'{"label": "age", ' + json.dumps(GOOD).encode()[1:],
        json.dumps(GOOD).encode() + b" " * (4 << 20),
    ],
)
def test_what_is_no_schema_is_refused(content: bytes) -> None:
    with pytest.raises(SchemaError):
        schema.from_json(content)


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
            domain,
            attributes=(replace(first, edges=(0.0, 1.0, 2.0, 3.0), integer=True), *rest),
        ),
    ]
    assert len({other.digest for other in others}) == len(others)
    assert small().digest == domain.digest


def test_one_code_is_allowed_and_said() -> None:
    domain = Domain((Attribute("site", ("a",), (0,)),), 1, None)
    assert schema.warnings(domain) == ["column 'site' has one code: it carries no information"]


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
        schema.read_signed(path, key)
    result = _sign(path, "--home", tmp_path / "server")
    assert result.exit_code == 0, result.exception
    assert schema.read_signed(path, key) == schema.read(path)
    with pytest.raises(SchemaError, match="not with the key"):
        schema.read_signed(path, bytes(32))
    path.write_text(json.dumps(GOOD | {"min_rows": 2}))
    with pytest.raises(SchemaError, match="altered"):
        schema.read_signed(path, key)


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
