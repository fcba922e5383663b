"""Masked sums by envelope for each mechanism, and keys ahead in the first envelope."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger.ledger import Ledger
from party.cli.main import app
from party.identity.keys import identity_key, new_sealing_key, sealing_key
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import ReadyVoters
from pate.data.values import Dataset
from pate.envelopes import opened
from pate.errors import RefusedError
from pate.formats.enrolment import SealingKey
from pate.masking.ahead.bundle import sign_sealing
from pate.masking.keys import KeyPair
from pate.runtime.command import program_of
from protos.envelopes import read_requests
from tests.support.world.envelopes import NAMES, PUBLIC, Play, StuckError
from tests.support.world.in_process import Killed, kills

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator_server.ledger.encoding import Probabilities
    from party.voting.voter import Voter


MASKED: dict[str, Any] = {
    "aggregation": "masked", "min_parties": 4, "colluders": 1, "epsilon": 50.0, "sigma2": Fraction(2),
}  # fmt: skip
#: Of 125 teachers.
CONFIDENT: dict[str, Any] = {"threshold": Fraction(75), "sigma1": Fraction(2)}
INTERACTIVE: dict[str, Any] = CONFIDENT | {
    "rounds": 3, "interactive_threshold": Fraction(60), "confidence": Fraction(9, 10),
    "first_round_share": Fraction(1, 2),
}  # fmt: skip


def labels(play: Play) -> dict[int, int]:
    with Ledger.open(play.path) as ledger:
        return {query: each.label for query, each in ledger.state().labels.items()}


def numbers(play: Play) -> set[int]:
    return {int(name.split(".")[1].removeprefix("round-")) for name in play.files}


def test_a_masked_sum_is_labelled(tmp_path: Path) -> None:
    """125 teachers agree; a noise of 2 is off by the 50 votes to the threshold once in 1e130 times."""
    play = Play(tmp_path, aggregator="confident-gnmax", **MASKED, **CONFIDENT)
    play.serve()
    assert play.responders() == NAMES
    assert labels(play) == dict.fromkeys(range(len(PUBLIC)), 0)


class Rounds(Play):
    """Records that vote in three rounds, by envelope."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            root, aggregator="neighbour", aggregation="masked", noise="distributed", min_parties=4,
            colluders=1, epsilon=50.0, code="dense-4 residual", representatives=(0, 1, 2, 4), rounds=3,
            classes=("x", "y"), most_votes=64, votes_per_patient=1,
        )  # fmt: skip

    def voter(self, name: str, **changes: Any) -> Voter:
        rows = np.random.default_rng(ord(name)).integers(0, len(PUBLIC), 20)
        data = Dataset(PUBLIC.take(rows.tolist()), (rows > 2).astype(np.int64), ("x", "y"), None)
        return super().voter(
            name, voters=ReadyVoters(records=NeighbourVotes(data, b"key")), **changes
        )


def test_records_vote_in_rounds_by_envelope(tmp_path: Path) -> None:
    """Each round has masked votes and an unmasking of its own, whoever is killed; all keys come at once."""
    points = ("model-recorded", "masked-kept", "replies-deleted")
    play, passed, killed = Rounds(tmp_path), Counter[str](), list[str]()

    def at(name: str) -> bool:
        passed[name] += 1
        return name in points and passed[name] == 2

    with kills(at):
        while play.state().phase != "finished":
            try:
                play.serve()
            except Killed as error:
                killed.append(str(error))
    state = play.state()
    assert (len(state.models), len(state.released)) == (3, 3)
    assert sorted(killed) == sorted(points)
    assert [batch.first for batch in state.batches] == [0, 4, 8]
    assert {batch.responders for batch in state.batches} == {NAMES}
    assert numbers(play) == set(range(1, 10))  # two for each round
    for name in NAMES:
        (record,) = play.ledger(name).campaigns()
        assert len(record.opened) == 3
    assert play.votes_on_disk() == []


def test_a_round_continues_without_a_party_whose_envelope_never_comes_back(tmp_path: Path) -> None:
    """The wait is closed once in each round: a lost party is asked in none of the later ones."""
    play, closed = Rounds(tmp_path), 0
    play.carrier = lambda: play.carry(without=("e",) if play.state().models else ())
    while play.state().phase != "finished":
        try:
            play.serve()
        except StuckError:
            closed += len(play.close_step())
            assert closed <= 1
    state = play.state()
    assert [batch.responders for batch in state.batches] == [NAMES, NAMES[:4], NAMES[:4]]
    assert state.spent == state.cap
    (record,) = play.ledger("e").campaigns()
    assert len(record.opened) == 1


class Student:
    """Predicts the class of the teachers, surely; the process of the server dies while it waits once."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.rounds: list[int] = []
        self.files: list[set[str]] = []

    def __call__(self, round_: int) -> Probabilities:
        self.rounds.append(round_)
        self.files.append(set(self._play.files))
        if self.rounds == [2]:
            raise StuckError
        return np.tile(np.array([1, 0], dtype=np.float32), (len(PUBLIC), 1))


def test_a_student_between_the_rounds_costs_no_envelope(tmp_path: Path) -> None:
    """All votes come before the first round; parties hear nothing of the rounds until the end."""
    play = Play(tmp_path, aggregator="interactive-gnmax", **MASKED, **INTERACTIVE)
    play.student = student = Student(play)
    with pytest.raises(StuckError):
        play.serve()
    play.serve()
    assert student.rounds == [2, 2, 3]
    assert student.files[0] == student.files[-1]
    assert play.responders() == NAMES
    assert numbers(play) == {1, 2, 3, 4, 5, 6}  # as many as of gnmax
    assert labels(play) == dict.fromkeys(range(len(PUBLIC)), 0)
    for name in NAMES:
        (record,) = play.ledger(name).campaigns()
        assert len(record.batches) == 1


KEYS_AHEAD: dict[str, Any] = {"aggregation": "masked", "min_parties": 4, "colluders": 1}
#: Sums with noise of five parties, of which one may be missing, take no consent.
NOISY = KEYS_AHEAD | {"noise": "distributed", "epsilon": 50.0}


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
    """In the first envelopes, which are always waited for, whatever else is in them.

    One comes twice, to a party without what it answered: the same bytes, and no second bundle.
    """
    play = Play(tmp_path, **KEYS_AHEAD).enrol()
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    assert play.close_step() == []
    names = {name for name, _ in Store(play.path.parent / FILE).waiting()}
    assert names == set(NAMES)
    path = play.outgoing("a")
    assert path is not None
    first = play.answer(path, "a", play.root)
    sent = first.path.read_bytes()
    assert play.answer(path, "a", play.root).again
    assert first.path.read_bytes() == sent
    shutil.rmtree(play.home("a") / "envelopes")
    (play.folder / "in" / first.path.name).write_bytes(sent)
    play.carrier = play.carry
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
    play = Play(tmp_path, **KEYS_AHEAD).enrol()
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
    play = Play(tmp_path, **KEYS_AHEAD).enrol()
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


def test_a_key_that_its_party_did_not_sign_costs_the_saving_only(tmp_path: Path) -> None:
    """The list of parties was altered: b's key stands in a's place."""
    play = Play(tmp_path, **KEYS_AHEAD).enrol()
    assert play.identities is not None
    enrolled = play.identities.enrolled()
    forged = enrolled["b"].sealing
    assert forged is not None
    play.identities.registry.seal("a", enrolled["a"].identity, forged)
    play.serve()
    assert asked(play) == [FEWEST[0][:2], ("ask_bundles",), *FEWEST[1:]]
    assert any("trip later: the sealing key of a is not signed" in each for each in play.lines.said)
    assert play.identities.enrolled()["a"].sealing == enrolled["a"].sealing


def test_a_new_sealing_key_between_keys_and_votes_is_a_dropout(tmp_path: Path) -> None:
    """By the command. Shares for the old key do not open any more; the others are in the sum."""
    play = Play(tmp_path, **KEYS_AHEAD).enrol()

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
