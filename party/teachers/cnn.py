"""Convolutional teachers for images, with PyTorch: a network small enough for their few records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn

from party.teachers import tensors
from party.teachers.descent import STEPS, Lesson, train, train_together
from party.teachers.device import pick_device
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
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


class Plain(nn.Sequential):
    """Blocks of two convolutions that halve the image until it is small, then one linear layer.

    They normalise over groups of channels within one image: batches are small, and the answer to an
    image must not depend on others in its batch.

    Args:
        size: height, width, channels.
        classes: number of scores.
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
    """A fitted network.

    Attributes:
        takes: image size.
        seen: (c,) int64, the classes that the shard holds; no other is ever answered.
        network: a score for each class of the list, in evaluation mode.
        device: where it runs.
    """

    takes: ImageSchema
    seen: Labels
    network: nn.Module
    device: str

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
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
            tensors.dump({**weights, "seen": self.seen}),
        )


class Cnn:
    """Makes convolutional teachers.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsageError: if there is no such device.
    """

    name = "cnn"
    suffix = "safetensors"

    def __init__(self, device: str) -> None:
        self._device = pick_device(device)

    @property
    def version(self) -> str:
        """Another PyTorch, or another device, trains other networks from the same records.

        So may another number of threads, or another processor, which the version does not cover:
        changed votes are refused by :mod:`party.ledger.sent_votes`.
        """
        return f"2, torch {torch.__version__} on {self._device}"

    def fit(self, shard: Dataset, seed: int) -> CnnTeacher:
        """Return the teacher of a shard.

        Raises:
            SchemaError: if the shard has no images.
        """
        network, lesson, size = self._prepare(shard, seed)
        train(network.to(self._device), lesson, self._device, STEPS)
        return self._teacher(network, lesson, size)

    def restore(self, stored: Stored) -> CnnTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        takes = tensors.image_size(stored.facts)
        arrays = tensors.load(stored.model, None)
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
    """Makes convolutional teachers in batches on a GPU, which one small network cannot use fully.

    On a processor many at once are slower than one after the other.
    """

    def fit_many(self, data: Dataset, shards: Sequence[Shard]) -> Iterator[CnnTeacher]:
        """Yield the teacher of each shard; see :class:`party.teachers.protocol.FitsTogether`."""
        for start in range(0, len(shards), _TOGETHER):
            block = shards[start : start + _TOGETHER]
            ready = [self._prepare(data.take(rows), seed) for rows, seed in block]
            networks = [network for network, _, _ in ready]
            train_together(networks, [lesson for _, lesson, _ in ready], self._device, STEPS)
            for each in ready:
                yield self._teacher(*each)


def cnn_kind(device: str) -> Cnn:
    """Return the kind that suits the device."""
    found = pick_device(device)
    return Cnn(found) if found == "cpu" else CnnTogether(found)


def _as_tensor(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> torch.Tensor:
    """Return (n, channels, height, width) float32 in [-1, 1]."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(0, 3, 1, 2).contiguous()
