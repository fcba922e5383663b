"""``python -m student`` is ``pate-student``."""

from student.cli import main

main()
