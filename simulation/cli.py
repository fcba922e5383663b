"""``pate``: the whole system on one machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pate.cli.account.options import AccountOptions
from pate.cli.encoder import app as encoder_app
from pate.cli.plan.command import plan
from pate.cli.prepare import prepare
from pate.cli.schema import app as schema_app
from pate.runtime.command import print_json, run
from pate.runtime.help import Commands
from pate.runtime.options import ConfigOption, JsonOption, of_output, takes
from pate.runtime.screen import Screen
from simulation.audit.command import audit
from simulation.envelope import app as envelope_app
from simulation.options import OutOption, SimulationOptions

app = Commands(
    no_args_is_help=True,
    help="Federated PATE on one machine: watch a campaign, or simulate one with many parties. "
    "The roles have their own commands: pate-server, pate-party, pate-student.",
)


@app.callback()
def _pate() -> None:
    """Group of commands."""


@app.command()
def demo(
    out: OutOption = Path("demo-output"),
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run two real campaigns on this machine, in minutes.

    Four hospitals, a server and a student, each a process.

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
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to write; made if absent.", metavar="DIR")],
    parties: Annotated[
        str, of_output(help="How many data holders, or their names: a,b,c.", metavar="N|NAMES")
    ] = "3",
    public: Annotated[
        Path | None,
        of_output(help="Your public set. Default: example data are written", metavar="PATH"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a campaign: files of options, and the commands.

    `server.toml` and `party.toml` have every option, with what it does. Edit `server.toml`; give
    `party.toml` to each data holder.

    Without --public there are example data, too: the handwritten digits that come with scikit-learn,
    dealt to a folder for each party; `public.npz` is the unlabelled public set, and `test.npz` is to
    judge the student.
    """
    from simulation.new import begin

    commands = begin(folder, parties, public)
    screen = Screen("pate")
    examples = "" if public else ", with example data"
    screen.say(f"{folder}: server.toml and party.toml written{examples}. Each in its own terminal:")
    for line in (f"cd {shlex.quote(str(folder))}", *commands):
        screen.say(f"  {line}")
    if as_json:
        print_json({"folder": str(folder), "commands": commands})


@app.command()
@takes(SimulationOptions)
def simulate(options: SimulationOptions) -> None:
    """Run a campaign with many simulated parties.

    The server's and the parties' code is what runs in a deployment; only the transport differs.
    Beyond 128 parties --min-parties is nine tenths of them and --colluders a twentieth, unless given.
    """
    from simulation.report import show
    from simulation.simulate import run_simulation

    report = run_simulation(options, Screen("pate"))
    if options.as_json:
        print_json(report.to_dict())
    else:
        show(report)


app.command()(plan)
app.command()(audit)
app.command()(prepare)
app.add_typer(schema_app, name="schema")
app.add_typer(encoder_app, name="encoder")
app.add_typer(envelope_app, name="envelope")


@app.command()
@takes(AccountOptions)
def account(options: AccountOptions) -> None:
    """Print what votes cost, by every bound known here.

    For example, as in the 2018 paper: pate account --votes votes.npy --mechanism confident-gnmax
    --threshold 200 --sigma1 150 --sigma2 40 --queries 640 --delta 1e-5
    """
    from pate.cli.account.run import run_account, show

    found = run_account(options)
    if options.as_json:
        print_json(found)
    else:
        show(found)


def main() -> NoReturn:
    """Entry point of ``pate``."""
    run(app, "pate")
