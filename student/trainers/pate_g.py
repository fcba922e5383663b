"""A baseline for images, PATE-G: a generative adversarial network with feature matching.

The classifier also distinguishes public images from generated ones: with logits l_1 ... l_m, an image is
real with probability Z / (Z + 1), where Z is the sum of exp(l_j), as if there were one more class,
"generated", with the logit zero. The generator is trained to make images whose features have the
same mean, over a batch, as those of public ones.

The papers' classifier had weight normalisation, ours has batch normalisation. Generated images are
therefore a separate batch, which does not update the running statistics; features are matched under the
running statistics of real images, where a difference of means is visible.

Source: Salimans et al., "Improved techniques for training GANs", NIPS 2016, sections 3.1 and 5;
Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training data",
ICLR 2017, section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.images import (
    Averaged,
    ImageStudent,
    baseline_steps,
    choose_device,
    decayed,
    descend,
    draw,
    falling,
    images_of,
    on_device,
    repeat,
    running_statistics_kept,
)
from student.trainers.network import build, sized_for

KIND: Final = "pate-g"


@dataclass(frozen=True)
class Settings:
    """Parameters of the training.

    Attributes:
        labelled: labelled images per step.
        unlabelled: unlabelled, and as many generated, images per step.
        noise: size of a generated image's random input.
        learning_rate: of both networks; it falls in a line to a hundredth over the second half.
        memory: decay per step of the running mean of the classifier's weights.
    """

    labelled: int = 32
    unlabelled: int = 64
    noise: int = 100
    learning_rate: float = 1e-3
    memory: float = 0.99


class Generator(nn.Module):
    """Noise in, images out: a linear layer, then two convolutions, each after a doubling."""

    def __init__(self, size: tuple[int, int, int], noise: int, width: int = 32) -> None:
        super().__init__()
        height, breadth, channels = size
        self._size = (height, breadth)
        self._start = (2 * width, -(-height // 4), -(-breadth // 4))
        self.open = nn.Linear(noise, self._start[0] * self._start[1] * self._start[2])
        self.norm1 = nn.BatchNorm2d(2 * width)
        self.conv1 = nn.Conv2d(2 * width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        """Return (b, channels, height, width) in [-1, 1] from (b, noise)."""
        maps = functional.relu(self.norm1(self.open(noise).reshape(-1, *self._start)))
        maps = functional.interpolate(maps, scale_factor=2.0)
        maps = functional.relu(self.norm2(self.conv1(maps)))
        maps = functional.interpolate(maps, size=self._size)
        return torch.tanh(self.conv2(maps))


def build_generator(size: tuple[int, int, int], noise: int, random: torch.Generator) -> Generator:
    """Return a generator with weights drawn only from ``random`` (on the CPU)."""
    with torch.device("meta"):
        made = Generator(size, noise)
    made.to_empty(device="cpu")
    with torch.no_grad():
        for module in made.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                fan = module.weight[0].numel()
                module.weight.normal_(0.0, (1.0 / fan) ** 0.5, generator=random)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
                module.reset_running_stats()
    return made


def train(
    lesson: Lesson,
    *,
    seed: int,
    device: str = "auto",
    effort: Effort | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> ImageStudent:
    """Train a student on labelled and unlabelled images.

    Args:
        lesson: images of one size; labels of a few.
        seed: of every random choice; no global generator is read or moved.
        device: ``auto``, ``cpu`` or ``cuda``.
        effort: how long.
        settings: parameters of the training.
        progress: called after every step.

    Raises:
        DataError: if the inputs are not images.
        UsageError: if the device is not here.
    """
    images = images_of(lesson)
    effort, by = effort or Effort(), settings or Settings()
    where = choose_device(device)
    architecture = sized_for(images.size, len(lesson.classes), wide=where.type == "cuda")
    first = torch.Generator().manual_seed(seed)
    network = build(architecture, first).to(where)
    generator = build_generator(images.size, by.noise, first).to(where)
    averaged = Averaged(network, by.memory)
    pixels, queries, labels, random = on_device(lesson, where, seed)
    ours = torch.optim.Adam(decayed(network), lr=by.learning_rate, betas=(0.5, 0.999))
    theirs = torch.optim.Adam(generator.parameters(), lr=by.learning_rate, betas=(0.5, 0.999))

    def step(fraction: float) -> float:
        rate = falling(by.learning_rate, fraction)
        rows = draw(len(queries), by.labelled, random)
        some = pixels[draw(len(pixels), by.unlabelled, random)]
        noise = torch.randn((len(some), by.noise), generator=random, device=where)
        made = generator(noise)
        network.train()
        logits = network(torch.cat([pixels[queries[rows]], some]))
        with running_statistics_kept(network):
            fakes = network(made.detach())
        supervised = functional.cross_entropy(logits[: len(rows)], labels[rows])
        loss = supervised + told_apart(logits[len(rows) :], fakes)
        reached = averaged.descend(ours, rate, loss)
        # The generator's step: mean features of generated images should match those of real ones.
        network.eval()
        with torch.no_grad():
            wanted = network.features(some).mean(dim=0)
        missed = (network.features(made).mean(dim=0) - wanted).square().sum()
        descend(theirs, rate, missed, generator)
        return reached

    repeat(step, effort.steps or baseline_steps(images.size, where), effort, progress)
    return ImageStudent(architecture, averaged.mean.cpu(), lesson.classes, KIND)


def told_apart(real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of classifying public images as real and generated ones as generated.

    With z the logarithm of Z, -log(Z / (Z + 1)) = softplus(z) - z, and -log(1 / (Z + 1)) =
    softplus(z). Each kind has half the weight.

    Args:
        real: (b, m) logits of public images.
        fake: (b, m) logits of generated ones.
    """
    seen, made = torch.logsumexp(real, dim=1), torch.logsumexp(fake, dim=1)
    return 0.5 * (functional.softplus(seen) - seen).mean() + 0.5 * functional.softplus(made).mean()
