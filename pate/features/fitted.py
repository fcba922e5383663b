"""Feature spaces that are fitted on the public set: by diffusion, or by discriminant analysis (LDA).

In a plain feature space two sixes may lie further apart than a six and a zero, but a chain of
public sixes leads from one to the other. A random walk over the public set, from neighbour to
neighbour, seldom leaves such a chain. The slowest modes of the walk become the coordinates, so that
distance now reflects how hard it is to walk from one point to another, and clusters are far purer.
A new input is placed at the weighted mean of the nearest public points.

Everything is fitted on only the public set. Two machines may round differently when they fit, and
then place a few records differently; this does not change the sensitivity of votes.

Source: Coifman and Lafon, "Diffusion maps", ACHA 21(1), 2006; Ng, Jordan and Weiss, "On spectral
clustering", NIPS 2001 (rows of unit length); Zelnik-Manor and Perona, "Self-tuning spectral
clustering", NIPS 2004 (the local scale).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from pate.data.values import Images
from pate.errors import DataError, SchemaError
from pate.features.contract import blocks, each_by, unit
from pate.features.distortions import distorted
from pate.features.progress import Parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.features.contract import FeatureSpace

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]

#: Fewer public inputs than this give no useful walk, and are too few for a thousand features of images.
FEWEST: Final = 500

_AXES: Final = 80  # principal axes of the public set that are kept
_WHITENING: Final = 0.5  # 0 leaves the spread of the axes as it is, 1 makes all equal
_NEIGHBOURS: Final = 15  # of each public point in the walk
_SCALE_AT: Final = 7  # the distance to this neighbour is the local scale
_MODES: Final = (60, 300)  # least and most coordinates; in between,
_POINTS_A_MODE: Final = 75  # a larger public set shows finer structure
_PLACED_BY: Final = 5  # nearest public points that place a new input
_MOST_LANDMARKS: Final = 20_000  # public inputs that the walk uses, evenly spread over the set
_TINY: Final = 1e-12


@dataclass(frozen=True, eq=False)
class _Turned:
    """A plain space whose points are turned onto axes of the public set."""

    base: FeatureSpace  # the plain space it starts from
    middle: Floats  # (w,) float32, mean of the public points in it
    axes: Floats  # (w, a) float32

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """Return the kind, and the name of the base space."""
        return f"{self.kind}-{self.base.name}"

    def turned(self, inputs: Inputs) -> Iterator[tuple[int, Floats]]:
        """Yield the first row of each block, and (n, a) unit vectors on the axes."""
        for start, block in blocks(self.base.embed(inputs)):
            yield start, unit(each_by(block - self.middle, self.axes))


@dataclass(frozen=True, eq=False)
class DiffusionSpace(_Turned):
    """A space of unit vectors that follows a public set; the axes are its principal ones, partly whitened."""

    kind = "diffusion"

    landmarks: Floats  # (p, a) float32, public points on these axes, of unit length
    scales: Floats  # (p,) float32, the local scale of each
    places: Floats  # (p, m) float32, where the walk puts them; unit length

    @classmethod
    def fit(cls, base: FeatureSpace, public: Inputs) -> DiffusionSpace:
        """Return the space fitted on a public set; of more than 20,000 inputs an even selection is used."""
        public = public.take(_some_of(len(public), "a diffusion space"))
        modes = min(max(len(public) // _POINTS_A_MODE, _MODES[0]), _MODES[1])
        points = base.embed(public)
        middle, axes = _principal(points)
        landmarks = unit((points - middle) @ axes)
        scales, places = _walk(landmarks, modes)
        return cls(base, middle, axes, landmarks, scales, places)

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""
        return int(self.places.shape[1])

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32 unit vectors, each computed from only that input."""
        placed = np.empty((len(inputs), self.width), dtype=np.float32)
        for start, at in self.turned(inputs):
            near, apart = _closest(at, self.landmarks, _PLACED_BY)
            own = np.sqrt(apart.max(axis=1, keepdims=True))
            weights = np.exp(-apart / np.maximum(own * self.scales[near], _TINY))
            mean = np.einsum("nk,nkm->nm", weights, self.places[near])
            placed[start : start + len(at)] = unit(mean)
        return placed


def _some_of(count: int, what: str) -> Places:
    """Return the rows of a public set that are used: all that there are, or an even selection of 20,000."""
    if count < FEWEST:
        raise DataError(f"{count} public inputs; {what} needs {FEWEST}")
    return np.rint(np.linspace(0, count - 1, min(count, _MOST_LANDMARKS))).astype(np.int64)


def _principal(points: Floats) -> tuple[Floats, Floats]:
    """Return the mean, (w,), and scaled principal axes, (w, a), nearly: by subspace iteration."""
    middle = points.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = points - middle
    width = points.shape[1]
    tried = min(_AXES + 20, width)
    stream = hashlib.shake_256(b"pate principal axes 1").digest(4 * width * tried)
    start = np.frombuffer(stream, dtype="<u4").reshape(width, tried) / 2.0**32 - 0.5
    span = np.linalg.qr(start.astype(np.float32)).Q
    for _ in range(6):
        span = np.linalg.qr(centred.T @ (centred @ span)).Q
    seen = centred @ span
    spreads, turns = np.linalg.eigh(seen.T @ seen / np.float32(len(points)))
    strongest = np.flatnonzero(spreads > max(spreads[-1] * 1e-6, _TINY))[-_AXES:]
    if not strongest.size:
        raise DataError("all public inputs have the same features")
    axes: Floats = (span @ turns[:, strongest]) * spreads[strongest] ** np.float32(-_WHITENING / 2)
    return middle, axes.astype(np.float32)


def _walk(landmarks: Floats, modes: int) -> tuple[Floats, Floats]:
    """Return the local scale of each landmark and its place in the slowest modes of the walk."""
    from scipy import sparse  # slow to import; most campaigns fit no walk
    from scipy.sparse.linalg import eigsh

    count = len(landmarks)
    near = np.empty((count, _NEIGHBOURS), dtype=np.int64)
    apart = np.empty((count, _NEIGHBOURS))
    for start, block in blocks(landmarks):
        found, far = _closest(block, landmarks, _NEIGHBOURS + 1)
        for row in range(start, start + len(block)):
            # A point is its own neighbour; of duplicates, any may be dropped instead.
            mine = found[row - start] == row
            out = int(mine.argmax()) if mine.any() else int(far[row - start].argmin())
            near[row] = np.delete(found[row - start], out)
            apart[row] = np.delete(far[row - start], out)
    scales = np.sqrt(np.sort(apart, axis=1)[:, _SCALE_AT - 1])
    # With many duplicates the local scale would be zero.
    scales = np.maximum(scales, 1e-3 * np.median(scales) + _TINY)
    weights = np.exp(-apart / (scales[:, None] * scales[near]))
    rows = np.repeat(np.arange(count), _NEIGHBOURS)
    graph = sparse.csr_matrix((weights.ravel(), (rows, near.ravel())), (count, count))
    graph = graph.maximum(graph.T)
    steps = np.asarray(graph.sum(axis=1)).ravel()
    root = sparse.diags(1 / np.sqrt(np.maximum(steps, _TINY)))
    stream = hashlib.shake_256(b"pate diffusion 1").digest(8 * count)
    start_at = np.frombuffer(stream, dtype="<u8") / 2.0**64 - 0.5
    values, vectors = eigsh(root @ graph @ root, k=modes + 1, which="LA", v0=start_at, tol=1e-6)
    # The fastest of all, with eigenvalue 1, is constant and carries no information.
    slowest = np.argsort(-values)[1:]
    places = unit((root @ vectors)[:, slowest])
    return scales.astype(np.float32), places


def _closest(points: Floats, landmarks: Floats, count: int) -> tuple[Places, Floats]:
    """Return the ``count`` nearest landmarks of each point, by index, and squared distances."""
    lengths = np.einsum("ij,ij->i", landmarks, landmarks)
    rough = lengths - 2 * each_by(points, landmarks.T)
    near = np.sort(np.argpartition(rough, count - 1, axis=1)[:, :count], axis=1)
    apart: Floats = np.square(landmarks[near] - points[:, None]).sum(axis=2)
    return near, apart


# A feature space that is invariant to small distortions, fitted by discriminant analysis (LDA).
#
# Each public image and a distorted copy of it are of one class, whatever the class is. So even
# without labels the public set shows along which directions features vary within a class, and these
# are weighted down: linear discriminant analysis with every public image as its own class. With many
# similar classes this helps far more than diffusion does: of 5,000 drawn characters of 150 classes
# the nearest of 10,000 others has the same class for 86 in 100, against 76 in plain gradients of
# deskewed images.
#
# Source: the within-class whitening is that of Fisher's discriminant (Rao, "The utilization of multiple
# measurements in problems of biological classification", JRSS B 10(2), 1948); copies of an image as a class,
# Dosovitskiy et al., "Discriminative unsupervised feature learning with exemplar CNNs", NIPS 2014.

#: Coordinates of a point, unless there are fewer features.
AXES: Final = 96
_SHRINKAGE: Final = 0.03  # of the mean spread within classes, added to every direction


@dataclass(frozen=True, eq=False)
class InvariantSpace(_Turned):
    """A space of unit vectors, invariant to small distortions.

    Its axes are directions that separate images and that distortions hardly change.
    """

    kind = "steady"

    @classmethod
    def fit(cls, base: FeatureSpace, public: Inputs) -> InvariantSpace:
        """Return the space of a public set and distorted copies, of an even selection above 20,000."""
        from scipy.linalg import eigh  # slow to import

        if not isinstance(public, Images):
            raise SchemaError(f"a steady feature space is for images, these are {public.schema()}")
        public = public.take(_some_of(len(public), "a steady feature space"))
        parts = Parts(1, 1)
        with parts.next():
            points = base.embed(public)
        middle = points.mean(axis=0, dtype=np.float64).astype(np.float32)
        with parts.next():
            moved = points - base.embed(distorted(public))
        centred = points - middle
        # Half the mean squared difference of two members of a class is its variance.
        within = (moved.T @ moved).astype(np.float64) / (2 * len(points))
        whole = (centred.T @ centred).astype(np.float64) / len(points)
        level = np.trace(within) / len(within)
        if not np.trace(whole) > _TINY or not level > _TINY:
            raise DataError("all public inputs have the same features")
        within[np.diag_indices(len(within))] += _SHRINKAGE * level
        kept = min(AXES, len(within))
        _, axes = eigh(whole, within, subset_by_index=[len(within) - kept, len(within) - 1])
        return cls(base, middle, axes.astype(np.float32))

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""
        return int(self.axes.shape[1])

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32 unit vectors, each computed from only that input."""
        placed = np.empty((len(inputs), self.width), dtype=np.float32)
        for start, at in self.turned(inputs):
            placed[start : start + len(at)] = at
        return placed
