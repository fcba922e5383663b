"""A snapshot of the connected parties and the open request."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError
from pate.foreign import json_value
from pate.printable import listed
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

#: In a campaign's folder, who is here, while its parties gather: the ledger does not have it yet.
FILE: Final = "presence.json"


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
