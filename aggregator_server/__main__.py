"""``python -m aggregator_server`` is the same as ``pate-server``."""

from aggregator_server.cli.main import main

main()
