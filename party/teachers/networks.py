"""Convolutional teachers for images, with PyTorch: small networks for few records, fitted singly or together.

They learn from randomly transformed images. Together means one batch of each network's own images per
step, their weights stacked and the same operations applied to all (``torch.func``). Every shape is the
same whatever the shards hold: batches are of one size, and classes that a shard lacks are left out of its
loss, not of its scores. So no network's rounding depends on another's records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F  # noqa: N812  # PyTorch's own name for it

from party.teachers.protocol import DamagedTeacherError, Labels, Stored, dump, load
from party.teachers.schema import ImageSchema
from pate.data.values import Images
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from party.teachers.protocol import Shard
    from pate.data.values import Dataset, Inputs

_AT_ONCE: Final = 256
#: Number of networks trained at once on a GPU.
_TOGETHER: Final = 32
_MOST_CLASSES: Final = 100_000
_GROUPS: Final = 8
_WIDTHS: Final = (32, 64, 96, 128, 128, 128)
STEPS: Final = 300
_BATCH: Final = 32
_RATE: Final = 3e-3
_DECAY: Final = 0.01
_SMOOTHING: Final = 0.1
_TURN: Final = 0.2  # most rotation, in radians
_STRETCH: Final = 0.1  # most change of scale and shear
_SHIFT: Final = 0.15  # most shift, as a share of half the image


class Plain(nn.Sequential):
    """Blocks of two convolutions that halve the image until it is small, then one linear layer.

    They normalise over groups of channels within one image: its answer must not depend on others in its
    batch.
    """

    def __init__(self, size: tuple[int, int, int], classes: int) -> None:
        height, width, channels = size
        layers: list[nn.Module] = []
        for at, wide in enumerate(_WIDTHS):
            layers += [
                nn.Conv2d(channels, wide, 3, padding=1),
                nn.GroupNorm(_GROUPS, wide),
                nn.ReLU(),
            ]
            layers += [nn.Conv2d(wide, wide, 3, padding=1), nn.GroupNorm(_GROUPS, wide), nn.ReLU()]
            channels = wide
            if min(height, width) >= 4:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            if at and max(height, width) <= 8:
                break
        layers += [nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, classes)]
        super().__init__(*layers)


@dataclass(frozen=True, eq=False)
class CnnTeacher:
    """A fitted network; ``seen`` are the classes of the shard, no other is ever answered."""

    takes: ImageSchema
    seen: Labels
    network: nn.Module
    device: str

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input."""
        images = self.takes.conform(inputs)
        best = np.zeros(len(images), dtype=np.int64)
        columns = torch.from_numpy(self.seen).to(self.device)
        with torch.inference_mode():
            for start in range(0, len(images), _AT_ONCE):
                batch = _as_tensor(images.pixels[start : start + _AT_ONCE]).to(self.device)
                scores = self.network(batch)[:, columns]
                best[start : start + _AT_ONCE] = scores.argmax(dim=1).cpu().numpy()
        return self.seen[best]

    def store(self) -> Stored:
        """Return the weights as safetensors, the image size as JSON."""
        weights = {name: arrays.cpu().numpy() for name, arrays in self.network.state_dict().items()}
        return Stored(
            {"size": list(self.takes.size), "classes": len(list(weights.values())[-1])},
            dump({**weights, "seen": self.seen}),
        )


class Cnn:
    """Makes convolutional teachers."""

    name = "cnn"
    suffix = "safetensors"

    def __init__(self, device: str) -> None:
        self._device = device

    @property
    def version(self) -> str:
        """Another PyTorch, or another device, trains other networks from the same records.

        Other threads or processors may, too: :mod:`party.ledger.sent_votes` refuses changed votes.
        """
        return f"2, torch {torch.__version__} on {self._device}"

    def fit(self, shard: Dataset, seed: int) -> CnnTeacher:
        """Return the teacher of a shard."""
        network, lesson, size = self._prepare(shard, seed)
        train(network.to(self._device), lesson, self._device, STEPS)
        return self._teacher(network, lesson, size)

    def restore(self, stored: Stored) -> CnnTeacher:
        """Return the teacher that was stored."""
        takes = ImageSchema.from_facts(stored.facts)
        arrays = load(stored.model, None)
        seen, classes = arrays.pop("seen", None), stored.facts.get("classes")
        if type(classes) is not int or not 1 <= classes <= _MOST_CLASSES:
            raise DamagedTeacherError("its number of classes")
        if seen is None or seen.ndim != 1 or seen.dtype != np.int64 or not len(seen):
            raise DamagedTeacherError("its class list")
        columns = seen.astype(np.int64)
        if columns.min() < 0 or columns.max() >= classes:
            raise DamagedTeacherError("its class list")
        with torch.random.fork_rng(devices=[]):
            network = Plain(takes.size, classes)
        try:
            network.load_state_dict(
                {name: torch.from_numpy(np.array(w)) for name, w in arrays.items()}
            )
        except RuntimeError as error:
            raise DamagedTeacherError("the shapes of its weights") from error
        return CnnTeacher(takes, columns, network.eval().to(self._device), self._device)

    def _prepare(self, shard: Dataset, seed: int) -> tuple[nn.Module, Lesson, tuple[int, int, int]]:
        """Return an untrained network and its training data."""
        images = shard.inputs
        if not isinstance(images, Images):
            raise SchemaError(f"cnn teachers take images, the data is {images.schema()}")
        # PyTorch initialises layers from its global generator, which is saved and restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = Plain(images.size, len(shard.classes))
        seen = np.zeros(len(shard.classes), dtype=np.bool_)
        pixels, labels = images.pixels, np.array(shard.labels)
        if not len(labels):  # the teacher is unused, but keeps its place in the batch
            pixels, labels = np.zeros((1, *images.size), np.uint8), np.zeros(1, np.int64)
        seen[labels] = True
        lesson = Lesson(_as_tensor(pixels), torch.from_numpy(labels), torch.from_numpy(seen), seed)
        return network, lesson, images.size

    def _teacher(
        self, network: nn.Module, lesson: Lesson, size: tuple[int, int, int]
    ) -> CnnTeacher:
        seen = np.flatnonzero(lesson.seen.numpy()).astype(np.int64)
        return CnnTeacher(ImageSchema(size), seen, network.to(self._device).eval(), self._device)


class CnnTogether(Cnn):
    """Makes convolutional teachers in batches on a GPU; on a processor that would be slower."""

    def fit_many(self, data: Dataset, shards: Sequence[Shard]) -> Iterator[CnnTeacher]:
        """Yield the teacher of each shard; see :class:`party.teachers.protocol.FitsTogether`."""
        for start in range(0, len(shards), _TOGETHER):
            block = shards[start : start + _TOGETHER]
            ready = [self._prepare(data.take(rows), seed) for rows, seed in block]
            networks = [network for network, _, _ in ready]
            train_together(networks, [lesson for _, lesson, _ in ready], self._device, STEPS)
            for each in ready:
                yield self._teacher(*each)


def _as_tensor(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    """Return (n, channels, height, width) float32 in [-1, 1]."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2).contiguous()


# --- training -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lesson:
    """One network's images (n, channels, height, width) in [-1, 1]; the loss is of ``seen`` columns only."""

    images: torch.Tensor
    labels: torch.Tensor
    seen: torch.Tensor
    seed: int


def train(network: nn.Module, lesson: Lesson, device: str, steps: int) -> None:
    """Fit one network by AdamW with a one-cycle learning rate."""
    optimiser, schedule = _optimiser(list(network.parameters()), steps)
    seen = lesson.seen.to(device)
    network.train()
    for batch in _batches(lesson, steps):
        scores = network(_moved([batch], device)[0])
        loss = _loss(scores, batch.labels.to(device), seen)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()


def train_together(
    networks: Sequence[nn.Module], lessons: Sequence[Lesson], device: str, steps: int
) -> None:
    """Fit networks of one shape, each on its own lesson, as :func:`train` does but for rounding.

    AdamW moves each weight by that weight's own gradients, so one optimiser over the stacked
    weights is as many optimisers side by side.
    """
    stacked, _ = stack_module_state(list(networks))
    weights = {name: each.detach().to(device).requires_grad_() for name, each in stacked.items()}
    optimiser, schedule = _optimiser(list(weights.values()), steps)
    frame = networks[0].to(device).train()
    seen = torch.stack([lesson.seen for lesson in lessons]).to(device)

    def one(
        own: dict[str, torch.Tensor],
        images: torch.Tensor,
        labels: torch.Tensor,
        occurring: torch.Tensor,
    ) -> torch.Tensor:
        return _loss(functional_call(frame, own, (images,)), labels, occurring)

    for drawn in zip(*(_batches(lesson, steps) for lesson in lessons), strict=True):
        labels = torch.stack([batch.labels for batch in drawn]).to(device)
        losses: torch.Tensor = vmap(one)(weights, _moved(drawn, device), labels, seen)
        optimiser.zero_grad()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    for at, network in enumerate(networks):
        network.load_state_dict({name: each[at].detach() for name, each in weights.items()})


def _optimiser(
    weights: list[torch.Tensor], steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimiser = torch.optim.AdamW(weights, lr=_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=_RATE, total_steps=steps)
    return optimiser, schedule


def _loss(scores: torch.Tensor, labels: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy with smoothed labels, over only the occurring classes."""
    logs = F.log_softmax(scores.masked_fill(~seen, -1e9), dim=1)
    columns = torch.arange(scores.shape[1], device=scores.device)
    picked = (labels[:, None] == columns).to(scores.dtype)
    even = seen.to(scores.dtype) / seen.sum()
    target = (1 - _SMOOTHING) * picked + _SMOOTHING * even
    return -(target * logs.masked_fill(~seen, 0.0)).sum(dim=1).mean()


@dataclass(frozen=True, eq=False)
class _Batch:
    """Images and their (b, 6) transformations in [-1, 1]: turn, two stretches, shear, two shifts."""

    images: torch.Tensor
    labels: torch.Tensor
    spread: torch.Tensor


def _batches(lesson: Lesson, steps: int) -> Iterator[_Batch]:
    """Yield batches that depend only on the lesson."""
    draw = torch.Generator().manual_seed(lesson.seed)
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(steps):
        while len(order) < _BATCH:
            order = torch.cat([order, torch.randperm(len(lesson.images), generator=draw)])
        picked, order = order[:_BATCH], order[_BATCH:]
        spread = 2 * torch.rand(_BATCH, 6, generator=draw) - 1
        yield _Batch(lesson.images[picked], lesson.labels[picked], spread)


def _moved(batches: Sequence[_Batch], device: str) -> torch.Tensor:
    """Return (batches, b, channels, height, width), each image turned, stretched and shifted."""
    spread = torch.cat([batch.spread for batch in batches])
    images = torch.cat([batch.images for batch in batches]).to(device)
    turn = spread[:, 0] * _TURN
    grown = 1 + spread[:, 1:3] * _STRETCH
    matrix = torch.zeros(len(spread), 2, 3)
    matrix[:, 0, 0] = torch.cos(turn) * grown[:, 0]
    matrix[:, 0, 1] = spread[:, 3] * _STRETCH - torch.sin(turn)
    matrix[:, 1, 0] = torch.sin(turn)
    matrix[:, 1, 1] = torch.cos(turn) * grown[:, 1]
    matrix[:, :, 2] = spread[:, 4:] * _SHIFT
    grid = F.affine_grid(matrix.to(device), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return moved.reshape(len(batches), _BATCH, *images.shape[1:])
