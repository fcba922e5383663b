"""Parties that echo a message with their number; ``fail`` makes them raise."""

from __future__ import annotations

import os
from collections.abc import Callable


def open_echo(number: int) -> Callable[[bytes], bytes]:
    os.write(1, b"whatever prints must not get between the answers")

    def answer(body: bytes) -> bytes:
        if body == b"fail":
            raise ValueError("secret 42")
        if body == b"die":
            os._exit(3)
        return body + b" %d end" % number

    return answer
