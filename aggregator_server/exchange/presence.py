"""What a person may know: who is here and what is asked, and what became of each envelope."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError
from pate.foreign import json_value
from pate.printable import listed
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

#: In a campaign's folder, who is here, while its parties gather: the ledger does not have it yet.
FILE: Final = "presence.json"
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
class Presence:
    """A snapshot of the parties, by name."""

    here: frozenset[str] = frozenset()  # connected and known
    step: str = ""  # the current request, in words; empty if none
    awaited: frozenset[str] = frozenset()  # that may answer
    answered: frozenset[str] = frozenset()  # that have
    out: frozenset[str] = frozenset()  # that failed or refused in this batch
    refused: frozenset[str] = frozenset()  # those of ``out`` that refused by decision, or to join
    preparing: frozenset[str] = frozenset()  # connected ones that read their records or train

    def doing(self, name: str) -> str:
        """Return the state of a party, in words."""
        if name in self.refused:
            return "refused; see the log"
        if name in self.out:
            return "failed; see the log"
        if name in self.answered:
            return f"has sent {self.step}"
        if name in self.preparing:
            return "here, preparing"
        away = name not in self.here
        if name in self.awaited:
            return f"away; {self.step} awaited" if away else f"asked for {self.step}"
        if away:
            return "not connected"
        return "not in this sum" if self.step else "ready"

    def troubled(self, name: str) -> bool:
        """Whether a party needs attention: it refused, failed, or is awaited and disconnected."""
        missed = name in self.awaited - self.answered - self.here - self.preparing
        return name in self.refused or name in self.out or missed


def noting(
    folder: Path, phase: Callable[[], str], show: Callable[[Presence], None]
) -> Callable[[Presence], None]:
    """Return what shows who is here, and while parties gather writes it for `pate-server status`."""
    last: Presence | None = None

    def note(presence: Presence) -> None:
        nonlocal last
        show(presence)
        if presence == last:
            return
        last = presence
        with suppress(DiskError):  # the campaign does not depend on it
            if phase() != "gathering":
                (folder / FILE).unlink(missing_ok=True)
                return
            names = ("here", "preparing", "refused")
            said: dict[str, object] = {name: sorted(getattr(presence, name)) for name in names}
            said["at"] = datetime.now(UTC).isoformat(timespec="seconds")
            write_file(folder / FILE, json.dumps(said).encode())

    return note


def noted(folder: Path) -> dict[str, object]:
    """Return what :func:`noting` wrote last, nothing if there is none."""
    try:
        found = json_value((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def here_in_words(ready: Collection[str], preparing: Collection[str]) -> str:
    """Return who is here while parties gather, in words."""
    parts = [listed(sorted(ready))] if ready else []
    if preparing:
        parts.append(f"preparing: {listed(sorted(preparing))}")
    return "; ".join(parts) or "nobody yet"


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
