"""The network's weights, which come with the package.

``benchmarks/prior.py`` makes them from made-up tables only; the file's header has its command and recipe.
"""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from pate.errors import DataError

if TYPE_CHECKING:
    from party.teachers.prior.network import PriorNetwork

NAME: Final = "weights.safetensors"
#: SHA-256 of the file.
DIGEST: Final = "f60e23f5b30fea96101e927d976913f58b2b7967be71a8e75a9ed46c93ff3c75"


def check(content: bytes) -> None:
    """Check that a file has the weights that this version was measured with.

    Raises:
        DataError: if it has not.
    """
    if (found := hashlib.sha256(content).hexdigest()) != DIGEST:
        raise DataError(
            f"the weights of model prior, {NAME}, have SHA-256 {found[:16]}… instead of {DIGEST[:16]}…: "
            "the installation is damaged; install the package again"
        )


@functools.cache
def network() -> PriorNetwork:
    """Return the network with its weights, to answer only.

    Raises:
        DataError: if the file is not the one that belongs to this version.
    """
    from safetensors.torch import load

    from party.teachers.prior.network import PriorNetwork

    content = files(__package__).joinpath(NAME).read_bytes()
    check(content)
    made = PriorNetwork()
    made.load_state_dict(load(content))
    return made.eval().requires_grad_(requires_grad=False)
