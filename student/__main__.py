"""``python -m student`` is the same as ``pate-student``."""

from student.cli import main

main()
