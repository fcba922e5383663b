"""``python -m party`` is ``pate-party``."""

from party.cli import main

main()
