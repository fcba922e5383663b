"""The committed code is what the .proto files make today."""

from __future__ import annotations

from pathlib import Path

from protos.generate import ROOT, generate


def test_generated_code_is_not_stale(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {p.relative_to(tmp_path): p.read_text() for p in tmp_path.rglob("*_pb2*")}
    held = {
        p.relative_to(ROOT): p.read_text()
        for p in (ROOT / "protos").rglob("*_pb2*.py*")
        if p.suffix != ".pyc"
    }
    assert made.keys() == held.keys()
    stale = sorted(str(name) for name in made if made[name] != held[name])
    assert not stale, f"stale: {stale}; run `make protos`"
