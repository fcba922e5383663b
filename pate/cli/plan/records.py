"""The plan of a campaign in which records vote: code, representatives and noise, before any votes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table as Sheet

from pate.answers import CLASS, LABELS, NUMBER, ORDERED, answer_of, points_of, range_in
from pate.campaign.choices import RECORDS
from pate.campaign.options import MechanismOptions
from pate.campaign.settings import spec_of
from pate.campaign.terms import matrix_mechanism, round_mechanisms
from pate.cli.plan.options import PlanOptions
from pate.codes import DENSE, MOST_DIRECTIONS, NEAREST, code_of
from pate.data.values import Table
from pate.errors import UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.noise.share_laws import GeometricShares
from pate.planning.records import PURITY, RecordsPlan, plan_records
from pate.printable import number_of
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from pathlib import Path

    from pate.answers import Answer
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms.matrix import MatrixMechanism
    from pate.noise import NoiseLawName

#: Numbers of representatives shown in addition to the default.
_STEPS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Inputs of a public set whose size is not stated: more than a server chooses among.
_ANY: Final = 2**14
_PARTIES, _CLASSES, _EPSILON = 3, 10, 2.0
#: Options of this command that a server has too.
_SHARED: Final = {each.name for each in fields(PlanOptions)} & {
    each.name for each in fields(MechanismOptions)
}


@dataclass(frozen=True)
class RecordsReport:
    """A plan."""

    options: PlanOptions
    spec: CampaignSpec  # the campaign that a server would have of it
    said: str  # what the server would say of its noise
    rows: list[RecordsPlan]  # numbers of representatives, each with what is expected of it

    @classmethod
    def of(cls, options: PlanOptions) -> RecordsReport:
        """Return the plan of these options."""
        if options.votes_per_patient is not None and options.unit != "patient":
            raise UsageError("--votes-per-patient is for --unit patient")
        public = options.queries or max(_ANY, 4 * (options.representatives or 1))
        if options.public is not None:
            public = _distinct(options.public)
        inputs = Table(("input",), (np.arange(public, dtype=np.float64),))  # hashed once
        said: list[str] = []
        spec = _spec(options, inputs, said)
        middle = len(spec.representatives or ())
        if options.representatives is not None and middle < options.representatives:
            raise UsageError(
                f"the public set has {public} different inputs, not {options.representatives}"
            )
        open_code = options.code == DENSE
        numbers = [middle]
        if code_of(spec.code).name != DENSE or open_code:
            most = min(public, MOST_DIRECTIONS) if open_code else public
            least = 2 if open_code else 1
            numbers = sorted({min(max(least, round(middle * step)), most) for step in _STEPS})
        rows = []
        for number in numbers:
            law: NoiseLawName = "geometric" if spec.delta == 0 else "gaussian"
            stated = options.scale or options.sigma2
            each = replace(
                options,
                representatives=number,
                noise_law=options.noise_law if stated or spec.in_rounds else law,
            )
            rows.append(
                plan_records(
                    _spec(each, inputs, []),
                    records=options.expected_records or RECORDS,
                    columns=_columns(options),
                    purity=PURITY if options.purity is None else options.purity,
                    points=_points(options),
                )
            )
        return cls(options, spec, said[-1] if said else "", rows)

    @property
    def mechanism(self) -> MatrixMechanism:
        """The mechanism of the release, or of the last round."""
        if self.spec.in_rounds:
            return round_mechanisms(self.spec, 1)[-1]
        return matrix_mechanism(self.spec, self.spec.votes_per_patient or 1)

    @property
    def default(self) -> int | None:
        """The number of representatives that the server would take, None where it is stated."""
        if self.options.representatives is not None:
            return None
        return len(self.spec.representatives or ())

    @property
    def in_words(self) -> str:
        """The guarantee."""
        spec = self.spec
        neighbours = neighbours_of(spec.unit, records_vote=True)
        return in_words(spec.epsilon, spec.delta, spec.unit, neighbours=neighbours)

    @property
    def server(self) -> str:
        """The command of a server that has the same options."""
        options = self.options
        typed = {
            "public": options.public,
            "parties": self.spec.wanted_parties,
            "unit": None if options.unit == "record" else options.unit,
            "votes-per-patient": options.votes_per_patient,
            "epsilon": f"{self.spec.epsilon:g}",
            "delta": f"{options.delta:g}",
            "colluders": options.colluders,
            "expected-records": options.expected_records or RECORDS,
            "representatives": options.representatives,
            "noise-law": options.noise_law,
            "sigma2": options.sigma2,
            "scale": options.scale,
            "code": options.code or NEAREST,
            "classes": "NAMES" if _says(options).in_rounds else None,
            "answer": options.answer,
            "range": options.range,
        }
        words = [f"--{name} {value}" for name, value in typed.items() if value is not None]
        return "pate-server --aggregator neighbour " + " ".join(words)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        spec, mechanism = self.spec, self.mechanism
        shares = mechanism.shares
        geometric = isinstance(shares, GeometricShares)
        value = shares.scale if isinstance(shares, GeometricShares) else shares.share
        return {
            "aggregator": spec.aggregator,
            "guarantee": {
                "epsilon": spec.epsilon,
                "delta": spec.delta,
                "unit": spec.unit,
                "in_words": self.in_words,
            },
            "noise": {
                "law": "geometric" if geometric else "gaussian",
                "scale" if geometric else "share": str(value),
                "counted_shares": self._counted,
                "carried_sigma": self._carried,
                "threshold": mechanism.threshold,
            },
            "code": spec.code,
            "server_default": self.default,
            "server": self.server,
            "plans": [
                asdict(each) | {"labels": None if self._unplanned else each.labels}
                for each in self.rows
            ],
        }

    @property
    def _unplanned(self) -> bool:
        """Whether directions get labels, as many as the public set's shape has it."""
        return bool(self.mechanism.threshold) and code_of(self.spec.code).name == DENSE

    @property
    def _counted(self) -> int:
        return self.spec.sums.honest if self.spec.sums.distributed else 1

    @property
    def _carried(self) -> float:
        adding = self.spec.wanted_parties if self.spec.sums.distributed else 1
        return self.mechanism.shares.spread(adding) / code_of(self.spec.code).grid

    def show(self) -> None:
        """Print the guarantee, the noise, and the table of representatives."""
        console, code = Display(), code_of(self.spec.code)
        kind = DENSE if code.name == DENSE else CLASS if code.answer.one_hot else code.answer.name
        console.print(f"{self.in_words}, whatever the number of representatives")
        counted = number_of(self._counted, "share is", "shares are")
        least = "no query gets a label"
        if self.mechanism.threshold:
            least = f"a label leads by {self.mechanism.threshold / code.grid:.4g} noisy votes"
        console.print(f"{self.said}; {counted} counted; {least}")
        if code.in_words:
            console.print(f"votes: {code.in_words}")
        console.print(self._sheet(kind))
        star = "" if self.default is None else "* as the server would choose; "
        console.print(f"{star}{_MEANING[kind]}")
        if kind == CLASS:
            console.print(_COUNTS)
        if self._unplanned:
            console.print(
                "How many directions get a label depends on the public set, and is not planned: a student "
                "learns from the sums."
            )
        if kind == DENSE and code.answer.one_hot and not code.answer.in_rounds:
            console.print(
                "With named --classes a server has records vote in rounds instead: --answer residual plans "
                "them."
            )
        console.print(f"The same campaign: {self.server}")

    def _sheet(self, kind: str) -> Sheet:
        sheet, dense = Sheet(), kind == DENSE
        titles = ["directions" if dense else "representatives"]
        titles += [] if dense else ["votes at each"]
        if kind == CLASS:
            titles += ["get a label", "labels", "of these right", "largest count right"]
        else:
            titles += ["noise on each count", "error", "counts released"]
        for at, title in enumerate(titles):
            sheet.add_column(title, justify="right", no_wrap=at == 0)
        for row in self.rows:
            cells = [f"{row.representatives}{' *' if row.representatives == self.default else ''}"]
            cells += [] if dense else [f"{row.votes:.0f}"]
            if row.labelled is None:
                cells += [f"{row.noise:.4g}", f"{row.error or 0.0:.2%}", str(row.counts)]
            else:
                right = f"{row.right or 0.0:.1%}" if row.labels >= 0.5 else "-"
                cells += [f"{row.labelled:.1%}", f"{row.labels:.0f}", right]
                cells += [f"{row.top_right or 0.0:.1%}"]
            sheet.add_row(*cells)
        return sheet


_COUNTS: Final = (
    "A student learns from the noisy counts at every representative, not only from labels: what it gets is "
    "the last column times the representatives. Few of them are nearly all right and teach little; many "
    "spread the records too thinly. The server lets six standard deviations of votes come to each, of the "
    "least noise that the budget allows."
)
#: What a table's last column means.
_MEANING: Final = {
    CLASS: "right: the class of most records there",
    LABELS: (
        "error: standard deviation, by noise, of a label's share of the records there. More "
        "representatives are finer places with fewer votes at each"
    ),
    NUMBER: (
        "error: standard deviation, by noise, of the mean of the numbers there, in parts of the range, "
        "at most. More representatives are finer places with fewer votes at each"
    ),
    DENSE: (
        "error: the noise in one direction, in parts of what all records of a class would sum to if "
        "they all pointed there (all records, where they say something else than a class). What a "
        "few times as many have in common is seen. More directions tell more apart, and each is as "
        "noisy"
    ),
}


def _spec(options: PlanOptions, inputs: Table, said: list[str]) -> CampaignSpec:
    """Return the campaign that a server would make of the same options over as many public inputs."""
    says = _says(options)
    named = None
    if says.in_rounds or says.name in (LABELS, ORDERED):
        named = ",".join(f"class {at}" for at in range(options.classes or _CLASSES))
    asked = MechanismOptions(
        **{
            name: getattr(options, name)
            for name in _SHARED
            - {"classes", "parties", "epsilon", "code", "range", "expected_records"}
        },
        campaign="plan",
        expected_records=options.expected_records or RECORDS,
        parties=str(options.parties or _PARTIES),
        epsilon=_EPSILON if options.epsilon is None else options.epsilon,
        classes=named,
        code=options.code or NEAREST,
        range=options.range or ("0,1" if says.name == NUMBER else None),
    )
    return spec_of(
        asked,
        inputs,
        say=said.append,
        chosen=lambda rows, number, _: tuple(range(len(rows)))[:number],
    )


def _says(options: PlanOptions) -> Answer:
    return answer_of(options.answer or CLASS)


def _columns(options: PlanOptions) -> int:
    """Return the columns of the counts."""
    says, classes = _says(options), options.classes or _CLASSES
    if says.name == NUMBER:
        return len(_points(options))
    return classes + (says.permission == LABELS)


def _points(options: PlanOptions) -> tuple[float, ...]:
    """Return the points of a number's range; without a range its two ends, whatever they are."""
    return (0.0, 1.0) if options.range is None else points_of(range_in(options.range))


def _distinct(path: Path) -> int:
    """Return how many different inputs a public set has."""
    from pate.campaign.representatives import first_of_each
    from pate.data.read import read_inputs

    return len(first_of_each(read_inputs(path)))
