"""``pate``: the whole system on one machine."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from pate.cli.plan.command import plan
from pate.cli.plan_neighbour import plan_neighbour
from pate.errors import UsageError
from pate.runtime.command import ConfigOption, JsonOption, print_json, run
from pate.runtime.screen import Screen
from simulation.audit.options import audit

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Federated PATE on one machine: watch a campaign, or simulate one with many parties. "
    "The roles have their own commands: pate-server, pate-party, pate-student.",
)

#: Beyond it a party of the example data has too few digits to train teachers on.
_MOST_SAMPLES: Final = 12

OutOption = Annotated[
    Path, typer.Option(help="Folder for the student, the figures and the logs.", metavar="DIR")
]


@app.callback()
def _pate() -> None:
    """Group of commands."""


@app.command()
def demo(
    out: OutOption = Path("demo-output"),
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run two real campaigns: four hospitals, a server, a student, in two or three minutes.

    The data are the handwritten digits that come with scikit-learn. Each hospital is a process of
    its own; only votes cross to the server, over a Flower deployment; the student learns from what
    the privacy budget pays for. In the first campaign each hospital's teachers vote, label by label.
    In the second its records vote themselves, once each, at an eighth of the epsilon.
    """
    del config
    from simulation.demo import run_demo
    from simulation.report import show

    reports = run_demo(out, Screen("pate"))
    if as_json:
        first, *others = reports
        print_json({**first.to_dict(), **{each.mechanism: each.to_dict() for each in others}})
    else:
        show(*reports)


@app.command()
def sample(
    out: Annotated[Path, typer.Argument(help="Folder to write; made if absent.", metavar="DIR")],
    parties: Annotated[int, typer.Option(min=1, help="How many data holders.")] = 4,
) -> None:
    """Write example data to try the roles with: data holders, a public set, a test set.

    They are the handwritten digits that come with scikit-learn, dealt to `hospital_a`, `hospital_b`
    and so on; `public.npz` is the unlabelled public set, and `test.npz` is to judge the student.
    """
    from simulation.datasets import deal, digits, write_deal
    from simulation.demo import PUBLIC, TEST

    if parties > _MOST_SAMPLES:
        raise UsageError(f"the digits are enough for {_MOST_SAMPLES} parties, not for {parties}")
    names = [f"hospital_{letter}" for letter in string.ascii_lowercase[:parties]]
    write_deal(out, deal(digits(), parties, public=PUBLIC, test=TEST), names)
    held = f"{out}/{names[0]} to {names[-1]}" if parties > 1 else f"{out}/{names[0]}"
    Screen("pate").say(f"{held}, {out}/public.npz and {out}/test.npz written")


@app.command()
def simulate(
    parties: Annotated[int, typer.Option(min=1, help="How many parties to simulate.")] = 50,
    teachers: Annotated[int, typer.Option(min=1, help="Teachers of each party.")] = 2,
    aggregator: Annotated[
        str,
        typer.Option(help="lnmax, gnmax, confident-gnmax, interactive-gnmax or neighbour."),
    ] = "confident-gnmax",
    epsilon: Annotated[float, typer.Option(help="Hard budget of the campaign.")] = 8.0,
    delta: Annotated[float, typer.Option(help="At which it holds.")] = 1e-4,
    aggregation: Annotated[
        str | None,
        typer.Option(
            help="masked or plain. Default: masked from three parties on; with --engine ray plain."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="central, or distributed: a share from each party. Default: central; of masked "
            "neighbour votes distributed."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Labelled records to deal out. Default: scikit-learn's digits.", metavar="PATH"
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Table: the column with the class.")] = None,
    queries: Annotated[
        int | None,
        typer.Option(
            help="Size of the public set, of made-up digits. Default: three tenths of the records."
        ),
    ] = None,
    min_parties: Annotated[
        int | None,
        typer.Option(
            help="With fewer the campaign does not go on; masked: no fewer votes are summed. Default: "
            "more than two thirds; masked and beyond 128 parties nine tenths."
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            help="Masked: parties that may collude with the server. Default: the most that can be "
            "borne; beyond 128 parties a twentieth of them."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="local: Flower's apps in threads of this process, or see --processes; ray: Flower's "
            "own simulation engine (pip install 'federated-pate\\[sim]')."
        ),
    ] = "local",
    processes: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Put the parties into so many processes beside the server's, without Flower. "
            "Default: 0, they are threads; beyond 128 parties one a core.",
        ),
    ] = None,
    student: Annotated[
        bool, typer.Option("--student/--no-student", help="Train a student on the labels.")
    ] = True,
    out: OutOption = Path("simulation-output"),
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run a campaign with many simulated parties in one process tree.

    The server's and the parties' code is what runs in a deployment; only the transport differs.
    """
    del config
    from simulation.report import show
    from simulation.simulate import Simulation, run_simulation

    setting = Simulation(
        parties=parties,
        teachers=teachers,
        aggregator=aggregator,
        epsilon=epsilon,
        delta=delta,
        data=data,
        label=label,
        engine=engine,
        student=student,
        out=out,
        aggregation=aggregation,
        noise=noise,
        min_parties=min_parties,
        colluders=colluders,
        queries=queries,
        processes=processes,
    )
    report = run_simulation(setting, Screen("pate"))
    if as_json:
        print_json(report.to_dict())
    else:
        show(report)


app.command()(plan)
app.command()(plan_neighbour)
app.command()(audit)


@app.command(name="account")
def account_(
    votes: Annotated[
        Path,
        typer.Option(help="Votes: a .npy file of (queries, classes) counts.", metavar="FILE"),
    ],
    mechanism: Annotated[
        str, typer.Option(help="lnmax, gnmax, confident-gnmax or interactive-gnmax.")
    ] = "confident-gnmax",
    threshold: Annotated[
        float | None, typer.Option(help="Check: votes that the top class needs, about.")
    ] = None,
    sigma1: Annotated[float | None, typer.Option(help="Noise of the check, in votes.")] = None,
    sigma2: Annotated[
        float | None, typer.Option("--sigma2", "--sigma", help="Noise on each count, in votes.")
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="LNMax: 1/scale of the Laplace noise, per vote.")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="LNMax: 1/gamma, in votes.")] = None,
    queries: Annotated[
        int | None, typer.Option(min=1, help="Rows to use, from the top. Default: all.")
    ] = None,
    delta: Annotated[float, typer.Option(help="At which epsilon holds.")] = 1e-5,
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            help="paper-2017, paper-2018, theorem3, theorem6, sharp, expected or independent; repeat for "
            "more. "
            "Default: all that the mechanism has."
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="What is protected: a record, a patient, or a whole party.")
    ] = "record",
    votes_per_unit: Annotated[int, typer.Option(min=1, help="Party: its number of teachers.")] = 1,
    adjacency: Annotated[
        str,
        typer.Option(
            help="Neighbours cast their votes otherwise (change), or not at all (remove)."
        ),
    ] = "change",
    noise: Annotated[
        str,
        typer.Option(help="continuous, as in the papers, or discrete, as a campaign draws it."),
    ] = "continuous",
    gate: Annotated[
        bool,
        typer.Option(
            help="The votes are public: say at what epsilon a gate would open for votes like them."
        ),
    ] = False,
    predictions: Annotated[
        Path | None,
        typer.Option(
            help="Interactive: the student's probabilities, a .npy file of (queries, classes).",
            metavar="FILE",
        ),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Say what a matrix of votes costs, by every bound known here, and what may be told of it.

    For example, as in the 2018 paper: pate account --votes votes.npy --mechanism confident-gnmax
    --threshold 200 --sigma1 150 --sigma2 40 --queries 640 --delta 1e-5
    """
    del config
    from pate.cli.account import Request, run_account, scale_of, show
    from pate.errors import UsageError

    if noise not in ("continuous", "discrete"):
        raise UsageError(f"--noise is continuous or discrete, got {noise!r}")
    found = run_account(
        Request(
            votes=votes,
            mechanism=mechanism,
            threshold=threshold,
            sigma1=sigma1,
            sigma2=sigma2,
            scale=scale_of(gamma, scale),
            queries=queries,
            delta=delta,
            bounds=bounds or (),
            unit=unit,
            votes_per_unit=votes_per_unit,
            adjacency=adjacency,
            discrete=noise == "discrete",
            gate=gate,
            predictions=predictions,
        )
    )
    if as_json:
        print_json(found)
    else:
        show(found)


def main() -> NoReturn:
    """Entry point of ``pate``."""
    run(app, "pate")
