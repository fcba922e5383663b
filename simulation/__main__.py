"""``python -m simulation`` is ``pate``."""

from simulation.cli import main

main()
