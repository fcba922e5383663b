"""``python -m aggregator_server`` is ``pate-server``."""

from aggregator_server.cli.main import main

main()
