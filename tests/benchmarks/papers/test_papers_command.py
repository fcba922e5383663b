"""``python -m benchmarks.papers``: its output and its refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import dated
from benchmarks.papers.__main__ import main
from benchmarks.papers.rows import ROWS
from benchmarks.papers.runner import module_of
from pate.errors import DataError
from tests.support.benchmark_results import result

if TYPE_CHECKING:
    from pathlib import Path


def test_help_names_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    told = capsys.readouterr().out
    for row in ROWS.values():
        assert f"  {row.name} " in told
        assert row.title in told


@pytest.mark.parametrize("name", ROWS)
def test_each_row_has_its_data(name: str) -> None:
    assert callable(module_of(ROWS[name]).load)


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["cats"])
    assert stopped.value.code == 2
    assert "cats" in capsys.readouterr().err


def test_a_row_whose_files_are_not_here_says_which_would_make_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data.gz").touch()
    monkeypatch.setenv("PATE_TEST_DATA", str(tmp_path))
    code = main(["adult", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")])
    assert code == DataError.exit_code
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert "adult/adult.test.gz of PATE_TEST_DATA would make this row run" in told[0]
    assert "adult.data.gz" not in told[0]
    assert not (tmp_path / "out").exists()


def test_the_table_is_made_of_a_folder(tmp_path: Path) -> None:
    dated.write(result(), tmp_path)
    document = tmp_path / "results.md"
    assert main(["table", "--out", str(tmp_path), "--doc", str(document)]) == 0
    assert "Heart Disease" in document.read_text()


def test_an_empty_folder_makes_no_table(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    assert main(["table", "--out", str(tmp_path), "--doc", str(document)]) == DataError.exit_code
    assert not document.exists()
