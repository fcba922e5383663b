"""Feature spaces: where two inputs that lie close should have the same label.

A space is fixed before any private record is seen: it is either the same for all data, or fitted on
the public set alone. So every party, and the coordinator, may share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.data.values import Images
from pate.errors import SchemaError, UsageError
from pate.features.diffusion import FEWEST, DiffusionSpace
from pate.features.gradients import gradients, gradients_width
from pate.features.invariant import InvariantSpace
from pate.features.scattering import scatter, scattering_width
from pate.features.tables import TableSpace
from pate.features.upright import upright

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.features.contract import FeatureSpace

    Floats = NDArray[np.float32]

#: The spaces for images. Those of diffusion are fitted on the public set and have the purest
#: neighbours where classes are few: of 16,000 MNIST digits, 98 in 100 have the label that most others
#: have at the nearest of 100 representatives of 9,000 others, against 92 in plain gradients. Steady ones
#: are fitted on the public set too, and are the best for many classes that look alike.
IMAGE_SPACES: Final = (
    "steady-upright",
    "steady-gradients",
    "diffusion-upright",
    "diffusion-gradients",
    "diffusion-scattering",
    "upright",
    "gradients",
    "scattering",
)
#: The spaces for tables.
TABLE_SPACES: Final = ("table",)

#: Public images of drawn shapes from which on the space is a steady one by default: of fewer, the
#: chains of diffusion say more than what distortions teach about a thousand features.
STEADY_FROM: Final = 10_000

_LOOKED_AT: Final = 1000  # images, to tell whether they are drawn
_DARK: Final = 32  # of 255: ink or paper
_MOSTLY: Final = 2 / 3
_FEWEST_PIXELS: Final = 16  # a side; smaller images lose more than they gain by being set upright


#: How images are described, and how wide that is for a height, width and number of channels.
_WAYS: Final[dict[str, tuple[Callable[[Images], Floats], Callable[[int, int, int], int]]]] = {
    "upright": (lambda images: gradients(upright(images)), gradients_width),
    "gradients": (gradients, gradients_width),
    "scattering": (scatter, scattering_width),
}


@dataclass(frozen=True)
class ImageSpace:
    """Images of one size, by features that are fixed before any data is seen.

    Attributes:
        name: "upright" (gradients of the image set upright), "gradients" or "scattering".
        size: height, width, channels.
    """

    name: str
    size: tuple[int, int, int]

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""
        return _WAYS[self.name][1](*self.size)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32 unit vectors.

        Raises:
            SchemaError: if the inputs are not images of this size.
        """
        if not isinstance(inputs, Images) or inputs.size != self.size:
            wanted = "images {}x{}x{}".format(*self.size)
            raise SchemaError(f"the feature space is for {wanted}, these are {inputs.schema()}")
        return _WAYS[self.name][0](inputs)


def space_over(public: Inputs, name: str = "auto") -> FeatureSpace:
    """Return the feature space of a public set.

    With "auto", drawn shapes are set upright, if they have pixels enough, and told by their
    gradients, whose contrast is evened out; photographs are told as they are by scattering, which
    keeps contrast. Either is bent along the public set if that is large enough; drawn shapes, if there
    are :data:`STEADY_FROM` or more, are told by what distortions leave as it is instead. For tables
    there is one space.

    Args:
        public: the public set; what is fitted is fitted on it alone.
        name: one of :data:`IMAGE_SPACES` or :data:`TABLE_SPACES`, or "auto".

    Raises:
        UsageError: if there is no such space, or it is not for inputs of this kind.
        DataError: if there are too few public inputs to fit it.
    """
    if not isinstance(public, Images):
        if name not in ("auto", *TABLE_SPACES):
            raise _unknown(name, public, TABLE_SPACES)
        return TableSpace.fit(public)
    chosen = default_name(public) if name == "auto" else name
    if chosen not in IMAGE_SPACES:
        raise _unknown(name, public, IMAGE_SPACES)
    bend, _, plain_name = chosen.rpartition("-")
    base = ImageSpace(plain_name, public.size)
    if not bend:
        return base
    return (InvariantSpace if bend == "steady" else DiffusionSpace).fit(base, public)


def default_name(public: Images) -> str:
    """Return the name of the space that :func:`space_over` takes for a public set of images."""
    plain = _plain(public)
    if plain != "scattering" and len(public) >= STEADY_FROM:
        return f"steady-{plain}"
    return f"diffusion-{plain}" if len(public) >= FEWEST else plain


def _unknown(name: str, public: Inputs, known: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"no feature space {name!r} for {public.schema()}; there is {', '.join(known)}"
    )


def _plain(images: Images) -> str:
    """Tell drawn shapes, nearly all ink or paper, from photographs, which have greys."""
    some = images.pixels[:: max(1, len(images) // _LOOKED_AT)]
    extreme = (some < _DARK) | (some > 255 - _DARK)
    if not extreme.size or float(extreme.mean(dtype=float)) <= _MOSTLY:
        return "scattering"
    return "upright" if min(images.size[:2]) >= _FEWEST_PIXELS else "gradients"
