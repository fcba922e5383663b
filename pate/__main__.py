"""``python -m pate`` and ``pate`` begin here."""

from pate.start import start


def main() -> None:
    """Run the command, which is of the folder above all others: its module is named, not imported."""
    start("pate", "simulation.cli")


if __name__ == "__main__":
    main()
