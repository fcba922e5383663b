"""``python -m pate`` is ``pate``."""

from pate.commands.cli import main

main()
