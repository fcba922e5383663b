"""``python -m aggregator_server`` is ``pate-server``."""

from aggregator_server.cli import main

main()
