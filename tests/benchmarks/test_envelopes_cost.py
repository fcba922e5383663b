"""A small run of the benchmark of envelopes: its command, its figures, its table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from benchmarks.costs import envelopes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_it_measures_whole_campaigns_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(envelopes, "QUERIES", {"teachers": 40, "records": 12})
    monkeypatch.setattr(sys, "argv", ["envelopes", "--quick", "--out", str(tmp_path / "figures")])
    envelopes.main()
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert json.loads((tmp_path / "figures" / "envelopes.json").read_text()) == found
    assert [(each["votes"], each["parties"]) for each in found["cases"]] == [
        ("teachers", 5),
        ("records", 5),
    ]
    for each in found["cases"]:
        files, messages = each["by_envelope"], each["online"]
        # A party answers fewer files than messages, and one more file tells it the end.
        assert 3 <= files["trips"] < messages["answers"]
        assert files["files"] == 2 * files["trips"] + 1
        # Files carry the same messages: their manifests and seals come on top.
        assert messages["bytes_from_party"] < files["bytes_from_party"]
        assert (
            0 < each["public_set_bytes"] < min(files["bytes_to_party"], messages["bytes_to_party"])
        )
        assert min(files["seconds"], messages["seconds"]) > 0
    head, _, *rows = said.err.strip().splitlines()
    assert len(rows) == 2
    assert {row.count("|") for row in rows} == {head.count("|")}
    assert rows[0].startswith("| teachers, 40 x 10 | 5 |")
