"""Robustness certificates: margins of released labels, and whether one party could change them.

**Private.** Margins depend on votes and are covered by no epsilon: a certificate stays on the
server, like the sums themselves. So does its summary. One unit votes on every query, so it can
change the number of safe labels by all of them, and a noisy count would be useless. A private test
like the gate (docs/proofs/gate.md) could be published: the number of units that must change before
fewer than a given number are safe changes by one per unit. It would have to be charged to the
ledger before it is drawn; this is not implemented.

**Certified** are the counts that the server has. With noise shares they include the noise, and a label is
their largest: if any one party had voted differently, with all other votes and *all* noise unchanged, a safe
label would have been the same. With central noise the server has exact sums and does not store the noise: if
any one party had voted differently, a safe label would still have had *most votes*; which label would have
been released with the noise is unknown. A label that was not the largest count itself is never safe.

**Assumed**: each party cast exactly its k votes. With plain aggregation the server has checked it.
Under masks it has not (docs/decisions/0008-vote-proofs.md): there a certificate describes the
influence of one party's teachers, not that of a party that cheats in the sum, or in its noise
share.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import LedgerError, UsageError
from pate.mechanisms import round_predictions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState
    from pate.mechanisms import Mechanism
    from pate.votes import Counts


@dataclass(frozen=True)
class LabelCertificate:
    """Robustness of one label of the teachers. Private.

    Attributes:
        query: index into the public set.
        label: index into the classes.
        margin: its count minus the largest other one, in votes; negative where noise decided.
        safe_votes: the most votes that could have changed, by any parties, with the label still
            ahead; None if it was not ahead.
        largest_party: most teachers of one party in the sum.
        safe_against_any_party: whether ``safe_votes`` covers them.
        answered_against_any_party: whether the counts would have reached the mechanism's threshold
            whatever any one party had voted. If not, one party could have prevented the release of
            the label, or caused it: with central noise, unless the noise of the threshold test
            decided otherwise. None without a threshold, or without the student's predictions.
    """

    query: int
    label: int
    margin: int
    safe_votes: int | None
    largest_party: int
    safe_against_any_party: bool
    answered_against_any_party: bool | None


@dataclass(frozen=True)
class Summary:
    """Figures over all labels of the teachers. Private: see the module.

    Attributes:
        labels: from the teachers.
        ahead: of them, those whose count is the largest one.
        safe: of them, those that no one party could have changed.
        checked: of them, those with an answer to ``answered_against_any_party``.
        answered: of these, those whose answer no one party could have prevented.
        reinforced: the student's own labels, which are not certified.
    """

    labels: int
    ahead: int
    safe: int
    checked: int
    answered: int
    reinforced: int


@dataclass(frozen=True)
class Certificate:
    """Robustness of the labels of a campaign. Private to the server.

    Attributes:
        campaign: its id, hex.
        noise: ``distributed``: included in the counts, and released labels are certified;
            ``central``: not included, and pluralities are certified.
        masked: whether it is assumed, not checked, that each party cast only its own votes.
        labels: of the teachers, in the order of release.
        reinforced: number of the student's own labels.
    """

    campaign: str
    noise: str
    masked: bool
    labels: tuple[LabelCertificate, ...]
    reinforced: int

    @property
    def summary(self) -> Summary:
        """The figures over all labels. Private."""
        checked = [each for each in self.labels if each.answered_against_any_party is not None]
        return Summary(
            labels=len(self.labels),
            ahead=sum(each.safe_votes is not None for each in self.labels),
            safe=sum(each.safe_against_any_party for each in self.labels),
            checked=len(checked),
            answered=sum(bool(each.answered_against_any_party) for each in checked),
            reinforced=self.reinforced,
        )

    def to_json(self) -> dict[str, object]:
        """Return it as JSON for a private file; no part of it may be published."""
        return {
            "private": "depends on votes and is covered by no epsilon: do not publish",
            "campaign": self.campaign,
            "noise": self.noise,
            "masked": self.masked,
            "summary": asdict(self.summary),
            "labels": [asdict(each) for each in self.labels],
        }


def certificate_of(
    state: CampaignState,
    counts: Counts,
    predictions: Mapping[int, Probabilities] | None = None,
) -> Certificate:
    """Return the robustness certificate of a campaign in any phase.

    Args:
        state: of its ledger.
        counts: (queries, classes) int64, of the whole public set, as stored in the ledger.
        predictions: by round, (queries, classes) float32, the student's; without them the threshold
            test of an interactive mechanism is not certified.

    Raises:
        LedgerError: if counts or predictions are of another shape, or a label has no votes.
        UsageError: for neighbour votes, and votes for several labels.
    """
    if state.spec.records_vote:
        raise UsageError(
            "a certificate says what one party's teachers could change; of neighbour votes nobody "
            "knows how many a party has cast"
        )
    if state.spec.one_release:
        raise UsageError("a certificate is for votes for one class, not for several labels")
    shape = (state.spec.queries, len(state.classes))
    if state.labels and counts.shape != shape:
        raise LedgerError(f"votes of shape {counts.shape}, the campaign has {shape}")
    for round_, predicted in (predictions or {}).items():
        if predicted.shape != shape:
            raise LedgerError(
                f"predictions of shape {predicted.shape} for round {round_}, the campaign has {shape}"
            )
    teachers = {party.name: party.teachers for party in state.roster}
    certified = []
    for query, held_label in state.labels.items():
        if held_label.source != "teachers":
            continue
        batch = state.batch_of(query)
        largest = max(teachers[name] for name in batch.responders)
        row, label = counts[query], held_label.label
        mechanism = state.mechanism(held_label.round)
        excess = _excess(
            mechanism, row, query, batch.teachers, (predictions or {}).get(held_label.round)
        )
        safe = int(safe_votes(row, label))
        certified.append(
            LabelCertificate(
                query=query,
                label=label,
                margin=int(row[label] - np.delete(row, label).max()),
                safe_votes=None if safe < 0 else safe,
                largest_party=largest,
                safe_against_any_party=safe >= largest,
                answered_against_any_party=None
                if excess is None
                else not can_be_stopped(
                    excess,
                    _threshold(mechanism),
                    largest,
                    votes=None if mechanism.noise_inside else row,
                ),
            )
        )
    return Certificate(
        campaign=state.spec.id,
        noise=state.spec.sums.noise,
        masked=state.spec.sums.masked,
        labels=tuple(certified),
        reinforced=len(state.labels) - len(certified),
    )


def safe_votes(row: NDArray[np.int64], label: int) -> int:
    """Return the most votes that may change with ``label`` still the largest count.

    Negative if it is not the largest now. A vote moved from the label to class j reduces the gap
    between them by 2, the most possible, so the bound is tight. Ties go to the lowest index, as in
    every mechanism: the gap to a lower class must stay above 0.

    >>> safe_votes(np.array([3, 10, 1]), 1), safe_votes(np.array([3, 10, 1]), 0)
    (3, -4)

    Args:
        row: (classes,) int64, votes, of two classes or more.
        label: index into the classes.
    """
    gaps = row[label] - row - (np.arange(len(row)) < label)
    return int(np.delete(gaps, label).min()) // 2


def can_be_stopped(
    excess: NDArray[np.int64],
    threshold: int,
    party: int,
    *,
    votes: NDArray[np.int64] | None = None,
) -> bool:
    """Return whether a party could have kept every class below a threshold by voting differently.

    It has to move the excess of each class, with no more than its own votes, to classes with room.
    Not voting at all is not considered.

    >>> can_be_stopped(np.array([80, 15, 5]), 75, 6), can_be_stopped(np.array([80, 15, 5]), 75, 5)
    (True, False)

    Args:
        excess: (classes,) int64, compared with the threshold: votes, or votes minus their
            expectation by the student's prediction.
        threshold: T, which the largest excess has to reach for an answer.
        party: number of its teachers.
        votes: (classes,) int64, exact votes, none of which can become negative; None if they include noise.
    """
    most = threshold - 1
    taken = np.maximum(excess - most, 0)
    if votes is not None and bool(np.any(taken > votes)):
        return False
    return int(taken.sum()) <= party and int((most - excess).sum()) >= 0


def _threshold(mechanism: Mechanism) -> int:
    """Return T of a mechanism that has one; see :func:`_excess`."""
    return int(getattr(mechanism, "threshold", 0))


def _excess(
    mechanism: Mechanism,
    row: NDArray[np.int64],
    query: int,
    teachers: int,
    predictions: Probabilities | None,
) -> NDArray[np.int64] | None:
    """Return the input of the mechanism's threshold test, without its noise; None if unknown."""
    if not hasattr(mechanism, "threshold"):
        return None
    if not mechanism.interactive:
        return row
    if predictions is None:
        return None
    expected: NDArray[np.int64] = round_predictions(predictions[query : query + 1], teachers)[0]
    excess: NDArray[np.int64] = row - expected
    return excess
