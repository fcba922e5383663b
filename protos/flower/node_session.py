"""Additional headers between our SuperNode and our gateway."""

from __future__ import annotations

from typing import Final

#: Names the process: a number that it draws at its start. In lower case, as ASGI has it.
SESSION_HEADER: Final = "pate-session"
#: Marks an answer without a message as the end of a held pull: poll again at once.
HELD_HEADER: Final = "pate-held"
#: A busy SuperNode sends a heartbeat at least this often, in seconds. While idle it has a pull
#: open.
BEAT_S: Final = 2.0
