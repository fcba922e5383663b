"""Feature spaces, in which close inputs should have the same label.

A space is fixed before any private record is used: it is either the same for all data, or fitted on
only the public set. So every party, and the coordinator, may share one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.data.embeddings import Embeddings
from pate.data.values import Images, Table
from pate.errors import SchemaError, UsageError
from pate.features.dense import Directions, looked_at
from pate.features.fitted import FEWEST, DiffusionSpace, InvariantSpace
from pate.features.gradients import gradients, gradients_width, upright
from pate.features.progress import Parts
from pate.features.scattering import scatter, scattering_width
from pate.features.tables import EmbeddedSpace, LikenessSpace, TableSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.features.contract import FeatureSpace

    Floats = NDArray[np.float32]

#: The spaces for images. Diffusion spaces are fitted on the public set and have the purest
#: neighbours for few classes: of 16,000 MNIST digits, 98 in 100 have the majority label of the
#: nearest of 100 representatives of 9,000 others, against 92 in plain gradients. Steady
#: (deformation-invariant) spaces are fitted on the public set, too, and are best for many similar
#: classes.
IMAGE_SPACES: Final = (
    "steady-upright", "steady-gradients", "diffusion-upright", "diffusion-gradients",
    "diffusion-scattering", "upright", "gradients", "scattering",
)  # fmt: skip
#: The spaces for tables.
TABLE_SPACES: Final = ("table",)

#: Least number of public images of drawn shapes for which a steady space is the default: with
#: fewer, diffusion does better than distortions in a thousand features.
STEADY_FROM: Final = 10_000

_LOOKED_AT: Final = 1000  # images used to detect drawn shapes
_DARK: Final = 32  # of 255: ink or paper
_MOSTLY: Final = 2 / 3
_FEWEST_PIXELS: Final = 16  # pixels a side; deskewing smaller images loses more than it gains


def _upright_gradients(images: Images) -> Floats:
    parts = Parts(1, 2)
    with parts.next():
        images = upright(images)
    with parts.next():
        return gradients(images)


#: Feature functions, and their width for a height, width and number of channels.
_WAYS: Final[dict[str, tuple[Callable[[Images], Floats], Callable[[int, int, int], int]]]] = {
    "upright": (_upright_gradients, gradients_width),
    "gradients": (gradients, gradients_width),
    "scattering": (scatter, scattering_width),
}


@dataclass(frozen=True)
class ImageSpace:
    """Images of one size, by fixed features."""

    name: str  # "upright" (gradients of the deskewed image), "gradients" or "scattering"
    size: tuple[int, int, int]  # height, width, channels

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""
        return _WAYS[self.name][1](*self.size)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32 unit vectors."""
        if not isinstance(inputs, Images) or inputs.size != self.size:
            wanted = "images {}x{}x{}".format(*self.size)
            raise SchemaError(f"the feature space is for {wanted}, these are {inputs.schema()}")
        return _WAYS[self.name][0](inputs)


def space_over(public: Inputs, name: str = "auto") -> FeatureSpace:
    """Return the feature space of a public set.

    With "auto", drawn shapes are deskewed, if they are large enough, and use gradients with
    normalised contrast; photographs use scattering, which keeps contrast. Both get a diffusion
    space if the public set is large enough; from :data:`STEADY_FROM` drawn shapes on a steady space
    is used instead. For tables there is one space, and one for the embeddings of an encoder.
    """
    if isinstance(public, Embeddings):
        if name not in ("auto", EmbeddedSpace.name):
            raise _unknown(name, public, (EmbeddedSpace.name,))
        return EmbeddedSpace.fit(public)
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


def codes_over(public: Inputs, rows: Sequence[int]) -> NDArray[np.int64]:
    """Return (n, d) the dense codes of all public rows, in the directions of the rows that are named."""
    seen = public.plain() if isinstance(public, Table) else public
    points = directions_over(seen).embed(seen)
    directions = Directions.fit(points[list(rows)], points[looked_at(len(points))])
    return directions.codes(points)


def directions_over(public: Inputs) -> FeatureSpace:
    """Return the feature space of a public set in which dense votes have directions.

    What is to be learnt of a table or of embeddings is seldom linear in their coordinates; it is in kernel
    features (:class:`~pate.features.tables.LikenessSpace`). Features of images are not linear in pixels
    already.
    """
    space = space_over(public)
    if isinstance(public, Images):
        return space
    return LikenessSpace.fit(space, public.take(looked_at(len(public))))


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
    """Distinguish drawn shapes, nearly all ink or paper, from photographs, which have greys."""
    some = images.pixels[:: max(1, len(images) // _LOOKED_AT)]
    extreme = (some < _DARK) | (some > 255 - _DARK)
    if not extreme.size or float(extreme.mean(dtype=float)) <= _MOSTLY:
        return "scattering"
    return "upright" if min(images.size[:2]) >= _FEWEST_PIXELS else "gradients"
