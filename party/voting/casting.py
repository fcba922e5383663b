"""Votes of a party's teachers, or of its records, on a batch: computed once, then stored."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from party.voting.cache import VoteCache
from party.voting.request import ByQuery, LabelEnsemble, OneRelease
from pate.runtime.failpoints import reach
from protos.masked import shown_in
from protos.terms import code_in, votes_per_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from party.voting.neighbour import NeighbourVotes
    from party.voting.request import Ensemble
    from party.voting.series import SeriesVoters
    from pate.data.values import Inputs
    from pate.votes import Counts
    from protos.pate.v1 import vote_pb2


@dataclass(frozen=True)
class Casting:
    """How votes on a batch are computed.

    Attributes:
        source: digest of all that they depend on, besides the queries.
        compute: given rows of the batch, (n,) int64, returns (n, classes) int64 votes on them.
    """

    source: bytes
    compute: Callable[[NDArray[np.int64]], Counts]

    def votes(self, store: Path, classes: tuple[str, ...], hashes: Sequence[bytes]) -> Counts:
        """Return the votes on a batch; those that are stored are not computed again.

        Args:
            store: file of stored votes.
            classes: of the campaign, in the order of the columns.
            hashes: of the queries.
        """
        cache = VoteCache(store, ensemble=self.source, classes=classes)
        return cache.votes(hashes, self.compute, before_store=lambda: reach("voting"))


def of_teachers(
    teachers: Ensemble, public: Inputs, batch: vote_pb2.Batch, campaign: vote_pb2.Campaign
) -> Casting:
    """Return how teachers vote on the queries of a batch of a public set.

    For several labels it depends on how many of them count, for a class in one release on the whole
    public set and all queries.
    """
    code, about = code_in(campaign), campaign.code.encode()
    if code.of_teachers and not code.answer.of:
        cast = partial(_cast_once, teachers, public, tuple(batch.rows), campaign)
        about += batch.digest + campaign.public_set
    else:
        cast = partial(_poll, teachers, public.take(list(batch.rows)), campaign)
    return Casting(_source(teachers.fingerprint, about), cast)


def of_records(
    records: NeighbourVotes,
    public: Inputs,
    batch: vote_pb2.Batch,
    campaign: vote_pb2.Campaign,
    voters: SeriesVoters | None,
) -> Casting:
    """Return how records vote on a batch of a public set; in a series only ``voters`` do.

    Where a record votes depends on all queries of the batch, the public set and the code, in rounds also
    on the model that is shown, which the batch's digest covers; limits and clipping depend on the
    campaign, and in a series who votes. Stored votes must match all of these.
    """
    held_to = f"{votes_per_patient(campaign)} {campaign.most_votes}{campaign.code}"
    about = batch.digest + campaign.public_set + held_to.encode()
    if voters is not None:
        about += b"".join(voters.units)
    which = None if voters is None else voters.rows
    cast = partial(_cast, records, public, batch, campaign, which)
    return Casting(_source(records.fingerprint, about), cast)


def _source(fingerprint: bytes, about: bytes) -> bytes:
    return hashlib.sha256(fingerprint + about).digest() if about else fingerprint


def _poll(
    teachers: Ensemble, queries: Inputs, campaign: vote_pb2.Campaign, rows: NDArray[np.int64]
) -> Counts:
    """Return the teachers' votes on some of the queries."""
    code = code_in(campaign)
    if not code.of_teachers:
        assert isinstance(teachers, ByQuery)  # noqa: S101 - others are of one release
        return teachers.vote(queries.take(rows), tuple(campaign.classes))
    assert isinstance(teachers, LabelEnsemble)  # noqa: S101 - checked with its answer
    return teachers.vote_labels(queries.take(rows), tuple(campaign.classes), code.answer.most)


def _cast_once(
    teachers: Ensemble,
    public: Inputs,
    queries: tuple[int, ...],
    campaign: vote_pb2.Campaign,
    rows: NDArray[np.int64],
) -> Counts:
    """Return some rows of what teachers cast in one release."""
    assert isinstance(teachers, OneRelease)  # noqa: S101 - all kinds of teachers of a class
    votes = teachers.vote_once(public, queries, tuple(campaign.classes), code_in(campaign))
    return votes[rows]


def _cast(
    records: NeighbourVotes,
    public: Inputs,
    batch: vote_pb2.Batch,
    campaign: vote_pb2.Campaign,
    voters: NDArray[np.int64] | None,
    rows: NDArray[np.int64],
) -> Counts:
    """Return the records' votes on some of the queries; they are cast on all of them."""
    votes = records.vote(
        public,
        tuple(batch.rows),
        tuple(campaign.classes),
        votes_per_patient=votes_per_patient(campaign),
        most_votes=campaign.most_votes,
        code=code_in(campaign),
        voters=voters,
        shown=shown_in(batch, len(campaign.classes)),
    )
    return votes[rows]


def votes_per_patient(campaign: vote_pb2.Campaign) -> int | None:
    """Return the charged votes per patient. None: each record has one."""
    return votes_per_unit(campaign) if campaign.unit == "patient" else None
