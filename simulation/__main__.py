"""``python -m simulation``: the same as ``python -m pate``."""

from pate.__main__ import main

if __name__ == "__main__":
    main()
