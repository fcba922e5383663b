"""Training and evaluation of the network behind teachers of tiny tables, ``--model prior``."""

from __future__ import annotations

from typing import Final

#: What the weights in the package were made with: the seed, and the learning rate as steps, and shares of the
#: largest rate at each, with straight lines between. The last step ends the training.
SEED: Final = 1
RATES: Final = ((-1, 0.0), (299, 1.0), (2_000, 1.0), (4_000, 0.6), (5_500, 0.0))
