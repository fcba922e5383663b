from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.campaign.quota import quota_order
from pate.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Case = tuple[list[int], dict[int, int], NDArray[np.float32]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return an order over some of the queries, labels, and predictions with many ties."""
    queries, classes = draw(st.integers(0, 24)), draw(st.integers(1, 4))
    order = draw(st.permutations(range(queries)))[: draw(st.integers(0, queries))]
    labels = draw(
        st.dictionaries(st.integers(0, queries - 1), st.integers(0, classes - 1))
        if queries
        else st.just({})
    )
    cells = draw(
        st.lists(st.sampled_from((0.0, 0.25, 1.0)), min_size=queries * classes,
                 max_size=queries * classes)
    )  # fmt: skip
    return list(order), labels, np.array(cells, dtype=np.float32).reshape(queries, classes)


def by_the_text(order: list[int], labels: dict[int, int], scores: NDArray[np.float32]) -> list[int]:
    """The definition, one place at a time and without a heap."""
    counts = [list(labels.values()).count(at) for at in range(scores.shape[1])]
    left, found = [query for query in order if query not in labels], []
    while left:
        best = min(
            left, key=lambda query: (counts[int(scores[query].argmax())], order.index(query))
        )
        counts[int(scores[best].argmax())] += 1
        left.remove(best)
        found.append(best)
    return found + [query for query in order if query in labels]


@given(cases())
def test_it_is_what_the_text_says(case: Case) -> None:
    assert list(quota_order(*case)) == by_the_text(*case)


@given(cases())
def test_no_query_is_lost_or_doubled_and_classes_keep_their_order(case: Case) -> None:
    order, labels, scores = case
    found = quota_order(*case)
    assert sorted(found) == sorted(order)
    for at in range(scores.shape[1]):
        mine = [q for q in order if q not in labels and scores[q].argmax() == at]
        assert [q for q in found if q in set(mine)] == mine
    # No party asks for what is labelled: nothing waits behind it.
    free = len([q for q in order if q not in labels])
    assert not set(found[:free]) & labels.keys()


@given(cases())
def test_at_no_place_is_a_class_passed_over_that_had_fewer(case: Case) -> None:
    _, labels, scores = case
    found = [query for query in quota_order(*case) if query not in labels]
    classes = scores.argmax(axis=1)
    counts = np.bincount(list(labels.values()) or [0], minlength=scores.shape[1])
    counts[0] -= not labels
    for place, query in enumerate(found):
        waiting = {int(classes[other]) for other in found[place:]}
        assert counts[classes[query]] == min(counts[at] for at in waiting)
        counts[classes[query]] += 1


def test_only_the_likeliest_class_counts() -> None:
    generator = np.random.default_rng(0)
    scores = generator.dirichlet(np.ones(5), 60).astype(np.float32)
    order = generator.permutation(60).tolist()
    sharpened = np.eye(5, dtype=np.float32)[scores.argmax(axis=1)]
    assert quota_order(order, {3: 1}, scores) == quota_order(order, {3: 1}, sharpened)


def test_rare_classes_come_first_and_labels_of_other_queries_count() -> None:
    scores = np.eye(2, dtype=np.float32)[[0] * 8 + [1] * 2]
    assert quota_order(range(10), {}, scores)[:4] == (0, 8, 1, 9)
    # Rows beyond the order, too: three labels of class 0 put both others in front.
    assert quota_order(range(3, 10), {0: 0, 1: 0, 2: 0}, scores)[:3] == (8, 9, 3)


@pytest.mark.parametrize(
    ("order", "labels", "scores", "why"),
    [
        ([0, 0], {}, np.ones((2, 2)), "once"),
        ([2], {}, np.ones((2, 2)), "from 0 to 1"),
        ([-1], {}, np.ones((2, 2)), "from 0 to 1"),
        ([0], {0: 2}, np.ones((2, 2)), "outside"),
        ([0], {0: -1}, np.ones((2, 2)), "outside"),
        ([0], {}, np.full((1, 2), np.nan), "no class"),
        ([0], {}, np.ones(2), "no class"),
        ([0], {}, np.ones((1, 0)), "no class"),
    ],
)
def test_refuses(
    order: list[int], labels: dict[int, int], scores: NDArray[np.float64], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        quota_order(order, labels, scores.astype(np.float32))
