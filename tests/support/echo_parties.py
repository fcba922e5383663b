"""Parties that echo a message with their number; ``fail`` makes them raise."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from simulation.processes import arguments_of, serve

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    (suffix,), numbers = arguments_of(sys.argv[1:])

    def open_party(number: int) -> Callable[[bytes], bytes]:
        os.write(1, b"whatever prints must not get between the frames")

        def answer(body: bytes) -> bytes:
            if body == b"fail":
                raise ValueError("secret 42")
            if body == b"die":
                os._exit(3)
            return body + b" %d " % number + suffix.encode()

        return answer

    serve(open_party, numbers)


if __name__ == "__main__":
    main()
