"""What a party stores of its votes: noise shares, bundles and rounds, and a cache."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from party.identity.keys import identity_key
from party.voting.ahead import AheadFile
from party.voting.casting import NoiseShares, VoteCache
from party.voting.voters import ReadyVoters
from pate.data.values import Images, batch_hash
from pate.errors import AccountingError, DiskError, RefusedError, StateError, UsageError
from pate.masking.ahead.store import Kind
from pate.mechanisms import DistributedGNMax
from pate.noise.exact import SystemNoise
from pate.votes import Counts
from protos.pate.v1 import vote_pb2
from tests.party.ledger.test_party_ledger import full_disk
from tests.support.campaign_messages import campaign_message, terms_message
from tests.support.party.asked import Asked, describe
from tests.support.world.in_process import Unanimous

ONE, TWO = b"1" * 16, b"2" * 16
A, B = b"a" * 32, b"b" * 32


def zeros(shape: tuple[int, int]) -> NDArray[np.int64]:
    return np.broadcast_to(np.int64(0), shape)


def gaussian(cells: int) -> NDArray[np.int64]:
    return SystemNoise().gaussian(Fraction(50), cells)


def never(cells: int) -> NDArray[np.int64]:
    raise AssertionError(f"drew {cells} a second time")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "noise.db"


def test_one_share_a_batch_for_ever(path: Path) -> None:
    shares = NoiseShares(path)
    first = shares.share(ONE, A, zeros((30, 10)), gaussian, answered=False)
    assert first.shape == (30, 10)
    assert first.dtype == np.int64
    for again in (shares, NoiseShares(path)):
        assert np.array_equal(again.share(ONE, A, zeros((30, 10)), never, answered=False), first)
    # Sigma 50: two of 300 equal draws each come with a chance far below 1e-100.
    for campaign, batch in ((ONE, B), (TWO, A)):
        assert not np.array_equal(
            shares.share(campaign, batch, zeros((30, 10)), gaussian, answered=False), first
        )
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_on_the_disk_before_it_is_used(path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "import numpy as np\n"
        "from pathlib import Path\n"
        "from party.voting.casting import NoiseShares\n"
        "votes = np.zeros((2, 3), np.int64)\n"
        "NoiseShares(Path(sys.argv[1])).share(b'1' * 16, b'a' * 32, votes, np.arange, answered=False)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == -9
    assert NoiseShares(path).share(ONE, A, zeros((2, 3)), never, answered=False).tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]


@settings(max_examples=30, deadline=None)
@given(
    drawn=arrays.arrays(
        np.int64,
        st.tuples(st.integers(1, 5), st.integers(1, 4)),
        elements=st.integers(-(2**31), 2**31 - 1),
    )
)
def test_every_32_bit_share_comes_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: NDArray[np.int64]
) -> None:
    path = tmp_path_factory.mktemp("shares") / "noise.db"
    shape = (drawn.shape[0], drawn.shape[1])
    assert np.array_equal(
        NoiseShares(path).share(ONE, A, zeros(shape), lambda _: drawn.ravel(), answered=False),
        drawn,
    )
    assert np.array_equal(
        NoiseShares(path).share(ONE, A, zeros(shape), never, answered=False), drawn
    )


@pytest.mark.parametrize("worst", [2**31, -(2**31) - 1, 2**62])
def test_noise_that_does_not_fit_is_refused_and_not_cut(path: Path, worst: int) -> None:
    shares = NoiseShares(path)
    with pytest.raises(AccountingError, match="32 bits"):
        shares.share(
            ONE, A, zeros((1, 2)), lambda _: np.array([0, worst], dtype=np.int64), answered=False
        )
    assert shares.share(ONE, A, zeros((1, 2)), np.arange, answered=False).tolist() == [
        [0, 1]
    ]  # nothing was kept


@pytest.mark.parametrize(
    "draw",
    [
        lambda cells: np.zeros(cells + 1, dtype=np.int64),
        lambda cells: np.zeros((cells, 1), dtype=np.int64),
        lambda cells: np.zeros(cells, dtype=np.float64),
        lambda cells: np.zeros(cells, dtype=np.uint64),
    ],
)
def test_draws_of_another_kind(path: Path, draw: Callable[[int], NDArray[np.int64]]) -> None:
    with pytest.raises(UsageError, match="int64 draws are wanted"):
        NoiseShares(path).share(ONE, A, zeros((2, 2)), draw, answered=False)


@pytest.mark.parametrize("shape", [(0, 10), (10, 0), (2**20, 2**10)])
def test_a_shape_that_no_batch_has(path: Path, shape: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="no noise share of shape"):
        NoiseShares(path).share(ONE, A, zeros(shape), never, answered=False)


def test_another_shape_for_the_same_batch_is_refused(path: Path) -> None:
    shares = NoiseShares(path)
    shares.share(ONE, A, zeros((4, 6)), gaussian, answered=False)
    for shape in ((6, 4), (4, 7), (3, 6)):
        with pytest.raises(RefusedError, match="had 4 rows of 6 classes before"):
            shares.share(ONE, A, zeros(shape), never, answered=False)


def test_a_full_disk(path: Path) -> None:
    shares = NoiseShares(path)
    kept = shares.share(ONE, A, zeros((100, 10)), gaussian, answered=False)
    with full_disk(path), pytest.raises(DiskError, match="make room"):
        shares.share(ONE, B, zeros((1000, 100)), gaussian, answered=False)
    assert np.array_equal(shares.share(ONE, A, zeros((100, 10)), never, answered=False), kept)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE shares SET noise = zeroblob(length(noise))",
        "UPDATE shares SET rows = 6, classes = 4",
        "UPDATE shares SET batch = zeroblob(32)",
        "UPDATE shares SET noise = zeroblob(4)",
    ],
)
def test_a_changed_share_is_not_used(path: Path, change: str) -> None:
    NoiseShares(path).share(ONE, A, zeros((4, 6)), gaussian, answered=False)
    with closing(sqlite3.connect(path)) as db, db:
        with pytest.raises(sqlite3.IntegrityError, match="kept as they are"):
            db.execute(change)
        db.execute("DROP TRIGGER shares_no_update")
        db.execute(change)
    db.close()
    batch = bytes(32) if "batch" in change else A
    with pytest.raises(StateError, match="damaged; restore it"):
        NoiseShares(path).share(ONE, batch, zeros((4, 6)), never, answered=False)


def test_another_file_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database, but long enough to be looked at as one" * 40)
    with pytest.raises(StateError, match="damaged"):
        NoiseShares(path)


def test_a_share_hides_no_other_votes(path: Path) -> None:
    """Two sums with the same share differ only by votes."""
    votes = np.array([[3, 0], [1, 2]], dtype=np.int64)
    first = NoiseShares(path).share(ONE, A, votes, gaussian, answered=False)
    assert np.array_equal(NoiseShares(path).share(ONE, A, votes, never, answered=False), first)
    for others in (votes[:, ::-1], votes[::-1], votes + 1):
        with pytest.raises(RefusedError, match="without noise"):
            NoiseShares(path).share(ONE, A, others, never, answered=False)


def test_a_batch_that_was_answered_gets_no_second_share(path: Path) -> None:
    """The file is gone, or a copy from before: the difference of two sums would be two shares'."""
    shares = NoiseShares(path)
    with pytest.raises(RefusedError, match=r"was answered, and .* has no noise for it"):
        shares.share(ONE, A, zeros((4, 6)), never, answered=True)
    kept = shares.share(ONE, A, zeros((4, 6)), gaussian, answered=False)
    assert np.array_equal(shares.share(ONE, A, zeros((4, 6)), never, answered=True), kept)


@pytest.fixture
def ahead(tmp_path: Path) -> Path:
    return tmp_path / "home" / "bundles.db"


def test_entries_come_back_after_a_restart(ahead: Path) -> None:
    AheadFile(ahead).change({(Kind.BOUND, b"x1"): b"one", (Kind.BOUND, b"y"): b"two"})
    again = AheadFile(ahead)
    assert again.get(Kind.BOUND, b"x1") == b"one"
    assert again.get(Kind.NOTE, b"x1") is None
    assert again.find(Kind.BOUND, b"x") == {b"x1": b"one"}
    assert again.find(Kind.BOUND) == {b"x1": b"one", b"y": b"two"}
    assert stat.S_IMODE(ahead.stat().st_mode) == 0o600


def test_an_entry_is_written_once_and_all_of_a_change_or_nothing(ahead: Path) -> None:
    file = AheadFile(ahead)
    file.change({(Kind.BOUND, b"x"): b"one"})
    file.change({(Kind.BOUND, b"x"): b"one", (Kind.NOTE, b"n"): b""})
    with pytest.raises(RefusedError, match="another entry"):
        file.change({(Kind.NOTE, b"m"): b"", (Kind.BOUND, b"x"): b"two"}, [(Kind.SHARES, b"s")])
    assert file.get(Kind.BOUND, b"x") == b"one"
    assert file.get(Kind.NOTE, b"m") is None
    assert file.get(Kind.NOTE, b"n") == b""


def test_secrets_are_removed_and_nothing_else_is(ahead: Path) -> None:
    file = AheadFile(ahead)
    file.change({(kind, b"k"): b"secret words" for kind in Kind})
    for kind in Kind:
        if kind in (Kind.UNUSED, Kind.SHARES, Kind.WAITING, Kind.MADE, Kind.ROSTER):
            file.change({}, [(kind, b"k")])
            assert file.get(kind, b"k") is None
            continue
        with pytest.raises(StateError):
            file.change({}, [(kind, b"k")])
        assert file.get(kind, b"k")
    with (
        closing(sqlite3.connect(ahead)) as db,
        db,
        pytest.raises(sqlite3.IntegrityError, match="kept"),
    ):
        db.execute("UPDATE entries SET value = x'00'")


def test_another_file_in_its_place(ahead: Path) -> None:
    ahead.parent.mkdir()
    ahead.write_bytes(b"")
    with pytest.raises(StateError, match="damaged"):
        AheadFile(ahead)
    ahead.unlink()
    with closing(sqlite3.connect(ahead)) as db, db:
        db.execute("CREATE TABLE entries (kind, key, value)")
    with pytest.raises(StateError, match="not a file of this kind"):
        AheadFile(ahead)


def test_only_what_is_missing_is_computed_however_many_are_held(tmp_path: Path) -> None:
    asked: list[int] = []

    def compute(rows: NDArray[np.int64]) -> Counts:
        asked.append(len(rows))
        return np.stack([rows, rows + 1], axis=1)

    cache = VoteCache(tmp_path / "votes.db", ensemble=b"e" * 32, classes=("x", "y"))
    queries = [at.to_bytes(32, "big") for at in range(1201)]
    first = cache.votes(queries[:700], compute)
    both = cache.votes(queries, compute)
    assert asked == [700, 501]
    np.testing.assert_array_equal(both[:700], first)
    np.testing.assert_array_equal(both[:, 0], np.arange(1201))
    backwards = cache.votes(queries[::-1], compute)
    np.testing.assert_array_equal(backwards, both[::-1])
    other = VoteCache(tmp_path / "votes.db", ensemble=b"o" * 32, classes=("x", "y"))
    other.votes(queries[:3], compute)
    assert asked == [700, 501, 3], "another ensemble has votes of its own"


def test_nothing_is_stored_for_a_step_before_its_turn(tmp_path: Path) -> None:
    """A server starts sums over ever new batches, and asks for masked votes without others' boxes."""
    public = Images(np.random.default_rng(0).integers(0, 255, (30, 4, 4, 1), dtype=np.uint8))
    hashes = public.row_hashes()
    keys = {name: identity_key(tmp_path / name).public_key().public_bytes_raw() for name in "abcd"}
    party = Asked(tmp_path / "a", ReadyVoters(Unanimous(1, "x")), public=public)
    campaign = campaign_message(
        public,
        terms_message(
            [(name, key, 1) for name, key in keys.items()],
            [DistributedGNMax(Fraction(8), 2, 1)],
            composition="zcdp",
            cap="4000",
        ),
        classes=("x", "y"),
        aggregation="masked",
        noise="distributed",
        min_parties=3,
        colluders=1,
        epsilon=1e5,
    )
    joined = campaign.copy()
    joined.terms = None
    assert party.tell(describe(), joined).WhichOneof("body") == "description", party.said
    for first in range(20):
        rows, attempt = [first, first + 3, first + 7], bytes([first]) * 16
        batch = vote_pb2.Batch(rows=rows, digest=batch_hash([hashes[row] for row in rows]))
        keyed = vote_pb2.AskKeys(attempt=attempt, batch=batch)
        reply = party.tell(vote_pb2.PartyRequest(ask_keys=keyed), campaign)
        assert reply.WhichOneof("body") == "keys", party.said
        masked = vote_pb2.AskMasked(attempt=attempt)
        party.refuses(
            party.tell(vote_pb2.PartyRequest(ask_masked=masked), campaign),
            "ProtocolError",
            "next is shares",
        )
    assert party.answered == 0
    assert not (tmp_path / "a" / "votes.db").exists()
    with closing(sqlite3.connect(tmp_path / "a" / "noise.db")) as db:
        assert db.execute("SELECT count(*) FROM shares").fetchone() == (0,)
