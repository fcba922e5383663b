"""What the verified ledger of a server says, to be compared with what it says later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from aggregator_server.ledger.verify import read_campaign
from aggregator_server.results.report import LEDGER_FILE, verify
from pate.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Stand:
    """The state of a verified server's ledger.

    Attributes:
        phase: of the campaign.
        kinds: of its entries, in order.
        digests: of its entries, in order.
        labels: by query.
        answers: queries and their labels in the order of release; None: no answer.
        vain: charges without a release.
        spent: of the budget, without what the release of the last charge may give back.
        wasted: part of it for answers that were lost.
    """

    phase: str
    kinds: tuple[str, ...]
    digests: tuple[bytes, ...]
    labels: dict[int, int]
    answers: tuple[tuple[int, int | None], ...]
    vain: int
    spent: Fraction
    wasted: Fraction

    @classmethod
    def of(cls, place: Path) -> Self:
        """Verify a ledger and read it.

        Raises:
            AssertionError: if a charge was released twice, a label was changed, or the budget is not
                spent on what was released and on charges without a release.
            PateError: if it does not verify.
        """
        verify(place, None)
        state, held = read_campaign(place / LEDGER_FILE)
        charges, labels = dict[int, Fraction](), dict[int, int]()
        answers = list[tuple[int, int | None]]()
        used = Fraction(0)
        for entry in held:
            body = json.loads(entry.body)
            if entry.kind == "charge":
                charges[entry.seq] = Fraction(body["cost"])
            elif entry.kind == "release":
                assert body["charge"] in charges, "a release without a charge, or its second one"
                del charges[body["charge"]]
                used += Fraction(body["cost"])
                answers += [(query, label) for query, label, *_ in body.get("answers", ())]
        for query, label in state.labels.items():
            assert query not in labels, f"query {query} has two labels"
            labels[query] = label.label
        unreleased = sum(charges.values(), Fraction(0))
        assert state.spent == used + unreleased, "the budget is spent on something else"
        # Of a process that is only stopped: its release may come, and used less.
        open_ = charges.get(held[-1].seq, Fraction(0))
        return cls(
            state.phase,
            tuple(entry.kind for entry in held),
            tuple(entry.digest for entry in held),
            labels,
            tuple(answers),
            len(charges),
            state.spent - open_,
            unreleased - open_,
        )

    @classmethod
    def at(cls, place: Path) -> Self | None:
        """The same; None if there is no ledger yet."""
        try:
            return cls.of(place)
        except StateError:
            if (place / LEDGER_FILE).exists():
                raise
            return None

    def follows(self, earlier: Stand) -> None:
        """Check that this ledger extends the earlier one.

        Raises:
            AssertionError: if a durable entry is missing or changed.
        """
        assert self.digests[: len(earlier.digests)] == earlier.digests, "entries were lost"
        assert earlier.labels.items() <= self.labels.items(), "a label was lost or changed"
        assert self.spent >= earlier.spent, "a charge was lost"
