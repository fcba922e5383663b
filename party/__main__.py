"""``python -m party`` is ``pate-party``."""

from party.cli.main import main

main()
