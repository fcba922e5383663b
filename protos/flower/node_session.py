"""What a SuperNode of ours and our gateway tell each other beside what Flower's say."""

from __future__ import annotations

from typing import Final

#: Names the process: a number that it draws at its start. In lower case, as ASGI has it.
SESSION_HEADER: Final = "pate-session"
#: Says of an answer without a message that it was held back until now: ask anew at once.
HELD_HEADER: Final = "pate-held"
#: A SuperNode says something at least so often, in seconds, while it is busy with an answer. While
#: it waits for a message it has a pull under way.
BEAT_S: Final = 2.0
