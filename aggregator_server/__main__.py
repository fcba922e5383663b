"""``python -m aggregator_server`` and ``pate-server`` begin here."""

from pate.start import start


def main() -> None:
    """Run the command."""
    start("pate-server", "aggregator_server.cli.main")


if __name__ == "__main__":
    main()
