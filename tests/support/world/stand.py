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
        spent: of the budget.
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
            AssertionError: if a charge was released twice, or a label was changed.
            PateError: if it does not verify.
        """
        told = verify(place, None)
        state, held = read_campaign(place / LEDGER_FILE)
        charges, labels = set[int](), dict[int, int]()
        answers = list[tuple[int, int | None]]()
        for entry in held:
            body = json.loads(entry.body)
            if entry.kind == "charge":
                charges.add(entry.seq)
            elif entry.kind == "release":
                assert body["charge"] in charges, "a release without a charge, or its second one"
                charges.remove(body["charge"])
                answers += [(query, label) for query, label, *_ in body.get("answers", ())]
        for query, label in state.labels.items():
            assert query not in labels, f"query {query} has two labels"
            labels[query] = label.label
        return cls(
            state.phase,
            tuple(entry.kind for entry in held),
            tuple(entry.digest for entry in held),
            labels,
            tuple(answers),
            len(charges),
            Fraction(str(told["spent"])),
            Fraction(str(told["wasted"])),
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
