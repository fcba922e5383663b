"""Conformance check of a kind of teachers, for plugin authors.

The guarantee of a campaign relies on it: a record reaches one teacher, and a teacher's votes depend
only on its own shard, the seed, and the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from party.teachers.protocol import NO_OPINION

if TYPE_CHECKING:
    from party.teachers.protocol import Kind, Labels
    from pate.data.values import Dataset, Inputs


class NotConformingError(AssertionError):
    """A kind of teachers violates a rule; the message names it."""


def check_kind(kind: Kind, shard: Dataset, queries: Inputs) -> None:
    """Check a kind of teachers on one shard; it is fitted twice.

    Args:
        kind: to be checked.
        shard: labelled records of two classes or more.
        queries: two or more, of the same schema.

    Raises:
        NotConformingError: naming the violated rule.
    """
    teacher = kind.fit(shard, seed=1)
    votes = teacher.predict(queries)
    _require(
        votes.shape == (len(queries),) and votes.dtype == np.int64,
        f"predict returns (n,) int64, not {votes.shape} {votes.dtype}",
    )
    _require(
        bool(np.all((votes >= NO_OPINION) & (votes < len(shard.classes)))),
        "predict returns indices into the class list, or NO_OPINION",
    )
    _require(_same(kind.fit(shard, seed=1).predict(queries), votes), "a seed decides everything")
    single = [teacher.predict(queries.take(np.array([row]))) for row in range(len(queries))]
    _require(_same(np.concatenate(single), votes), "a query's vote depends on only that query")
    restored = kind.restore(teacher.store())
    _require(_same(restored.predict(queries), votes), "a stored teacher votes as it did")


def _same(one: Labels, other: Labels) -> bool:
    return bool(np.array_equal(one, other))


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise NotConformingError(rule)
