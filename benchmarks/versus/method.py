"""What a method is: its settings, and one training with its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from pate.errors import AccountingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from benchmarks.versus.problem import Problem

#: One setting of a method by name; plain values, for the results.
Setting: TypeAlias = Mapping[str, float | int | str]
#: The failure probability of every guarantee that has one.
DELTA: Final = 1e-5
EPSILONS: Final = (0.1, 0.5, 1.0, 4.0, 8.0)
#: Numbers of the trials that choose a setting; no dealing that is reported has one of them.
TRIALS: Final = (1_001, 1_002, 1_003)


@dataclass(frozen=True)
class Cost:
    """What one training asks of a party, the largest of all parties.

    Attributes:
        exchanges: requests that a party answers, one after the other.
        up: bytes that it sends.
        down: bytes that it receives.
        seconds: of a processor that it computes, which other work on the machine does not change.
        waiting: such seconds of the server, or the curator.
        numbers: of one sum over records; 0 for a method that is no such sum.
        steps: at which one would be summed by parties that give no records away.
    """

    exchanges: int
    up: int
    down: int
    seconds: float
    waiting: float = 0.0
    numbers: int = 0
    steps: int = 0

    @classmethod
    def of_parties(cls, parties: Sequence[Cost], seconds: float) -> Cost:
        """Return the largest cost of any party, by kind.

        Args:
            parties: the cost of each.
            seconds: of a processor in all; the server has what the parties leave of them.
        """
        return cls(
            max(cost.exchanges for cost in parties),
            max(cost.up for cost in parties),
            max(cost.down for cost in parties),
            max(cost.seconds for cost in parties),
            max(seconds - sum(cost.seconds for cost in parties), 0.0),
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model.

    Attributes:
        validation: (n, classes) scores of the validation records; a larger one is a likelier class.
            Of several models, one per party, (models, n, classes).
        test: the same of the test records.
        cost: of its training.
    """

    validation: NDArray[np.floating]
    test: NDArray[np.floating]
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a model.

    Attributes:
        name: on the command line.
        settings: from which the search for the best one begins.
        fit: trains with a setting, epsilon (None: no privacy), and a number that varies dealing and noise.
        private: whether there is a guarantee.
        rehearses: whether settings are chosen with validation records in the place of private ones.
            Otherwise candidates learn from the private records, and validation records judge them; that
            choice costs privacy which is not counted, in the method's favour.
        delta: of the guarantee, as the setting has it.
        fits: whether it is for a problem.
        widens: numbers of a setting which the search multiplies and divides, and by what.
    """

    name: str
    settings: Callable[[Problem], list[Setting]]
    fit: Callable[[Problem, Setting, float | None, int], Fitted]
    private: bool = True
    rehearses: bool = False
    delta: Callable[[Setting], float] = lambda _: DELTA
    fits: Callable[[Problem], bool] = lambda _: True
    widens: Mapping[str, float] = field(default_factory=dict)


def product(**values: tuple[float | int | str, ...]) -> list[Setting]:
    """Return all combinations.

    >>> product(a=(1, 2), b=("x",))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    made: list[dict[str, float | int | str]] = [{}]
    for name, each in values.items():
        made = [{**before, name: value} for before in made for value in each]
    return list(made)


def needed(epsilon: float | None) -> float:
    """Return the epsilon of a private method.

    Raises:
        AccountingError: if there is none.
    """
    if epsilon is None:
        raise AccountingError("a private method needs an epsilon")
    return epsilon
