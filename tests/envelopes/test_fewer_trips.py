"""Keys ahead in the first envelope, where the server knows the sealing keys already; and lies about it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from aggregator_server.exchange.store import FILE, Store
from party.cli.main import app
from party.identity.keys import identity_key, new_sealing_key, sealing_key
from pate.envelopes import opened
from pate.errors import RefusedError
from pate.formats.enrolment import SealingKey
from pate.masking.ahead.bundle import sign_sealing
from pate.masking.keys import KeyPair
from pate.runtime.command import program_of
from protos.envelopes import read_requests
from tests.support.world.envelopes import NAMES, Play, StuckError

if TYPE_CHECKING:
    from pathlib import Path

MASKED: dict[str, Any] = {"aggregation": "masked", "min_parties": 4, "colluders": 1}
#: Sums with noise of five parties, of which one may be missing, take no consent.
NOISY = MASKED | {"noise": "distributed", "epsilon": 50.0}


def asked(play: Play, name: str = "a") -> list[tuple[str, ...]]:
    """What each envelope for a party asked, by number."""
    found = []
    for number in range(1, 1 + sum(each.endswith(f".for-{name}.pate") for each in play.files)):
        path = play.root / "look.pate"
        path.write_bytes(play.files[f"campaign-0f0f0f0f.round-{number}.for-{name}.pate"])
        with opened(path) as envelope:
            found.append(tuple(dict.fromkeys(read_requests(envelope).kinds)))
    return found


FEWEST = [
    ("describe", "public_piece", "ask_bundles"),
    ("ask_masked_ahead",),
    ("ask_consent_ahead",),
    ("ask_opening_ahead",),
    ("finish",),
]


def test_enrolled_parties_send_keys_with_their_description(tmp_path: Path) -> None:
    play = Play(tmp_path, **MASKED).enrol()
    play.serve()
    assert play.responders() == NAMES
    assert asked(play) == FEWEST
    for name in NAMES:
        (bundle,) = play.ledger(name).bundles()
        assert bundle.round
    assert play.complaints() == []


def test_a_noisy_sum_of_most_takes_four_envelopes(tmp_path: Path) -> None:
    play = Play(tmp_path, **NOISY).enrol()
    play.serve()
    assert asked(play) == [each for each in FEWEST if each != ("ask_consent_ahead",)]


def test_a_party_with_a_new_sealing_key_is_asked_again(tmp_path: Path) -> None:
    """It answers the first envelope all the same; all make bundles again, and the server has learnt."""
    play = Play(tmp_path, **MASKED).enrol()
    assert play.identities is not None
    before = play.identities.enrolled()["c"].sealing
    new_sealing_key(play.home("c"))
    play.serve()
    assert play.responders() == NAMES
    assert asked(play) == [FEWEST[0], ("ask_bundles",), *FEWEST[1:]]
    after = play.identities.enrolled()["c"].sealing
    assert after is not None
    assert after != before
    assert [len(play.ledger(name).bundles()) for name in NAMES] == [2, 2, 1, 2, 2]


def test_a_server_that_starts_again_asks_the_same(tmp_path: Path) -> None:
    """Its list of parties has changed meanwhile; what the first envelopes ask has not."""
    play = Play(tmp_path, **MASKED).enrol()
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    play.carry(without=["e"])
    with pytest.raises(StuckError):
        play.serve()
    assert play.identities is not None
    identity, key = identity_key(play.home("e")), KeyPair(new_sealing_key(play.home("e"))).public
    learnt = SealingKey(key, sign_sealing("e", identity, key))
    play.identities.registry.seal("e", identity.public_key().public_bytes_raw(), learnt)
    play.carrier = play.carry
    play.serve()
    assert play.responders() == NAMES
    assert asked(play) == [FEWEST[0], ("ask_bundles",), *FEWEST[1:]]


def test_closing_leaves_the_first_envelopes_open(tmp_path: Path) -> None:
    """They are always waited for, whatever else is in them."""
    play = Play(tmp_path, **MASKED).enrol()
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    assert play.close_step() == []
    names = {name for name, _ in Store(play.path.parent / FILE).waiting()}
    assert names == set(NAMES)
    play.carrier = play.carry
    play.serve()
    assert asked(play) == FEWEST


def test_a_key_that_its_party_did_not_sign_costs_the_saving_only(tmp_path: Path) -> None:
    """The list of parties was altered: b's key stands in a's place."""
    play = Play(tmp_path, **MASKED).enrol()
    assert play.identities is not None
    enrolled = play.identities.enrolled()
    forged = enrolled["b"].sealing
    assert forged is not None
    play.identities.registry.seal("a", enrolled["a"].identity, forged)
    play.serve()
    assert asked(play) == [FEWEST[0][:2], ("ask_bundles",), *FEWEST[1:]]
    assert any("trip later: the sealing key of a is not signed" in each for each in play.lines.said)
    assert play.identities.enrolled()["a"].sealing == enrolled["a"].sealing


def test_a_first_envelope_that_comes_again_gives_the_same_bundles(tmp_path: Path) -> None:
    """The same file, and a party without what it answered: the same bytes, and no second bundle."""
    play = Play(tmp_path, **MASKED).enrol()
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    path = play.outgoing("a")
    assert path is not None
    first = play.answer(path, "a", play.root)
    sent = first.path.read_bytes()
    assert play.answer(path, "a", play.root).again
    assert first.path.read_bytes() == sent
    assert len(play.ledger("a").bundles()) == 1
    shutil.rmtree(play.home("a") / "envelopes")
    (play.folder / "in" / first.path.name).write_bytes(sent)
    play.carrier = play.carry
    play.serve()
    assert play.responders() == NAMES
    assert len(play.ledger("a").bundles()) == 1


def test_a_new_sealing_key_between_keys_and_votes_is_a_dropout(tmp_path: Path) -> None:
    """By the command. Shares for the old key do not open any more; the others are in the sum."""
    play = Play(tmp_path, **MASKED).enrol()

    def carrier() -> bool:
        late = any("round-2" in name for name in play.files)
        if late and not rotated:
            run = CliRunner().invoke(
                program_of(app),
                ["new-sealing-key", "--home", str(play.home("d")), "--json"],
                prog_name="pate-party",
            )
            assert run.exit_code == 0, run.output
            rotated.append(json.loads(run.stdout)["sealing"])
            path = play.outgoing("d")
            assert path is not None
            with pytest.raises(RefusedError, match=r"dropped .* by `pate-party new-sealing-key`"):
                play.answer(path, "d")
        return play.carry(without=["d"] if late else []) or (late and bool(play.close_step()))

    rotated: list[str] = []
    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert rotated == [KeyPair(sealing_key(play.home("d"))).public.hex()]
