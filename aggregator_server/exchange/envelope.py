"""What a person may know of an envelope: for whom, since when, and what became of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What becomes of an envelope, in words; see :attr:`Out.state`.
_STATES: Final = {
    "waiting": "not answered",
    "closing": "not answered; the wait ends when the server next looks into its inbox",
    "answered": "answered {answered}",
    "late": "answered {answered}, too late: the answer is refused permanently",
    "lost": "not answered; nothing of it is waited for",
    "end": "not answered; it tells the end and needs no answer",
}


@dataclass(frozen=True)
class Out:
    """An envelope for a party. Dates are UTC, as in a manifest."""

    party: str
    number: int  # of the envelope, for this party
    until: str  # when the party stops answering it; empty: never
    made: str
    file: bytes | None  # SHA-256 of it, noted before it appears; None if it was not yet
    answered: str | None  # when its answer was looked at; None if there was none
    late: bool  # whether something that it asks was not waited for any more when the answer came
    over: bool  # whether nothing of it is waited for
    asks: str  # the field of its last request
    closing: bool  # whether the wait for it ends when the server next looks into its inbox

    @property
    def state(self) -> str:
        """Return ``waiting``, ``closing``, ``answered``, ``late``, ``lost`` or ``end``."""
        if self.answered is not None:
            return "late" if self.late else "answered"
        if self.over:
            return "lost"
        if self.closing:
            return "closing"
        return "end" if self.asks == "finish" else "waiting"

    def facts(self) -> dict[str, object]:
        """Return it as a JSON object with its state, the digest in hex."""
        return asdict(self) | {"file": self.file.hex() if self.file else None, "state": self.state}


def in_words(facts: Mapping[str, object]) -> str:
    """Return one line for the :meth:`~Out.facts` of an envelope: is it out or in, since when."""
    state = _STATES[str(facts["state"])].format(answered=facts["answered"])
    if facts["until"] and facts["state"] == "waiting":
        state += f"; may be answered until {facts['until']}"
    return f"{facts['party']}: envelope {facts['number']}, made {facts['made']}, {state}"
