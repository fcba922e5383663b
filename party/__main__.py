"""``python -m party`` and ``pate-party`` begin here."""

from pate.start import start


def main() -> None:
    """Run the command."""
    start("pate-party", "party.cli.main")


if __name__ == "__main__":
    main()
