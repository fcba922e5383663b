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
    """An envelope for a party.

    Attributes:
        party: name of the recipient.
        number: of the envelope, for this party.
        until: when the party stops answering it, as in a manifest; empty: never.
        made: when, UTC.
        file: SHA-256 of it, 32 bytes, noted before it appears; None if it was not yet.
        answered: when its answer was looked at, UTC; None if there was none.
        late: whether something that it asks was not waited for any more when the answer came.
        over: whether nothing of it is waited for.
        asks: the field of its last request.
        closing: whether the wait for it ends when the server next looks into its inbox.
    """

    party: str
    number: int
    until: str
    made: str
    file: bytes | None
    answered: str | None
    late: bool
    over: bool
    asks: str
    closing: bool

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
