"""``python -m party`` is the same as ``pate-party``."""

from party.cli.main import main

main()
