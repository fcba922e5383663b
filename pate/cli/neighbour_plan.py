"""The options and the plan of ``pate plan-neighbour``: code, representatives and noise."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pate.answers import (
    CLASS,
    LABELS,
    NONE,
    NUMBER,
    RESIDUAL,
    Answer,
    answer_of,
    points_of,
    range_in,
)
from pate.campaign.options import (
    AnswerOption,
    CodeOption,
    DeltaOption,
    NoiseLawOption,
    RangeOption,
)
from pate.codes import DENSE, MOST_DIRECTIONS, NEAREST, Code, require_places
from pate.errors import UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.runtime.options import CommandOptions, of_campaign, of_data, of_privacy

if TYPE_CHECKING:
    from pate.noise import NoiseLawName
    from pate.planning.neighbour import NeighbourNoise, NeighbourPlan, SumsPlan

#: Numbers of representatives shown in addition to the default.
_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
#: A size of a public set that bounds no number.
_ANY: Final = 10**9
#: Most labels of a record that the noise is shown for.
_MOST_LABELS: Final = 4


@dataclass(frozen=True, kw_only=True)
class NeighbourOptions(CommandOptions):
    """The options."""

    records: Annotated[int, of_campaign(min=1, help="Your guess at all parties' records.")] = 10_000
    parties: Annotated[int, of_campaign(min=1, help="How many parties.")] = 5
    classes: Annotated[int, of_campaign(min=2, help="Number of classes, or of labels.")] = 10
    public: Annotated[
        Path | None,
        of_data(help="The public set: as many representatives as it has.", metavar="PATH"),
    ] = None
    epsilon: Annotated[float, of_privacy(help="What the one release may cost.")] = 1.0
    delta: DeltaOption = 1e-5
    purity: Annotated[
        float,
        of_campaign(help="Guess: share of near records of the same class.", metavar="SHARE"),
    ] = 0.9
    colluders: Annotated[
        int | None,
        of_privacy(min=0, help="Parties that may tell the server their noise. Default: a third"),
    ] = None
    unit: Annotated[Literal["record", "patient"], of_privacy(help="What is protected.")] = "record"
    votes_per_patient: Annotated[
        int, of_privacy(min=1, help="Patient: most votes of one patient.")
    ] = 1
    noise_law: NoiseLawOption = None
    representatives: Annotated[
        int | None, of_campaign(min=1, help="Public inputs to vote at. Default: as the server")
    ] = None
    code: CodeOption = None
    answer: AnswerOption = None
    range: RangeOption = None

    def __post_init__(self) -> None:
        if self.votes_per_patient != 1 and self.unit != "patient":
            raise UsageError("--votes-per-patient is for --unit patient")

    @property
    def says(self) -> Answer:
        """What a record says."""
        return answer_of(self.answer or CLASS)

    @property
    def columns(self) -> int:
        """Columns of the counts.

        Raises:
            UsageError: for an answer that needs more labels.
        """
        if self.says.name == NUMBER:
            return len(self.points)
        if self.range is not None:
            raise UsageError("--range is for --answer number: leave it out")
        if self.says.name == LABELS:
            self.says.check_columns((*map(str, range(self.classes)), NONE))
            return self.classes + 1
        return self.classes

    @property
    def points(self) -> tuple[float, ...]:
        """Points of the range of a number; without a range its two ends, whatever they are."""
        return (0.0, 1.0) if self.range is None else points_of(range_in(self.range))

    @property
    def of_server(self) -> str:
        """The command of a server that has the same options."""
        given = {
            "--public": self.public,
            "--parties": self.parties,
            "--unit": None if self.unit == "record" else self.unit,
            "--votes-per-patient": self.votes_per_patient if self.unit == "patient" else None,
            "--epsilon": f"{self.epsilon:g}",
            "--delta": f"{self.delta:g}",
            "--colluders": self.colluders,
            "--expected-records": self.records,
            "--representatives": self.representatives,
            "--noise-law": self.noise_law,
            "--code": self.code or NEAREST,
            "--classes": "NAMES" if self.says.name == RESIDUAL else None,
            "--answer": self.answer,
            "--range": self.range,
        }
        words = [f"{name} {value}" for name, value in given.items() if value is not None]
        return "pate-server --aggregator neighbour " + " ".join(words)


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes:
        options: of the command.
        code: that the server would take.
        noise: its noise.
        default: number of representatives that the server would take, None where it is stated.
        rows: numbers of representatives, each with what is expected of it.
    """

    options: NeighbourOptions
    code: Code
    noise: NeighbourNoise
    default: int | None
    rows: list[NeighbourPlan] | list[SumsPlan]

    @classmethod
    def of(cls, options: NeighbourOptions) -> Plan:
        """Return the plan of these options.

        Raises:
            UsageError: for options that make no sense together.
            BudgetError: if no noise gives so small an epsilon.
        """
        from pate.accounting.gdp import mu_squared_from_epsilon
        from pate.campaign.representatives import default_number, number_for, settled_code
        from pate.planning.neighbour import NeighbourNoise, plan_representatives, plan_sums
        from pate.rounds.rule import plan_of

        code, votes, columns = options.code or NEAREST, options.votes_per_patient, options.columns
        of_one = options.epsilon, options.delta, options.parties, votes, options.colluders

        def noise_of(code: Code, law: NoiseLawName | None) -> NeighbourNoise:
            if code.answer.name == RESIDUAL:
                mu = math.sqrt(mu_squared_from_epsilon(options.epsilon, options.delta)) / 2
                rounds = plan_of(columns, code.places, options.records, mu).rounds
                of_all = options.epsilon, options.delta, options.parties, options.colluders
                return NeighbourNoise.of_rounds(*of_all, str(code), rounds)
            return NeighbourNoise.of(*of_one, law, str(code))

        says = Answer() if options.says.name == RESIDUAL else options.says
        nearest = noise_of(replace(Code(NEAREST), answer=says), options.noise_law)
        delta = nearest.delta
        if code != NEAREST:
            delta = 0.0 if options.noise_law == "geometric" else options.delta
        usual = default_number(
            options.records, _ANY, options.epsilon, delta, votes * options.says.most
        )
        public = _ANY if options.public is None else _distinct(options.public)
        middle = options.representatives or number_for(code, usual, public)

        def settled(number: int) -> Code:
            return replace(settled_code(code, number), answer=options.says)

        chosen = settled(middle)
        require_places(chosen, middle)
        if middle > public:
            raise UsageError(f"the public set has {public} different inputs, not {middle}")
        noise = noise_of(chosen, options.noise_law)
        dense = code == DENSE
        most = min(public, MOST_DIRECTIONS if dense else _ANY)
        numbers = sorted({min(max(1 + dense, round(middle * step)), most) for step in _STEPS})
        if chosen.name == DENSE and not dense:
            numbers = [middle]
        plans: list[NeighbourPlan] = []
        sums: list[SumsPlan] = []
        for number in numbers:
            each = settled(number)
            carried = noise_of(each, noise.law)
            if each.name == DENSE or not each.answer.one_hot:
                sums.append(
                    plan_sums(
                        number,
                        each,
                        records=options.records,
                        columns=columns,
                        noise=carried.carried,
                        points=options.points,
                    )
                )
                continue
            plans.append(
                plan_representatives(
                    number,
                    records=options.records,
                    classes=columns,
                    purity=options.purity,
                    sigma=carried.carried,
                    threshold=carried.threshold,
                )
            )
        default = None if options.representatives is not None else middle
        return cls(options, chosen, noise, default, plans or sums)

    @property
    def in_words(self) -> str:
        """The guarantee."""
        options = self.options
        neighbours = neighbours_of(options.unit, records_vote=True)
        return in_words(options.epsilon, self.noise.delta, options.unit, neighbours=neighbours)

    @property
    def by_labels(self) -> dict[str, float]:
        """Noise on each count for other numbers of labels that count, in votes."""
        from pate.planning.neighbour import NeighbourNoise

        if self.code.answer.name != LABELS:
            return {}
        options, found = self.options, {}
        for most in range(1, min(_MOST_LABELS, options.classes - 1) + 1):
            code = replace(self.code, answer=Answer("labels", most))
            noise = NeighbourNoise.of(
                options.epsilon, options.delta, options.parties, options.votes_per_patient,
                options.colluders, options.noise_law, str(code),
            )  # fmt: skip
            found[str(code.answer)] = noise.carried
        return found

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        noise, options = self.noise, self.options
        return {
            "guarantee": {
                "epsilon": options.epsilon,
                "delta": noise.delta,
                "unit": options.unit,
                "in_words": self.in_words,
            },
            "noise": {
                "law": noise.law,
                **_parameter(noise),
                "counted_shares": noise.honest,
                "carried_sigma": noise.carried,
                "sigma_of_each_law": noise.spreads,
                "threshold": noise.threshold,
            },
            "code": str(self.code),
            "server_default": self.default,
            "server": options.of_server,
            "plans": [
                asdict(each) | ({"labels": each.labels} if hasattr(each, "labels") else {})
                for each in self.rows
            ],
        }


def _distinct(path: Path) -> int:
    """Return how many different inputs a public set has."""
    from pate.campaign.representatives import first_of_each
    from pate.data.read import read_inputs

    return len(first_of_each(read_inputs(path)))


def _parameter(noise: NeighbourNoise) -> dict[str, str]:
    """Return the parameter of the noise by its name in a mechanism."""
    from pate.noise.share_laws import GeometricShares

    shares = noise.shares
    if isinstance(shares, GeometricShares):
        return {"scale": str(shares.scale)}
    return {"share": str(shares.share)}
