"""The clock of this machine against the server's, which refuses requests that are signed at another time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from protos.bounds import CLOCK_AHEAD_S, CLOCK_BEHIND_S

if TYPE_CHECKING:
    import datetime as dt

#: Measurement error: the server's Date has whole seconds, and the reply takes time.
UNSURE_S: Final = 1.0
#: What the server accepts, for a line of the screen.
ACCEPTED: Final = f"{CLOCK_AHEAD_S:.0f} s ahead and {CLOCK_BEHIND_S:.0f} s behind"


@dataclass(frozen=True)
class ClockDifference:
    """How far this machine's clock is from the server's."""

    ahead: float  # seconds by which it is ahead, negative: behind; known to about :data:`UNSURE_S`

    @classmethod
    def between(cls, said: dt.datetime, heard: dt.datetime) -> Self:
        """Return the difference of the time in the server's Date header, and ours when it came."""
        # Truncated to whole seconds, so half a second more is the best estimate.
        return cls((heard - said).total_seconds() - 0.5)

    def is_refused(self, unsure: float = 0.0) -> bool:
        """Return whether requests are refused, even if the difference is ``unsure`` seconds less."""
        return self.ahead - unsure > CLOCK_AHEAD_S or -self.ahead - unsure > CLOCK_BEHIND_S

    @property
    def is_near(self) -> bool:
        """Whether it is large enough for a warning."""
        return self.ahead > CLOCK_AHEAD_S / 2 or -self.ahead > CLOCK_BEHIND_S / 5

    @property
    def in_words(self) -> str:
        """As ``40 minutes behind``, before the other clock's name."""
        if abs(self.ahead) <= UNSURE_S:
            return "about the same as"
        return f"{_span(abs(self.ahead))} {'ahead of' if self.ahead > 0 else 'behind'}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
