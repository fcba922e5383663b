"""``python -m simulation`` and ``pate`` begin here."""

from pate.start import start


def main() -> None:
    """Run the command."""
    start("pate", "simulation.cli")


if __name__ == "__main__":
    main()
