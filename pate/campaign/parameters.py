"""Parameters of the mechanism that a campaign states; the roster determines the rest."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.campaign.choices import Aggregator
    from pate.campaign.options import MechanismOptions

#: The parameters that each aggregator has; others must stay None.
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "lnmax": ("scale",),
    "gnmax": ("sigma2",),
    "confident-gnmax": ("threshold", "sigma1", "sigma2"),
    "interactive-gnmax": (
        "threshold", "interactive_threshold", "sigma1", "sigma2", "confidence",
    ),
    "neighbour": ("threshold", "sigma2", "scale"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The stated parameters of a mechanism, each above 0; None where the roster determines it."""

    threshold: Fraction | None = None
    # T of the later rounds of Interactive-GNMax, in votes by which the teachers exceed the student
    interactive_threshold: Fraction | None = None
    sigma1: Fraction | None = None  # parameter of the threshold's noise, in votes
    sigma2: Fraction | None = None  # parameter of the noise on each count, in votes
    # parameter of LNMax's Laplace noise (1/gamma), or of geometric noise, in votes
    scale: Fraction | None = None
    # least probability at which the student's own prediction is reinforced
    confidence: Fraction | None = None

    def __post_init__(self) -> None:
        for name, value in self.stated().items():
            if type(value) is not Fraction or value <= 0:
                raise UsageError(f"{name} must be a positive exact fraction, got {value!r}")
        if self.confidence is not None and self.confidence >= 1:
            raise UsageError(f"confidence is below 1, got {self.confidence}")

    def stated(self) -> dict[str, Fraction]:
        """Return the stated parameters by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def check(self, aggregator: Aggregator, *, distributed: bool) -> None:
        """Check that the mechanism has these parameters."""
        for name in self.stated():
            if name not in PARAMETERS[aggregator]:
                raise UsageError(f"{name} has no meaning for {aggregator}: leave it out")
        if distributed and self.sigma1 is not None:
            raise UsageError(
                "with noise shares one noisy histogram serves the threshold test and the label: "
                "leave sigma1 out, sigma2 is for both"
            )


def parameters_of(options: MechanismOptions) -> Parameters:
    """Return the parameters that the options state, checked as far as the options tell.

    It imports no mathematics, so that a command refuses them before it starts.
    """
    given = {field.name: getattr(options, field.name) for field in fields(Parameters)}
    found = Parameters(
        **{name: exact(name, text) for name, text in given.items() if text is not None}
    )
    found.check(options.aggregator, distributed=options.noise == "distributed")
    return found


def exact(field: str, text: str) -> Fraction:
    """Return the exact number given for an option, such as "40", "2.5" or "1/3"."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError) as error:
        option = field.replace("_", "-")
        raise UsageError(
            f"--{option} must be a number such as 40, 2.5 or 1/3, got {text!r}"
        ) from error
