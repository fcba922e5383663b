"""A network learns class probabilities of public images, all of which have some.

It learns them from strongly augmented images. Beliefs from labels are updated: several times the running mean
of the network's weights predicts the public images, and network, features and labels are combined. Images
with less confident beliefs get smaller weights.

Chances made of counts, or of votes over embeddings, stay as they are, and the network is calibrated on the
public images at the end.

Source: Iscen et al., "Label propagation for deep semi-supervised learning", CVPR 2019; the weights
from Chen et al., "SoftMatch", ICLR 2023; the running mean from Tarvainen and Valpola, "Mean
teachers are better role models", NIPS 2017; the schedule of the learning rate from Smith and Topin,
"Super-convergence", arXiv 1708.07120. The constants were found on MNIST's training images.

Augmentation is batched: one affine grid per image, one `grid_sample` per batch. No horizontal flips, since a
mirrored digit is another symbol. Changes are mainly of shape: with good labels, other changes only slow
learning. Its randomness comes from the generator that is passed in, on the images' device.
"""

from __future__ import annotations

import copy
import math
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from student.chances.propagation import with_labels
from student.fit.network import ImageStudent, build, choose_device, sized_for, to_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.data.values import Images
    from student.chances.evidence import Chances
    from student.fit.network import Network
    from student.lesson import Effort, Progress

#: Largest rotation in degrees, relative changes of size and shear, either way; lengths of translation, of a
#: smooth random displacement (elastic deformation) and of the blanked square, as fractions of the image's
#: side.
_ROTATION: Final = 15.0
_SCALE: Final = 0.15
_SHEAR: Final = 0.2
_SHIFT: Final = 0.1
_BEND: Final = 0.03
_CUTOUT: Final = 0.25
_NOISE: Final = 0.05  # standard deviation per pixel, on the [-1, 1] scale, at most


def weak(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return (b, channels, height, width) images moved by whole pixels, at most one eighth of their side."""
    count, _, height, width = images.shape
    reach = max(1, min(height, width) // 12)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    down = _whole(count, 2 * reach + 1, generator)
    right = _whole(count, 2 * reach + 1, generator)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    at = torch.arange(count, device=images.device)[:, None, None]
    # Indices around a slice put the sliced axis last; back to (b, channels, height, width).
    return padded[at, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def strong(
    images: Tensor, generator: torch.Generator, contrast: float = 0.1, brightness: float = 0.0
) -> Tensor:
    """Return (b, channels, height, width) images in [-1, 1] with random bending, colour, noise and cutout."""
    bent = _recolour(_warp(images, generator), generator, contrast, brightness)
    return _cutout(bent, generator)


def _warp(images: Tensor, generator: torch.Generator) -> Tensor:
    count, _, height, width = images.shape
    angle, shear, grow, stretch, right, down = _spread((6, count), generator)
    angle = angle * math.radians(_ROTATION)
    across = torch.exp(grow * _SCALE + stretch * _SCALE / 2)
    along = torch.exp(grow * _SCALE - stretch * _SCALE / 2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    lean = shear * _SHEAR
    matrix = torch.stack(
        [
            torch.stack([across * cos, along * (lean * cos - sin), 2 * _SHIFT * right], dim=1),
            torch.stack([across * sin, along * (lean * sin + cos), 2 * _SHIFT * down], dim=1),
        ],
        dim=1,
    )
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    if min(height, width) >= 16:
        knots = torch.randn((count, 2, 4, 4), generator=generator, device=images.device)
        field = functional.interpolate(
            knots, size=(height, width), mode="bilinear", align_corners=True
        )
        grid = grid + 2 * _BEND * field.permute(0, 2, 3, 1)
    return functional.grid_sample(
        images, grid, mode="bilinear", padding_mode="border", align_corners=False
    )


def _recolour(
    images: Tensor, generator: torch.Generator, contrast: float, brightness: float
) -> Tensor:
    count, channels = images.shape[:2]
    factor = torch.exp(contrast * _spread((count, channels, 1, 1), generator))
    shift = brightness * _spread((count, channels, 1, 1), generator)
    level = _NOISE * _uniform((count, 1, 1, 1), generator)
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return (images * factor + shift + level * noise).clamp(-1.0, 1.0)


def _cutout(images: Tensor, generator: torch.Generator) -> Tensor:
    """Blank one square per image with the image's own mean."""
    count, _, height, width = images.shape
    half = _uniform((count, 1), generator) * _CUTOUT / 2
    middle_row, middle_column = _uniform((2, count, 1), generator)
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    inside = ((rows - middle_row).abs() < half)[:, None, :, None]
    inside = inside & ((columns - middle_column).abs() < half)[:, None, None, :]
    return torch.where(inside, images.mean(dim=(1, 2, 3), keepdim=True), images)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _spread(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return uniform numbers in [-1, 1]."""
    return 2 * _uniform(shape, generator) - 1


def _whole(count: int, bound: int, generator: torch.Generator) -> Tensor:
    return torch.randint(bound, (count,), generator=generator, device=generator.device)


KIND: Final = "propagation"
_LEAST_WRONG: Final = 1e-3
#: Drawings differ in shape mainly; photographs also in exposure: largest change of contrast and brightness.
_EXPOSURE: Final = (0.4, 0.2)
_AT_ONCE: Final = 256  # images predicted per batch
_CALIBRATIONS: Final = 100
_BATCH: Final = 64
#: Of the learning rate: its highest, and the fraction of the training until then.
_RATE: Final = 0.1
_WARM_UP: Final = 0.2
_DECAY: Final = 5e-4
#: Decay per step of the running mean of the weights, once it has warmed up.
_MEMORY: Final = 0.995
#: Fractions of the training at which beliefs are updated.
_LOOKS: Final = (0.4, 0.55, 0.7, 0.85)


def default_steps(size: tuple[int, int, int], count: int, device: torch.device) -> int:
    """Return a number of steps that suits the size of an image, their number and a device."""
    if device.type == "cuda":
        return 6000
    if min(size[:2]) < 16:
        return 600
    # Thirty epochs for many images, and enough steps for few.
    return min(max(30 * count // _BATCH, 800), 4200)


def fit_images(
    images: Images,
    given: Chances,
    classes: tuple[str, ...],
    *,
    seed: int,
    device: str,
    effort: Effort,
    progress: Progress,
) -> ImageStudent:
    """Return a network fitted to chances of public images; no global generator is read or moved."""
    where = choose_device(device)
    steps = effort.steps or default_steps(images.size, len(images), where)
    architecture = sized_for(images.size, len(classes), wide=where.type == "cuda")
    initial = build(architecture, torch.Generator().manual_seed(seed)).to(where)
    pixels = to_tensor(images.pixels, where)
    chances = given.matrix.astype(np.float32)
    run = _Run(pixels, chances, given.known, initial, seed)
    repeat(run.step, steps, effort, progress)
    network = run.averaged.mean.cpu().to(memory_format=torch.contiguous_format)
    if given.known is None:
        calibrate(network, pixels.cpu(), chances)
    return ImageStudent(architecture, network, classes, KIND)


def calibrate(network: Network, images: Tensor, chances: NDArray[np.float32]) -> None:
    """Scale and shift the network's logits so that they fit the chances best, by cross-entropy.

    A network that has learnt from augmented images is off on plain ones: all of them look a little more
    like one class. Then its mean probabilities over the images are those of the chances.

    Source: of logits, Guo et al., "On calibration of modern neural networks", ICML 2017, there with labels.

    ``network``: whose linear layer is changed in place; on the CPU; ``images``: (n, channels,
    height, width), not augmented; ``chances``: (n, m) probabilities of the classes, made of noisy
    counts.
    """
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(some) for some in torch.split(images, _AT_ONCE)]).double()
    wanted = torch.from_numpy(chances).double()
    moved = torch.zeros(1 + logits.shape[1], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([moved], max_iter=_CALIBRATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        found = functional.cross_entropy(moved[0].exp() * logits + moved[1:], wanted)
        found.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        scale = float(moved[0].exp())
        network.head.weight.mul_(scale)
        network.head.bias.mul_(scale).add_(moved[1:].float())


class _Run:
    """One training: the network, the running mean of its weights, the beliefs."""

    def __init__(
        self,
        images: Tensor,  # (n, channels, height, width)
        prior: NDArray[np.float32],  # (n, m) probabilities
        # (n, m) labels to combine them with at each look; None for chances that stay as they are,
        # which contain their own uncertainty: there uncertain images are informative
        known: NDArray[np.float64] | None,
        network: Network,
        seed: int,
    ) -> None:
        # Channels last is the faster order for small convolutions on a CPU.
        self.averaged = Averaged(network.to(memory_format=torch.channels_last), _MEMORY)
        self._random = torch.Generator(images.device).manual_seed(seed + 1)
        self._images = images
        self._prior, self._known = prior, known
        self._looks: tuple[float, ...] = () if known is None else _LOOKS
        self._order = torch.zeros(0, dtype=torch.int64, device=images.device)
        self._believe(prior)
        self._optimiser = torch.optim.SGD(
            decayed(network), lr=_RATE, momentum=0.9, nesterov=True, weight_decay=_DECAY
        )

    def step(self, fraction: float) -> float:
        """Take one step, ``fraction`` of the training being done; return the loss."""
        if self._looks and fraction >= self._looks[0]:
            self._looks = tuple(later for later in self._looks if later > fraction)
            self._look()
        rows = self._draw()
        bent = strong(self._images[rows], self._random, *(_EXPOSURE if self._known is None else ()))
        self.averaged.network.train()
        logits = self.averaged.network(bent.contiguous(memory_format=torch.channels_last))
        apart = functional.cross_entropy(logits, self._targets[rows], reduction="none")
        loss = (apart * self._weights[rows]).mean()
        return self.averaged.descend(self._optimiser, _RATE * _rate(fraction), loss)

    def _look(self) -> None:
        """Update the beliefs of each image by the network."""
        parts = []
        with torch.no_grad():
            for some in torch.split(self._images, _AT_ONCE):
                seen = weak(some, self._random)
                logits = self.averaged.mean(seen.contiguous(memory_format=torch.channels_last))
                parts.append(functional.softmax(logits, dim=1))
        seen_as = torch.cat(parts).cpu().numpy()
        # The network's error rate is estimated where the features are confident.
        sure = self._prior.max(axis=1) >= np.median(self._prior.max(axis=1))
        wrong = (seen_as.argmax(axis=1) != self._prior.argmax(axis=1))[sure].mean()
        wrong = max(float(wrong), _LEAST_WRONG)
        seen_as = (1 - wrong) * seen_as + wrong / seen_as.shape[1]
        product = seen_as * self._prior
        self._believe(product / product.sum(axis=1, keepdims=True))

    def _believe(self, probabilities: NDArray[np.float32]) -> None:
        known = np.zeros(probabilities.shape) if self._known is None else self._known
        self._targets = torch.from_numpy(with_labels(probabilities, known)).to(self._images.device)
        self._weights = torch.ones(len(self._targets), device=self._images.device)
        if self._known is None:
            return
        sure = self._targets.max(dim=1).values
        short = (sure.mean() - sure).clamp(min=0)
        self._weights = torch.exp(-2 * short.square() / (sure.var(correction=0) + 1e-8))

    def _draw(self) -> Tensor:
        """Return the next rows: every image once, in a new order, before any comes again."""
        while len(self._order) < _BATCH:
            more = torch.randperm(
                len(self._images), generator=self._random, device=self._random.device
            )
            self._order = torch.cat([self._order, more])
        rows, self._order = self._order[:_BATCH], self._order[_BATCH:]
        return rows


def _rate(fraction: float) -> float:
    """Return the learning rate relative to its highest: up in a line, down along a cosine."""
    if fraction < _WARM_UP:
        return max(fraction / _WARM_UP, 0.01)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (fraction - _WARM_UP) / (1 - _WARM_UP)))) + 1e-4


def decayed(network: nn.Module) -> list[dict[str, list[nn.Parameter] | float]]:
    """Return an optimiser's groups: weight decay applies only to matrices and filters."""
    return [
        {"params": [w for w in network.parameters() if w.ndim > 1]},
        {"params": [w for w in network.parameters() if w.ndim <= 1], "weight_decay": 0.0},
    ]


def descend(
    optimiser: torch.optim.Optimizer, rate: float, loss: Tensor, network: nn.Module
) -> None:
    """Take one step of an optimiser at a learning rate, with gradients of a norm of at most 5."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    # Gradients may also fall on another network; its own optimiser clears them before its step.
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    nn.utils.clip_grad_norm_(network.parameters(), 5.0)
    optimiser.step()


class Averaged:
    """A network in training, and the running mean of its weights, which the student gets."""

    def __init__(self, network: Network, memory: float) -> None:
        """Start with a network; ``memory`` is the decay of the mean per step.

        Early on it is smaller, so that the random start is forgotten.
        """
        self.network = network
        self.mean = copy.deepcopy(network).requires_grad_(requires_grad=False).eval()
        self.taken = 0
        self._memory = memory

    def descend(self, optimiser: torch.optim.Optimizer, rate: float, loss: Tensor) -> float:
        """Take one step, as of :func:`descend`, and move the mean towards the network; return the loss."""
        descend(optimiser, rate, loss, self.network)
        self.taken += 1
        keep = min(self._memory, self.taken / (self.taken + 10.0))
        with torch.no_grad():
            current = self.network.state_dict()
            for name, average in self.mean.state_dict().items():
                if average.is_floating_point():
                    average.lerp_(current[name], 1.0 - keep)
        return float(loss.detach())


def repeat(step: Callable[[float], float], steps: int, effort: Effort, progress: Progress) -> None:
    """Take up to ``steps`` steps, fewer if time runs out; ``step`` gets the fraction that is done."""
    started = time.monotonic()
    fraction = 0.0
    for taken in range(steps):
        loss = step(fraction)
        fraction = (taken + 1) / steps
        if effort.seconds is not None:
            fraction = max(fraction, (time.monotonic() - started) / effort.seconds)
        progress(taken + 1, steps, loss)
        if fraction >= 1.0:
            break
