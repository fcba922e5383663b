"""Who takes part by envelope, as the options of the server say it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from aggregator_server.cli.main import app
from aggregator_server.envelopes.session import ByEnvelope, check_goes_by_envelope
from aggregator_server.envelopes.store import FILE, Store
from pate.errors import UsageError
from pate.runtime.command import program_of
from tests.support.server.campaigns import make_spec

NAMED = ("a", "b", "c")


def test_all_parties_or_some_of_them() -> None:
    spec = make_spec(parties=NAMED, min_parties=2)
    assert ByEnvelope(Path("x")).names(spec) == NAMED
    assert ByEnvelope(Path("x")).all_of(spec)
    some = ByEnvelope(Path("x"), ("b", "c"))
    assert some.names(spec) == ("b", "c")
    assert not some.all_of(spec)
    counted = make_spec(parties=3, min_parties=2)
    assert some.names(counted) == ("b", "c")


@pytest.mark.parametrize(
    ("chosen", "terms", "said"),
    [
        (None, {"parties": 3}, "each party must be named"),
        (("b", "zoe"), {"parties": NAMED}, "--by-envelope names zoe, not in --parties"),
        (
            None,
            {"parties": NAMED, "aggregation": "masked", "vote_proofs": True},
            "proofs of votes need a connection",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(
    chosen: tuple[str, ...] | None, terms: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ByEnvelope(Path("x"), chosen).names(make_spec(**({"min_parties": 3} | terms)))


def test_a_campaign_by_envelope_goes_on_by_envelope(tmp_path: Path) -> None:
    check_goes_by_envelope(tmp_path, None)
    Store(tmp_path / FILE)
    check_goes_by_envelope(tmp_path, ByEnvelope(tmp_path))
    with pytest.raises(UsageError, match="--envelopes DIR"):
        check_goes_by_envelope(tmp_path, None)


def test_names_and_days_need_a_folder(tmp_path: Path) -> None:
    (tmp_path / "public.npz").touch()
    for option in (["--by-envelope", "a"], ["--answer-days", "3"]):
        run = CliRunner().invoke(
            program_of(app),
            ["resume", *option, "--home", str(tmp_path), "--no-page"],
            prog_name="pate-server",
        )
        assert isinstance(run.exception, UsageError), run.output
        assert "need --envelopes DIR" in str(run.exception)
