"""``pate-party synthesize`` and ``merge`` from the command line: files, charges and refusals."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from PIL import Image
from typer.testing import CliRunner

from aggregator_server.identities import Identities
from party.cli.main import app
from party.identity.enrolment import enrol
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import POLICY_FILE
from party.synthesis.files import read
from party.synthesis.schema import read as read_schema
from party.synthesis.table import read_rows
from pate.accounting.filters import Delta
from pate.data.cells import Reading
from pate.data.read import read_inputs
from pate.data.values import Table
from pate.errors import (
    BudgetError,
    DataError,
    InfeasibleError,
    PateError,
    RefusedError,
    SchemaError,
    UsageError,
)
from pate.formats.synthesis_schema import SUFFIX, sign
from tests.support.party.offers import answer, queries, settled

ROWS = 400
SCHEMA: dict[str, Any] = {
    "format": "pate-synthesis-schema/1",
    "min_rows": 300,
    "label": "ill",
    "columns": [
        {"name": "age", "kind": "number", "integer": True, "edges": [18, 30, 40, 50, 60, 70, 80]},
        {"name": "sex", "kind": "category", "codes": ["F", "M"]},
        {"name": "ward", "kind": "category", "codes": ["a", "b", "c"], "missing": True},
        {"name": "ill", "kind": "category", "codes": ["no", "yes"]},
    ],
}


class Site:
    """A hospital with its table, its schema, and a home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        rng = np.random.default_rng(1)
        age = rng.integers(18, 81, ROWS)
        ill = np.where(age + rng.normal(0, 8, ROWS) > 55, "yes", "no")
        self.rows: list[list[str]] = [
            [f"p{at}", str(age[at]), "FM"[at % 2], ["a", "b", "c", ""][at % 4], str(ill[at])]
            for at in range(ROWS)
        ]
        self.schema(SCHEMA)
        self.write()

    def schema(self, fields: dict[str, Any]) -> None:
        (self.folder / "schema.json").write_text(json.dumps(fields))

    def write(self, header: str = "patient,age,sex,ward,ill") -> None:
        with (self.folder / "data.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header.split(","), *self.rows])

    @property
    def ledger(self) -> PartyLedger:
        return PartyLedger(self.home / LEDGER_FILE, read_only=True)

    def typed(self, *options: str, out: str = "out.parquet", data: str = "data.csv") -> Result:
        return typed(
            "synthesize", "--data", str(self.folder / data),
            "--schema", str(self.folder / "schema.json"), "--home", str(self.home),
            "--out", str(self.folder / out), "--rows", "20", "--json", *options,
        )  # fmt: skip

    def makes(self, *options: str, **places: str) -> dict[str, Any]:
        result = self.typed("--drop", "patient", *options, **places)
        assert result.exit_code == 0
        made: dict[str, Any] = json.loads(result.stdout)
        return made

    def told(self, *options: str, out: str) -> str:
        """Return what a cheap release says."""
        cheap = ("--drop", "patient", "--epsilon", "0.1", *options)
        return " ".join(self.typed(*cheap, out=out).stderr.split())

    def fails(self, kind: type[PateError], words: str, *options: str, **places: str) -> None:
        """Check that it is refused in one line, and that nothing was paid or written."""
        with pytest.raises(kind, match=words) as found:
            self.typed("--drop", "patient", *options, **places)
        assert "\n" not in str(found.value)
        assert not list(self.folder.glob("*.parquet"))
        if (self.home / LEDGER_FILE).exists():
            assert not self.ledger.syntheses()


def typed(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# --- what is released ----------------------------------------------------------------------------


def test_a_release_is_a_public_set_and_says_what_it_cost(site: Site) -> None:
    made = site.makes("--epsilon", "0.5")
    assert made["epsilon"] == 0.5
    table = read_inputs(site.folder / "out.parquet")
    assert isinstance(table, Table)
    assert table.names == ("age", "sex", "ward")  # the label is what the campaign is to find out
    assert len(table) == len(set(table.row_hashes())) == made["rows"] == 20
    _, about = read(site.folder / "out.parquet")
    (source,) = about.sources
    assert (source.epsilon, source.delta, source.rows) == (0.5, 0.0, 20)
    assert source.neighbours == "add or remove one record"
    (record,) = site.ledger.syntheses()
    assert record.synthesis.epsilon == Fraction(1, 2)
    assert record.output == made["sha256"]
    assert record.spent_at is not None
    # The file tells nothing of the data but its rows.
    kept = pq.read_schema(site.folder / "out.parquet").metadata
    assert set(kept) == {b"pate-synthetic-rows"}
    body = json.loads(kept[b"pate-synthetic-rows"])
    assert set(body) == {"format", "schema", "sources"}
    assert set(body["sources"][0]) == {
        "method", "release", "epsilon", "delta", "unit", "neighbours", "version", "rows",
    }  # fmt: skip
    assert str(ROWS) not in kept[b"pate-synthetic-rows"].decode()


def test_more_rows_of_a_paid_model_cost_nothing(site: Site) -> None:
    """The model is found by its digest in the ledger; any number of rows is post-processing."""
    model = str(site.folder / "model.safetensors")
    first = site.makes("--model-out", model)
    before = site.ledger.cumulative_epsilon(Delta(1e-5))
    again = ["--model", model, "--rows", "5000", "--keep-label"]
    second = site.makes(*again, out="more.parquet")
    assert (second["rows"], second["parent"], second["rho"]) == (5000, first["id"], "0")
    assert second["epsilon"] == 1.0  # what the model cost is what the rows are worth
    assert site.ledger.cumulative_epsilon(Delta(1e-5)) == before
    table = read_inputs(site.folder / "more.parquet")
    assert isinstance(table, Table)
    assert "ill" in table.names
    # Changed, or of another party, it is refused.
    elsewhere = ["--home", str(site.folder / "other"), *again]
    with pytest.raises(RefusedError, match="was not paid for"):
        site.typed(*elsewhere, out="third.parquet")


def test_patients(site: Site) -> None:
    result = site.typed("--group", "patient")
    made = json.loads(result.stdout)
    assert made["unit"] == "patient"
    assert site.ledger.cumulative_epsilon(Delta(1e-5)).unit == "patient"
    # A row that is altered is not what was paid for.
    words = "all records of one patient at one party added or removed"
    assert made["own_figure"]["neighbours"] == words
    assert f"adjacency: {words}; observer" in result.stderr
    shown = typed("ledger", "--home", str(site.home)).stdout
    assert shown.count(f"adjacency: {words}; observer") == 2
    assert "altered" not in shown + result.stderr
    told = json.loads(typed("ledger", "--home", str(site.home), "--json").stdout)
    assert told["own_figure"]["neighbours"] == words


def test_nothing_tells_how_long_a_model_was_learned(site: Site) -> None:
    """That grows with the number of records."""
    site.makes("--epsilon", "0.5")
    (record,) = site.ledger.syntheses()
    day = record.reserved_at[:10]
    shown = typed("ledger", "--home", str(site.home)).stdout
    assert f"reserved on {day}\n" in shown
    body = typed("ledger", "--home", str(site.home), "--json").stdout
    (told,) = json.loads(body)["synthetic_rows"]
    assert told["reserved_on"] == day
    clock = re.compile(r"[0-9]{2}:[0-9]{2}")
    assert clock.search(record.reserved_at) is not None
    assert clock.search(shown + body) is None


def test_plausible_deniability_is_told_only_for_a_k_that_holds(site: Site) -> None:
    assert "deniability with k=300 holds automatically" in site.told("--k", "300", out="1.parquet")
    none = site.told("--k", "301", out="2.parquet")
    assert "no row has a seed" in none
    assert "301" not in none
    assert "deniability with" not in none


def test_a_new_ledger_is_reported(site: Site) -> None:
    """The same records under another name would have a second budget."""

    words = "has no ledger yet, so a new one begins, in which nothing was ever charged"
    assert words in site.told("--dry-run", out="1.parquet")
    first = site.told(out="1.parquet")
    assert f"{site.home} {words}" in first
    assert (
        "another ledger, which this one knows nothing of: choose it with --home or --name" in first
    )
    assert words not in site.told(out="2.parquet")
    assert words not in site.told("--dry-run", out="3.parquet")


def test_a_dry_run_writes_nothing(site: Site) -> None:
    made = site.makes("--dry-run")
    assert made["dry_run"] is True
    assert made["own_figure"]["epsilon"] <= 1
    assert not site.home.exists()
    assert not list(site.folder.glob("*.parquet"))
    site.makes("--epsilon", "3")
    head = site.ledger.head
    both = site.makes("--dry-run", out="other.parquet")
    assert both["own_figure"]["epsilon"] > 2
    assert site.ledger.head == head


def test_the_ledger_command_has_both(site: Site) -> None:
    own_ledger = PartyLedger(site.home / LEDGER_FILE)
    answer(own_ledger, settled(), queries(0, 100))
    site.makes("--epsilon", "0.5")
    shown = typed("ledger", "--home", str(site.home))
    assert "cost: pure epsilon 0.5, rho" in shown.stdout
    assert "1 campaign and 1 release of synthetic rows together" in shown.stdout
    made = json.loads(typed("ledger", "--home", str(site.home), "--json").stdout)
    (rows,) = made["synthetic_rows"]
    assert (rows["epsilon"], rows["state"]) == ("1/2", "spent")
    assert made["own_figure"]["epsilon"] == site.ledger.cumulative_epsilon(Delta(1e-5)).epsilon


# --- several parties -----------------------------------------------------------------------------


def test_files_of_several_parties_make_one_public_set(site: Site) -> None:
    site.makes()
    site.home = site.folder / "other home"
    site.makes("--method", "cfs", out="second.parquet")
    one, two, out = (
        str(site.folder / name) for name in ("out.parquet", "second.parquet", "all.parquet")
    )
    result = typed("merge", one, two, "--out", out, "--json")
    told = json.loads(result.stdout)
    table, about = read(site.folder / "all.parquet")
    assert len(table) == told["rows"] == sum(each.rows for each in about.sources)
    assert len(table) == len(set(table.row_hashes()))
    assert [each.method for each in about.sources] == ["l1", "cfs"]
    both = set(read_inputs(site.folder / "out.parquet").row_hashes())
    both |= set(read_inputs(site.folder / "second.parquet").row_hashes())
    assert set(table.row_hashes()) == both


def test_files_of_other_schemas_do_not_merge(site: Site) -> None:
    site.makes()
    site.schema(SCHEMA | {"min_rows": 301})
    site.makes(out="second.parquet")
    files = [str(site.folder / name) for name in ("out.parquet", "second.parquet")]
    with pytest.raises(SchemaError, match="different schemas"):
        typed("merge", *files, "--out", str(site.folder / "all.parquet"))
    plain = site.folder / "plain.parquet"
    pq.write_table(pq.read_table(files[0]).replace_schema_metadata(None), plain)
    with pytest.raises(DataError, match="has no metadata of synthetic rows"):
        typed("merge", str(plain), "--out", str(site.folder / "all.parquet"))


# --- options: exit code 2 ------------------------------------------------------------------------


SEEDED = ("--method", "cfs", "--release", "seeded")


def test_options_that_make_no_sense(site: Site) -> None:
    for options, words in (
        (("--rows", "0"), "--rows must be a whole number from 1"),
        (("--epsilon", "0"), "--epsilon must be a number above 0"),
        (("--epsilon", "-1"), "--epsilon is a number such as"),
        (("--epsilon", "nan"), "--epsilon is a number such as"),
        (("--delta", "1"), "--delta must be between 0 and 1"),
        (("--attempts", "10"), "--attempts is for seeds"),
        (("--omega", "2"), "--omega is for seeds"),
        (("--release", "seeded"), "--release seeded goes with --method cfs, not l1"),
        ((*SEEDED, "--gamma", "1"), "gamma must be exact, above 1"),
        ((*SEEDED, "--k", "0"), "k counts records"),
        (("--k", "0"), "--k counts records"),
        (("--gamma", "1"), "--gamma is a number above 1, got 1"),
        ((*SEEDED, "--omega", "5"), "--omega must be between 1 and the 4 columns"),
        ((*SEEDED, "--omega", "0-2"), "--omega must be between 1 and the 4 columns"),
        ((*SEEDED, "--omega", "many"), "--omega is a number, or some"),
        ((*SEEDED, "--attempts", "0"), "--attempts must be a whole number of at least 1"),
        (("--max-delta", "1e-6"), "which is missing"),
        (("--max-epsilon", "0"), "--max-epsilon must be a number above 0"),
        (
            ("--max-epsilon", "5", "--max-delta", "0"),
            "--max-epsilon: delta must be between 0 and 1",
        ),
    ):
        site.fails(UsageError, words, *options)


def test_places_that_cannot_be_are_told_before_anything_is_paid(site: Site) -> None:
    site.fails(UsageError, "must end in .parquet", out="rows.csv")
    site.fails(UsageError, "there is no folder", out="none/rows.parquet")
    (site.folder / "model.safetensors").touch()
    site.fails(UsageError, "exists already", "--model-out", str(site.folder / "model.safetensors"))


# --- data: exit code 10 --------------------------------------------------------------------------


def test_data_that_the_schema_does_not_describe(site: Site) -> None:
    site.rows[16][1] = "99"
    site.write()
    site.fails(DataError, r"data.csv: row 17, column age: 99 outside 18..80", "--strict")
    site.write("patient,age,sex,room,ill")
    site.fails(DataError, "lacks column 'ward'", "--strict")
    site.rows = [row[:-1] for row in site.rows]
    site.write("patient,age,sex,ward")
    site.fails(DataError, "lacks column 'ill' of the schema")


def test_a_row_that_the_schema_does_not_describe_takes_no_part(site: Site) -> None:
    """It decides neither whether there is a release nor what is made of any other row."""
    domain = read_schema(site.folder / "schema.json")
    before = read_rows(site.folder / "data.csv", domain, drop=("patient",))
    words = "its cell in column 'age' is not in the schema"
    site.rows.insert(17, ["new", "", "F", "a", "yes"])
    for cell in ("99", "old", "inf", "", ">150", "12,5"):
        site.rows[17][1] = cell
        site.write()
        after = read_rows(site.folder / "data.csv", domain, drop=("patient",))
        assert (after.codes == before.codes).all()
        assert "1 record (line 19) takes no part" in after.odd.lines()[0]
        assert words in after.odd.lines()[0]
    result = site.typed("--drop", "patient")
    assert result.exit_code == 0
    assert words in result.output


def test_a_patient_with_two_rows_takes_no_part(site: Site) -> None:
    domain = read_schema(site.folder / "schema.json")
    before = read_rows(site.folder / "data.csv", domain, group="patient")
    site.rows += [
        ["new", "40", "F", "a", "yes"],
        ["new", "41", "F", "a", "yes"],
        ["", *site.rows[0][1:]],
    ]
    site.write()
    after = read_rows(site.folder / "data.csv", domain, group="patient")
    assert (after.codes == before.codes).all()
    assert len(after.odd.lines()) == 2


def test_all_columns_that_do_not_fit_are_named_and_can_be_left_out_at_once(site: Site) -> None:
    site.rows = [[*row, "1", "2"] for row in site.rows]
    site.write("patient,age,sex,ward,ill,room,bed")
    domain = read_schema(site.folder / "schema.json")
    with pytest.raises(
        DataError, match="columns 'patient', 'room', 'bed' that the schema does not"
    ):
        read_rows(site.folder / "data.csv", domain)
    found = read_rows(site.folder / "data.csv", domain, columns_of_schema=True)
    assert found.codes.shape == (len(site.rows), 4)
    named = site.typed("--columns-of-schema", "--dry-run")
    assert named.exit_code == 0


def test_cells_are_read_as_the_site_says_it_writes_them(site: Site) -> None:
    """By the schema's kinds and the site's own words, so that no record changes how another is read."""
    site.schema(
        SCHEMA
        | {
            "columns": [
                SCHEMA["columns"][0] | {"missing": True, "integer": False},
                *SCHEMA["columns"][1:],
            ]
        }
    )
    domain = read_schema(site.folder / "schema.json")
    for at, cell in enumerate(("33,5", "NA", "-", "n/a", "999")):
        site.rows[at][1] = cell
    site.write()
    path, reading = site.folder / "data.csv", Reading.of("comma", ["999"])
    found = read_rows(path, domain, columns_of_schema=True, reading=reading)
    assert found.codes[:5, 0].tolist() == [1, 6, 6, 6, 6]
    assert len(read_rows(path, domain, columns_of_schema=True).codes) == len(site.rows) - 2


def test_too_few_rows_and_none(site: Site) -> None:
    del site.rows[299:]
    site.write()
    site.fails(DataError, "fewer rows than min_rows of the schema, 300")
    site.rows = []
    site.write()
    site.fails(DataError, "holds no records")


def test_a_patient_with_two_rows(site: Site) -> None:
    site.rows[20][0] = "p7"
    site.write()
    with pytest.raises(
        DataError, match=r"the patient of row 8 \(column patient\) has several rows"
    ):
        site.typed("--group", "patient", "--strict")
    site.rows[20][0] = ""
    site.write()
    nobody = r"line 22 has no value in the group \(patient\) column 'patient'"
    with pytest.raises(DataError, match=nobody):
        site.typed("--group", "patient", "--strict")
    site.rows[20][0] = "NaN"
    site.write()
    with pytest.raises(DataError, match=nobody):
        site.typed("--group", "patient", "--strict")
    with pytest.raises(
        DataError, match=r"has no group \(patient\) column 'name'; it has: patient, age"
    ):
        site.typed("--group", "name")
    assert not list(site.folder.glob("*.parquet"))


def test_a_patient_written_in_two_ways_is_one(site: Site) -> None:
    """As where records vote: two texts of one number are one patient."""
    for one, other in (("7", "7.0"), ("007", "7"), ("+7", "7e0")):
        site.rows[3][0], site.rows[30][0] = one, other
        site.write()
        with pytest.raises(
            DataError, match=r"patient of row 4 \(column patient\) has several rows"
        ):
            site.typed("--group", "patient", "--strict")
    assert not list(site.folder.glob("*.parquet"))


def test_patients_with_long_numbers_are_told_apart(site: Site) -> None:
    """Floats would make two of them one."""
    site.rows = [[str(10**17 + at), *row[1:]] for at, row in enumerate(site.rows)]
    site.write()
    assert site.typed("--group", "patient").exit_code == 0


def test_patients_in_a_folder_and_in_parquet(site: Site) -> None:
    folder = site.folder / "records"
    folder.mkdir()
    names = ("patient", "age", "sex", "ward", "ill")
    cells = zip(*site.rows, strict=True)
    pq.write_table(pa.table(dict(zip(names, map(list, cells), strict=True))), folder / "a.parquet")
    each = ("--group", "patient")
    assert json.loads(site.typed(*each, data="records").stdout)["unit"] == "patient"
    (folder / "b.csv").write_text("patient\n1\n")
    with pytest.raises(
        DataError, match=r"records holds several data files .*; give the path of one"
    ):
        site.typed(*each, data="records", out="second.parquet")
    with pytest.raises(DataError, match="no file or folder"):
        site.typed(*each, data="none", out="second.parquet")


def test_images_are_refused_with_what_to_do(site: Site) -> None:
    folder = site.folder / "scans" / "healthy"
    folder.mkdir(parents=True)
    Image.new("L", (4, 4)).save(folder / "1.png")
    site.fails(DataError, "--aggregator neighbour, or take a public set", data="scans")


# --- schema: exit code 11 ------------------------------------------------------------------------


def test_a_schema_that_is_none(site: Site) -> None:
    (site.folder / "schema.json").write_text("{}")
    site.fails(SchemaError, "pate-synthesis-schema/1")


def test_a_column_of_one_code_is_warned_of(site: Site) -> None:
    columns = [*SCHEMA["columns"]]
    columns[1] = {"name": "sex", "kind": "category", "codes": ["F"]}
    site.schema(SCHEMA | {"columns": columns})
    site.rows = [[*row[:2], "F", *row[3:]] for row in site.rows]
    site.write()
    result = site.typed("--drop", "patient")
    assert "column 'sex' has one code" in result.stderr


def test_an_enrolled_party_takes_only_its_coordinators_schema(site: Site) -> None:
    now = dt.datetime.now(dt.UTC)
    identities = Identities.create(site.folder / "server", (), 9092, now)
    bundle = identities.invite("hospital", now=now, server="127.0.0.1:9092")
    enrol(bundle, site.home, file=site.folder / "answer", send=False)
    site.fails(SchemaError, "is not signed: .* is missing")
    schema = site.folder / "schema.json"
    signature = schema.with_name(schema.name + SUFFIX)
    signature.write_bytes(sign(schema.read_bytes(), identities.signing_key))
    site.makes()
    site.schema(SCHEMA | {"min_rows": 299})
    with pytest.raises(SchemaError, match="not the one that was signed"):
        site.typed("--drop", "patient", out="other.parquet")


# --- budget: exit code 20 ------------------------------------------------------------------------


def test_what_does_not_fit_the_policy(site: Site) -> None:
    site.home.mkdir()
    (site.home / POLICY_FILE).write_text("largest_epsilon = 1.0")
    words = "; --epsilon 1 would fit$"
    site.fails(BudgetError, words, "--epsilon", "2")
    site.fails(BudgetError, "largest_epsilon of our policy is 1", "--epsilon", "2", "--dry-run")
    site.makes("--epsilon", "0.9")
    with pytest.raises(BudgetError, match=r"0.9 is spent.*would fit"):
        site.typed("--drop", "patient", "--epsilon", "0.9", out="other.parquet")
    assert len(site.ledger.syntheses()) == 1


def test_what_would_fit_does_fit(site: Site) -> None:
    with pytest.raises(BudgetError) as found:
        site.typed("--drop", "patient", "--epsilon", "3", "--max-epsilon", "0.7")
    most = str(found.value).split("--epsilon ")[1].split()[0]
    site.makes("--epsilon", most, "--max-epsilon", "0.7")
    assert 0.6 < site.ledger.cumulative_epsilon(Delta(1e-5)).epsilon <= 0.7


@pytest.mark.parametrize("method", ["l1", "cfs"])
def test_a_budget_that_is_spent_is_told_as_that(site: Site, method: str) -> None:
    """No epsilon is small enough for it, and too small a one has no noise."""
    site.makes("--epsilon", "1", "--max-epsilon", "1")
    with pytest.raises(BudgetError, match=r"is spent\); nothing more fits"):
        site.typed(
            "--drop", "patient", "--method", method, "--max-epsilon", "1", out="second.parquet"
        )
    assert len(site.ledger.syntheses()) == 1


def test_votes_before_count(site: Site) -> None:
    own_ledger = PartyLedger(site.home / LEDGER_FILE)
    answer(own_ledger, settled(public_queries=10**4, cap=Fraction(10)), queries(0, 1000))
    site.fails(
        BudgetError,
        r"epsilon would be 5.97.*\(5.2591 is spent\); --epsilon 0.41 would fit",
        "--max-epsilon",
        "5.7",
    )


def test_seeds_are_refused_with_the_price_of_none(site: Site) -> None:
    """At a hospital's size seed-based rows never fit; the message names what would."""
    site.fails(
        BudgetError,
        r"25 attempts with k=50 gamma=4 eps0=1 cost eps=\d+.* \(delta 1e-06\); .*; seedless: eps=1$",
        *SEEDED,
    )


def test_the_unit_has_to_be_one_of_the_policys(site: Site) -> None:
    site.home.mkdir()
    (site.home / POLICY_FILE).write_text('units = ["patient"]')
    site.fails(RefusedError, "units is patient, and these rows would protect a record")
    assert site.typed("--group", "patient").exit_code == 0


# --- infeasible: exit code 23 ------------------------------------------------------------------


def test_no_such_guarantee(site: Site) -> None:
    site.fails(InfeasibleError, r"needs k >= \d+", *SEEDED, "--k", "10")
    site.fails(InfeasibleError, "k = 5000 is more than the", *SEEDED, "--k", "5000")


def test_a_seeded_release_that_fits(site: Site) -> None:
    site.home.mkdir()
    (site.home / POLICY_FILE).write_text("largest_epsilon = 2000.0")
    site.schema(SCHEMA | {"min_rows": 400})
    # At least a quarter of the attempts pass: all of 60 fail with a probability below 1e-7.
    made = site.makes(*SEEDED, "--rows", "48", "--omega", "3-4")
    assert 0 < made["rows"] <= 48
    (record,) = site.ledger.syntheses()
    kept = record.synthesis
    assert kept.settings["attempts"] == "60"
    assert kept.delta < Fraction(1, 10**6)
    assert kept.rho > 24  # each attempt has epsilon 1 and more
