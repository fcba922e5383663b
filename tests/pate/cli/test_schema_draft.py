"""``pate schema draft``: a schema that a person completes, from public facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from party.synthesis.schema import read
from pate.errors import DataError, PateError, SchemaError, UsageError
from simulation.cli import app


def draft(out: Path, *options: str | Path) -> str:
    done = CliRunner().invoke(app, ["schema", "draft", "--out", str(out), *map(str, options)])
    if isinstance(done.exception, PateError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def columns(path: Path) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(path.read_text())["columns"]}


def test_a_public_tables_columns_and_what_a_person_has_to_say(tmp_path: Path) -> None:
    rows = "".join(
        f"{20 + at},{at / 7:.3f},{'fm'[at % 2]},note {at},{at % 3}\n" for at in range(120)
    )
    (tmp_path / "public.csv").write_text(f"age,crp,sex,note,stage\n{rows},NA,,x,1\n")
    out = tmp_path / "s.json"
    said = draft(out, "--public", tmp_path / "public.csv", "--label", "sex")
    assert "to be filled in by a person: note, min_rows" in said
    made = columns(out)
    assert made["age"]["integer"] is True
    assert (made["age"]["edges"][0], made["age"]["edges"][-1]) == (20, 140)
    assert made["crp"]["integer"] is False
    assert made["sex"] == {"name": "sex", "kind": "category", "codes": ["f", "m"], "missing": True}
    with pytest.raises(SchemaError, match="'note' is not filled in yet: TODO"):
        read(out)
    fields = json.loads(out.read_text())
    fields["columns"] = [each for each in fields["columns"] if each["name"] != "note"]
    out.write_text(json.dumps(fields))
    with pytest.raises(SchemaError, match="min_rows is not filled in yet: TODO"):
        read(out)
    out.write_text(json.dumps(fields | {"min_rows": 50}))
    domain = read(out)
    assert domain.names == ("age", "crp", "sex", "stage")
    assert (domain.label, domain.min_rows) == ("sex", 50)


def test_a_codebook_is_a_schema_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text(
        "column,kind,values,missing\nage,whole,17..93,\ncrp,number,0|5|10.5,yes\n"
        "sex,category,female|male,no\nward,category,,\n"
    )
    out = tmp_path / "s.json"
    said = draft(out, "--codebook", tmp_path / "book.csv", "--min-rows", "200", "--label", "sex")
    assert "by a person: ward" in said
    made = columns(out)
    assert made["age"]["edges"] == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert made["crp"] == {
        "name": "crp", "kind": "number", "integer": False, "edges": [0, 5, 10.5], "missing": True
    }  # fmt: skip
    out.write_text(out.read_text().replace(json.dumps(made["ward"]["codes"]), '["1", "2"]'))
    assert len(read(out)) == 4


@pytest.mark.parametrize(
    ("book", "why"),
    [
        ("name,kind\na,whole\n", "no codebook: it has no column column, values"),
        ("column,kind,values\na,text,\n", "line 2: the kind 'text'"),
        ("column,kind,values\na,whole,9..1\n", "line 2: '9..1' is no range"),
        ("column,kind,values\na,whole,1..2\na,whole,1..2\n", "line 3: 'a' is no name, or is there"),
    ],
)
def test_a_codebook_that_cannot_be_read_names_its_line(tmp_path: Path, book: str, why: str) -> None:
    (tmp_path / "book.csv").write_text(book)
    with pytest.raises(DataError, match=why):
        draft(tmp_path / "s.json", "--codebook", tmp_path / "book.csv")
    assert not (tmp_path / "s.json").exists()


def test_one_source_and_no_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "book.csv").write_text("column,kind,values\na,whole,1..2\n")
    for options in ((), ("--public", tmp_path / "book.csv", "--codebook", tmp_path / "book.csv")):
        with pytest.raises(UsageError, match="one of --public and --codebook"):
            draft(tmp_path / "s.json", *options)
    (tmp_path / "s.json").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        draft(tmp_path / "s.json", "--codebook", tmp_path / "book.csv")
    assert (tmp_path / "s.json").read_text() == "mine"
