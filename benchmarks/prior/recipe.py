"""What the weights in the package were made with."""

from __future__ import annotations

from typing import Final

SEED: Final = 1
#: The learning rate: steps, and shares of the largest rate at each, with straight lines between. The
#: last step ends the training.
RATES: Final = ((-1, 0.0), (299, 1.0), (2_000, 1.0), (4_000, 0.6), (5_500, 0.0))
