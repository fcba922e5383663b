"""``pate``: the whole system on one machine."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from pate.campaign.choices import BY_LABEL
from pate.cli.account.options import AccountOptions
from pate.cli.encoder import app as encoder_app
from pate.cli.plan.options import PlanOptions
from pate.cli.prepare import prepare
from pate.cli.schema import app as schema_app
from pate.runtime.command import print_json, run
from pate.runtime.help import Commands
from pate.runtime.options import ConfigOption, JsonOption, of_output, takes
from pate.runtime.screen import Display, Screen
from simulation.audit.options import AuditOptions
from simulation.options import OutOption, SimulationOptions

app = Commands(
    no_args_is_help=True,
    help="Federated PATE on one machine: watch a campaign, or simulate one with many parties. "
    "The roles have their own commands: pate-server, pate-party, pate-student.",
)

envelopes = Commands(
    no_args_is_help=True,
    help="Look into envelopes.\n\n"
    "They are files that carry a campaign's messages to a party, and back.",
)
#: Widest text of an envelope.
_WIDEST: Final = 80


@app.callback()
def _pate() -> None:
    """Group of commands."""


@app.command()
def demo(
    out: OutOption = Path("demo-output"), as_json: JsonOption = False, config: ConfigOption = None
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


@app.command()
@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Plan a campaign: expected labels, accuracy, epsilon.

    For example: pate plan --teachers 200 --epsilon 2; or, where records vote,
    pate plan --aggregator neighbour --expected-records 60000 --epsilon 0.1

    The guarantee depends on no votes. The expectations are those of the assumptions, or of a public
    proxy's votes, so they are as good as these are.
    """
    from pate.cli.plan.records import RecordsReport
    from pate.cli.plan.report import as_object, show
    from pate.cli.plan.teachers import ReleaseReport, run_plan

    records_vote = options.aggregator == "neighbour"
    if records_vote or options.release not in (None, BY_LABEL):
        whole = RecordsReport.of(options) if records_vote else ReleaseReport.of(options)
        if options.as_json:
            print_json(whole.to_dict())
        else:
            whole.show()
        return
    report = run_plan(options, Screen("pate"))
    if options.as_json:
        print_json(as_object(report))
    else:
        show(report)


@app.command()
@takes(AuditOptions)
def audit(options: AuditOptions) -> None:
    """Attack the code that ships, and compare with its claims.

    The accountant's epsilon is an upper bound on what an observer can
    learn. An audit gives a lower bound. It runs the code in two worlds that
    differ by one unit, bets on which world it was, and turns how often it is
    right into an epsilon that no code with a smaller one could show.

    A lower bound above the claim refutes the claim: noise, sensitivity or
    accounting is broken, and the exit code is 21. One below it proves
    nothing: another attack may find more, what is rarer than one in the runs
    is never seen, and only the worlds that were tried were tried. Noise from
    a weak or public seed looks right to every attack on the output. Privacy
    rests on the proofs; an audit is how a broken one is noticed.

    A small error needs more --runs than a large one: docs/proofs/audits.md
    lists from how many runs on each of sixteen bugs is seen.

    mechanism (default): the code of each mechanism on neighbouring votes,
    on both sides of every decision, some ten thousand times; of noise
    shares and neighbour votes the noisy counts are attacked, and of a gated
    batch the gate with the labels behind it. campaign: whole campaigns with
    a ledger each, some hundred times. canary: one campaign with a real
    teacher, in whose data coins decide which of many wrong labels are
    planted; it sees noise that is missing, and little else.

    With --code or --answer records vote as at a party, by its own code, in
    files that differ by one patient who moves, leaves or says something else.

    For example: pate audit --mechanism gnmax --sigma2 40 --votes-per-unit 1
    --queries 300
    """
    from simulation.audit.run import require_all_hold, run_audits, show, to_dict

    audits = run_audits(options, Screen("pate"))
    if options.as_json:
        print_json(to_dict(audits))
    else:
        show(audits)
    require_all_hold(audits)


app.command()(prepare)


@envelopes.callback()
def _envelope() -> None:
    """Group of commands."""


@envelopes.command("show")
def show_envelope(
    file: Annotated[Path, typer.Argument(help="An envelope.", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Print who asks what, what would leave, and what it costs.

    All of it is read from the signed messages; nothing is answered, recorded or sent. Compare the key
    with that of your enrolment (`pate-party ledger` prints it for each campaign).

    For example: pate envelope show campaign-660bc95d.round-1.for-hospital_a.pate
    """
    from pate.envelopes import opened
    from pate.exact import write
    from protos.envelopes import cover_of

    with opened(file) as envelope:
        lines = [*cover_of(envelope)]
        if as_json:
            fields = write(envelope.manifest)
            sizes = [part["size"] for part in fields.pop("parts")]
            found = {**fields, "sha256": envelope.digest.hex(), "sizes": sizes, "cover": lines}
            print_json(found)
            return
    width = min(Display().width, _WIDEST)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        typer.echo(textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False))


app.add_typer(schema_app, name="schema")
app.add_typer(encoder_app, name="encoder")
app.add_typer(envelopes, name="envelope")


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
