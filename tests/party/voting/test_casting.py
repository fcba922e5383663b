"""What leaves of teachers' votes in one release is what the teachers cast, and nothing without data."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.ledger.sent_votes import tags_of
from party.teachers.ensemble import Averaged
from party.voting.casting import Casting
from party.voting.own_data import OwnVoters, Training
from party.voting.own_file import OwnFile
from pate.campaign.announced import Announced
from pate.campaign.offer import Offer
from pate.campaign.roster import SumTerms
from pate.codes import GRID, adjacency_for, code_of
from pate.data.read import read_inputs
from pate.data.values import batch_hash, content_hash
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Literal

    from pate.data.values import Inputs
    from pate.votes import Counts

CLASSES = ("no", "yes")
NAMES = ("sex", "stage", "smoker")


def announced(public: Inputs, code: str, unit: Literal["record", "party"]) -> Announced:
    return Announced(
        id="00" * 16,
        aggregator="gnmax",
        sums=SumTerms(min_parties=1),
        public_set=content_hash(public).hex(),
        queries=len(public),
        schema=public.schema(),
        epsilon=1.0,
        delta=1e-5,
        unit=unit,
        classes=CLASSES,
        code=code,
    )


def voters(file: Path, teachers: int = 1, model: str = "auto") -> OwnVoters:
    @contextmanager
    def shown() -> Iterator[Callable[[int, int], None]]:
        yield lambda *_: None

    how = Training(teachers=teachers, model=model, device="cpu", home=file.parent, shown=shown)
    return OwnVoters(
        OwnFile(data=file, label="label"),
        training=how,
        records=False,
        key=b"q" * 32,
        say=lambda _: None,
        warn=lambda _: None,
    )


def table(path: Path, rows: np.ndarray, labels: Sequence[str] | None = None) -> Path:
    """Write rows of three categories, and labels if these are records."""
    head = ",".join(NAMES) + (",label" if labels is not None else "")
    lines = [",".join(f"v{cell}" for cell in row) for row in rows.tolist()]
    if labels is not None:
        lines = [f"{line},{label}" for line, label in zip(lines, labels, strict=True)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def drawn(rng: np.random.Generator, number: int) -> np.ndarray:
    return np.stack([rng.integers(0, most, number) for most in (2, 3, 2)], axis=1)


def left(own: OwnVoters, campaign: Announced, public: Inputs, rows: list[int]) -> Counts:
    """Return the votes on queries as they leave, out of the store and into it."""
    who = own.voters(campaign)
    hashes = who.conform(public.take(rows)).row_hashes()
    batch = vote_pb2.Batch(rows=rows, digest=batch_hash(public.take(rows).row_hashes()))
    offer = Offer(key=b"k" * 32, announced=campaign)
    casting = Casting.of(who, public, batch, offer)
    store = own._file.data.parent / "votes.db"
    first = casting.votes(store, CLASSES, hashes)
    assert (casting.votes(store, CLASSES, hashes) == first).all()
    return first


def test_rows_of_an_array_leave_where_queries_are_alike(tmp_path: Path) -> None:
    """Twelve different inputs, nine of 600 rows asked for: some of these are the same input."""
    rng = np.random.default_rng(0)
    public = read_inputs(table(tmp_path / "public.csv", drawn(rng, 600)))
    rows = [at * 600 // 9 for at in range(9)]
    assert len(set(public.take(rows).row_hashes())) < 9
    cells = drawn(rng, 300)
    labels = np.where(cells[:, 1] + rng.normal(size=300) > 1, "yes", "no").tolist()
    own = voters(table(tmp_path / "own.csv", cells, labels))
    campaign = announced(public, "axes-9", "record")
    who = own.voters(campaign)
    assert isinstance(who, Averaged)
    made = who.vote(public, rows, CLASSES, code_of(campaign.code))
    assert (left(own, campaign, public, rows) == made).all()
    assert 0.5 * GRID < np.linalg.norm(made) <= GRID


def test_queries_that_are_alike_have_one_tag_of_all_their_votes() -> None:
    """A later batch in which one of them differs is known by it, and the order of rows counts."""
    key, one, two = b"k" * 32, b"1" * 32, b"2" * 32
    hashes = [one, two, one]
    votes = np.array([[3, 0], [1, 2], [0, 3]])
    first = tags_of(key, hashes, CLASSES, votes)
    assert first[0] == first[2] != first[1]
    assert first[1] == tags_of(key, [two], CLASSES, votes[1:2])[0]
    assert tags_of(key, hashes, CLASSES, votes[[2, 1, 0]])[0] != first[0]
    # Alike in their votes, too, they are one query.
    assert (
        tags_of(key, [one, one], CLASSES, votes[[0, 0]])[0]
        == tags_of(key, [one], CLASSES, votes[:1])[0]
    )


@pytest.mark.parametrize(
    ("code", "model"),
    [
        ("each-100", "auto"),
        ("each-100", "forest"),
        ("each-100 balanced", "auto"),
        ("axes-9", "auto"),
        ("axes-9", "forest"),
    ],
)
def test_a_party_without_data_casts_nothing_where_it_is_the_unit(
    tmp_path: Path, code: str, model: str
) -> None:
    """It is charged as one that comes or goes: what it casts is all that its data can change."""
    rng = np.random.default_rng(0)
    public = read_inputs(table(tmp_path / "public.csv", drawn(rng, 100)))
    rows = list(range(100)) if code.startswith("each") else [at * 100 // 9 for at in range(9)]
    campaign = announced(public, code, "party")
    cells = drawn(rng, 80)
    full, empty = tmp_path / "full", tmp_path / "empty"
    full.mkdir()
    empty.mkdir()
    with_data = voters(table(full / "own.csv", cells, ["no", "yes"] * 40), 2, model)
    without = voters(table(empty / "own.csv", cells, ["other"] * 80), 2, model)
    cast, nothing = (left(own, campaign, public, rows) for own in (with_data, without))
    assert not nothing.any()
    assert cast.any()
    adjacency = adjacency_for(code_of(code), "party")
    assert np.square(cast - nothing).sum() <= code_of(code).change(2, adjacency).squared


def test_where_a_record_is_the_unit_teachers_without_data_vote(tmp_path: Path) -> None:
    """One record that takes part, or not, then moves one teacher's vote, and silences none."""
    rng = np.random.default_rng(0)
    public = read_inputs(table(tmp_path / "public.csv", drawn(rng, 100)))
    own = voters(table(tmp_path / "own.csv", drawn(rng, 80), ["other"] * 80), 2)
    cast = left(own, announced(public, "each-100", "record"), public, list(range(100)))
    assert (cast.sum(axis=1) == 2).all()
