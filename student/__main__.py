"""``python -m student`` and ``pate-student`` begin here."""

from pate.start import start


def main() -> None:
    """Run the command."""
    start("pate-student", "student.cli")


if __name__ == "__main__":
    main()
