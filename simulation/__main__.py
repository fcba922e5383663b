"""``python -m simulation`` is the same as ``pate``."""

from simulation.cli import main

main()
