"""Training of networks on randomly transformed images: one, or many of equal shape at once.

Many at once means one batch of each network's own images per step, their weights stacked and the
same operations applied to all (``torch.func``). Every shape is the same whatever the shards hold:
batches are of one size, and classes that a shard lacks are left out of its loss, not of its scores.
So no network's rounding depends on another's records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F  # noqa: N812  # PyTorch's own name for it

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

STEPS: Final = 300
_BATCH: Final = 32
_RATE: Final = 3e-3
_DECAY: Final = 0.01
_SMOOTHING: Final = 0.1
_TURN: Final = 0.2  # most rotation, in radians
_STRETCH: Final = 0.1  # most change of scale and shear
_SHIFT: Final = 0.15  # most shift, as a share of half the image


@dataclass(frozen=True, eq=False)
class Lesson:
    """The training data of one network.

    Attributes:
        images: (n, channels, height, width) float32 in [-1, 1], n at least one.
        labels: (n,) int64, columns of the network's scores.
        seen: (m,) bool, which columns occur among the labels; the others are left out of the loss.
        seed: 63 bits that decide the order and the transformations of the images.
    """

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
    weights = {name: held.detach().to(device).requires_grad_() for name, held in stacked.items()}
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
        network.load_state_dict({name: held[at].detach() for name, held in weights.items()})


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
    """Images and their random transformations.

    Attributes:
        images: (b, channels, height, width).
        labels: (b,).
        spread: (b, 6) in [-1, 1]: turn, two stretches, shear, two shifts.
    """

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
