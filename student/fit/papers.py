"""The students of the papers, as baselines: they learn labels of few images, and see the others.

*Virtual adversarial training* with entropy minimisation. The network should give the same answer for an image
and for the image moved slightly in the direction that changes its answer most, and with low entropy. That
direction is found by one round of power iteration on the divergence's second derivative. No image is
augmented. Two measures prevent a constant answer, which would also be smooth and certain. Unlabelled images
are normalised as a separate batch, as moved ones are: in one batch with labelled ones their answers would
differ before any move, and the divergence would penalise that difference. And the entropy's weight grows with
the training, so that the labels separate the classes before answers are sharpened. Source: Miyato et al.,
"Virtual adversarial training: a regularization method for supervised and semi-supervised learning", IEEE PAMI
41(8), 2019 (arXiv 1704.03976), equations 5, 13 to 15 and section 3.3, the entropy in section 4.3. PATE 2018
trained its students with it.

*PATE-G*, a generative adversarial network with feature matching. The classifier also distinguishes public
images from generated ones: with logits l_1 ... l_m, an image is real with probability Z / (Z + 1), where Z is
the sum of exp(l_j), as if there were one more class, "generated", with the logit zero. The generator is
trained to make images whose features have the same mean, over a batch, as those of public ones. The papers'
classifier had weight normalisation, ours has batch normalisation. Generated images are therefore a separate
batch, which does not update the running statistics; features are matched under the running statistics of real
images, where a difference of means is visible. Source: Salimans et al., "Improved techniques for training
GANs", NIPS 2016, sections 3.1 and 5; Papernot et al., "Semi-supervised knowledge transfer for deep learning
from private training data", ICLR 2017, section 2.3.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from student.fit.images import Averaged, decayed, descend, repeat
from student.fit.network import ImageStudent, build, choose_device, sized_for, to_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pate.data.values import Images
    from student.chances.evidence import Chances
    from student.fit.network import Network
    from student.lesson import Effort, Progress

VAT: Final = "vat"
#: Labelled and unlabelled, and as many generated, images per step.
_LABELLED: Final = 32
_UNLABELLED: Final = 64
#: Decay per step of the running mean of the weights.
_MEMORY: Final = 0.99
#: Of virtual adversarial training: the length of the move, and of the one by which its direction is found, as
#: a root mean square per value on the [-1, 1] scale; and the learning rate.
_RADIUS: Final = 0.1
_PROBE: Final = 1e-3
_VAT_RATE: Final = 2e-3
#: Weight of the entropy at the end, where the divergence has 1; it grows in a line from nothing.
_ENTROPY: Final = 1.0
#: Of PATE-G: size of a generated image's random input, and the learning rate of both networks.
_NOISE: Final = 100
_GAN_RATE: Final = 1e-3


def fit_paper(
    kind: str,
    images: Images,
    given: Chances,
    classes: tuple[str, ...],
    *,
    seed: int,
    device: str,
    effort: Effort,
    progress: Progress,
) -> ImageStudent:
    """Return the network of one of the papers, fitted to labels; no global generator is read or moved."""
    where = choose_device(device)
    architecture = sized_for(images.size, len(classes), wide=where.type == "cuda")
    first = torch.Generator().manual_seed(seed)
    network = build(architecture, first).to(where)
    method: Adversarial | Generative = (
        Adversarial(network) if kind == VAT else Generative(network, images.size, first, where)
    )
    averaged = Averaged(network, _MEMORY)
    queries = np.flatnonzero(given.matrix.any(axis=1))
    labels = torch.from_numpy(given.matrix[queries].argmax(axis=1)).to(where)
    pixels = to_tensor(images.pixels, where)
    known = pixels[torch.from_numpy(queries).to(where)]
    random = torch.Generator(where).manual_seed(seed + 1)

    def step(fraction: float) -> float:
        rows = _draw(len(queries), _LABELLED, random)
        some = pixels[_draw(len(pixels), _UNLABELLED, random)]
        # The rate falls in a line, over the second half, to a hundredth.
        rate = method.rate * min(1.0, 2 - 2 * fraction + 0.01)
        loss = method.loss(known[rows], labels[rows], some, fraction, random)
        reached = averaged.descend(method.optimiser, rate, loss)
        method.after(some, rate)
        return reached

    repeat(step, effort.steps or baseline_steps(images.size, where), effort, progress)
    return ImageStudent(architecture, averaged.mean.cpu(), classes, kind)


def baseline_steps(size: tuple[int, int, int], device: torch.device) -> int:
    """Return a number of steps that suits an image size and a device."""
    if device.type == "cuda":
        return 6000
    return 500 if min(size[:2]) < 16 else 1500


class Adversarial:
    """Virtual adversarial training of a network."""

    rate = _VAT_RATE

    def __init__(self, network: Network) -> None:
        self._network = network
        self.optimiser = torch.optim.AdamW(decayed(network), lr=self.rate, weight_decay=1e-3)

    def loss(
        self, known: Tensor, labels: Tensor, some: Tensor, fraction: float, random: torch.Generator
    ) -> Tensor:
        """Return cross-entropy, divergence and entropy."""
        network = self._network
        network.train()
        supervised = functional.cross_entropy(network(known), labels)
        guess = functional.log_softmax(network(some), dim=1)
        smooth = divergence(network, some, guess.detach(), random)
        entropy = -(guess.exp() * guess).sum(dim=1).mean()
        return supervised + smooth + fraction * _ENTROPY * entropy

    def after(self, some: Tensor, rate: float) -> None:
        """Do nothing: only the classifier is trained."""


def divergence(network: Network, images: Tensor, guess: Tensor, random: torch.Generator) -> Tensor:
    """Return the mean divergence of the guesses from those of adversarially moved images.

    ``network``: in training mode; its running statistics stay as they are; ``images``: (b,
    channels, height, width); ``guess``: (b, m) log-probabilities of the images, without a gradient;
    ``random``: draws where the power iteration starts.
    """
    with running_statistics_kept(network):
        length = images[0].numel() ** 0.5
        aim = unit(torch.randn(images.shape, generator=random, device=images.device))
        aim.requires_grad_()
        moved = functional.log_softmax(network(images + _PROBE * length * aim), dim=1)
        apart = functional.kl_div(moved, guess, reduction="batchmean", log_target=True)
        (steepest,) = torch.autograd.grad(apart, aim)
        worst = images + _RADIUS * length * unit(steepest)
        moved = functional.log_softmax(network(worst), dim=1)
    return functional.kl_div(moved, guess, reduction="batchmean", log_target=True)


def unit(moves: Tensor) -> Tensor:
    """Return each image's move, scaled to length one; a move of nearly zero remains zero."""
    largest = moves.abs().amax(dim=(1, 2, 3), keepdim=True)  # against underflow of the squares
    scaled = moves / (largest + 1e-30)
    length = scaled.square().sum(dim=(1, 2, 3), keepdim=True).sqrt()
    return scaled / (length + 1e-6)


class Generative:
    """A classifier of labelled, public and generated images, and the generator of the last."""

    rate = _GAN_RATE

    def __init__(
        self,
        network: Network,
        size: tuple[int, int, int],
        first: torch.Generator,
        device: torch.device,
    ) -> None:
        """Begin with a generator of images of a size, with weights drawn from ``first``."""
        self._network, self._generator = network, build_generator(size, _NOISE, first).to(device)
        self._made = torch.zeros(0)
        ours, theirs = decayed(network), self._generator.parameters()
        self.optimiser = torch.optim.Adam(ours, lr=self.rate, betas=(0.5, 0.999))
        self._theirs = torch.optim.Adam(theirs, lr=self.rate, betas=(0.5, 0.999))

    def loss(
        self, known: Tensor, labels: Tensor, some: Tensor, fraction: float, random: torch.Generator
    ) -> Tensor:
        """Return the losses of classes, and of public and generated images."""
        del fraction
        noise = torch.randn((len(some), _NOISE), generator=random, device=some.device)
        self._made = self._generator(noise)
        self._network.train()
        logits = self._network(torch.cat([known, some]))
        with running_statistics_kept(self._network):
            fakes = self._network(self._made.detach())
        supervised = functional.cross_entropy(logits[: len(known)], labels)
        return supervised + told_apart(logits[len(known) :], fakes)

    def after(self, some: Tensor, rate: float) -> None:
        """Take the generator's step: mean features of its images should match those of real ones."""
        self._network.eval()
        with torch.no_grad():
            wanted = self._network.features(some).mean(dim=0)
        missed = (self._network.features(self._made).mean(dim=0) - wanted).square().sum()
        descend(self._theirs, rate, missed, self._generator)


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


def told_apart(real: Tensor, fake: Tensor) -> Tensor:
    """Return the loss of classifying public images as real and generated ones as generated.

    With z the logarithm of Z, -log(Z / (Z + 1)) = softplus(z) - z, and -log(1 / (Z + 1)) =
    softplus(z). Each kind has half the weight.

    ``real``: (b, m) logits of public images; ``fake``: (b, m) logits of generated ones.
    """
    seen, made = torch.logsumexp(real, dim=1), torch.logsumexp(fake, dim=1)
    return 0.5 * (functional.softplus(seen) - seen).mean() + 0.5 * functional.softplus(made).mean()


@contextmanager
def running_statistics_kept(network: nn.Module) -> Iterator[None]:
    """Normalise batches by their own statistics, without updating the running ones."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, before, strict=True):
            norm.track_running_stats = tracked


def _draw(bound: int, count: int, random: torch.Generator) -> Tensor:
    """Return (count,) whole numbers below ``bound``, drawn with replacement."""
    return torch.randint(bound, (count,), generator=random, device=random.device)
