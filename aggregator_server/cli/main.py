"""``pate-server``: what the coordinator of a campaign runs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import typer
from click.core import ParameterSource

from aggregator_server.cli import envelopes, ledger
from aggregator_server.cli import identities as identities_cli
from aggregator_server.options import (
    CampaignOptions,
    CheckOptions,
    ResumeOptions,
    ServingOptions,
    folder_of,
    public_here,
)
from pate.campaign.options import CampaignOption
from pate.errors import UsageError
from pate.runtime.child import fork_ahead
from pate.runtime.command import print_json, run
from pate.runtime.config import given_text
from pate.runtime.forked import importing
from pate.runtime.help import Commands
from pate.runtime.options import HomeOption, JsonOption, names_in, takes
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from aggregator_server.exchange.by_envelope import ByEnvelope
    from aggregator_server.identities import Identities
    from aggregator_server.reaching import Listening
    from pate.data.values import Inputs
    from pate.encoders.reading import Reader

app = Commands(
    help="Run a PATE campaign: wait for the parties, sum their votes, add noise under a hard privacy "
    "budget, and hand the labels to a student.\n\nFor example, in a folder with ./public: pate-server "
    "--aggregator interactive-gnmax",
)
ledger_app = Commands(no_args_is_help=True, help="Show, verify, back up or restore a ledger.")
app.add_typer(ledger_app, name="ledger")
identities_cli.register(app)


@app.callback(invoke_without_command=True)
@takes(CampaignOptions)
def serve(options: CampaignOptions) -> None:
    """Run a campaign from its start; `resume` continues one that was interrupted.

    Noise that is left out follows from teachers, classes, budget and public inputs once the parties
    are known; thresholds from the teachers.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        context.obj = options  # `check` and `start` may be given options before their name
        return
    _campaign(options)


@app.command()
@takes(CampaignOptions)
def start(options: CampaignOptions) -> None:
    """Run a campaign from its start, as without a command."""
    context = click.get_current_context()
    _campaign(replace(options, **_above(context)))


def _campaign(options: CampaignOptions) -> None:
    """Run a campaign from its start to its end."""
    public = options.public or public_here()
    options.parameters()  # first, as it imports no mathematics
    from pate.campaign.settings import delta_of, of_gated_delta, require_sense, spec_of
    from pate.data.locate import require_there

    require_sense(options)
    require_there(public, flat=True)
    with importing():
        from aggregator_server.flower.internals import SUPERLINK_MAIN
        from aggregator_server.session import OPTIONS_FILE, start_campaign
        from pate.encoders.reading import Reader
        from pate.features.progress import telling

    fork_ahead(SUPERLINK_MAIN)  # before any state of this server is read
    identities = _identities(options)
    screen = Screen("pate-server")
    encoder = Reader.open(options.encoder, home=options.place, bar=screen.bar)
    if encoder is not None:
        screen.say(f"encoder: {encoder.encoder.description.statement()}")
    inputs = _public_set(public, options, encoder, screen)
    if options.public is None:
        screen.say(f"public set: ./{public}, found in this folder; --public PATH names another one")
    listening = _listening(options, identities, screen)
    delta = delta_of(options.publish, options.delta)
    if line := of_gated_delta(options.publish, delta):
        screen.say(line, "warning")
    describing = screen.bar("describing the public inputs", percent=True, late=True)
    with describing as described, telling(described):  # to choose representatives
        spec = spec_of(options, inputs, say=screen.say)
    if encoder is not None:
        spec = replace(spec, encoder=encoder.encoder.description.statement())
    summary = start_campaign(
        options.folder,
        spec,
        inputs,
        listening,
        screen,
        options.ledger,
        options.encoder,
        options.guess,
        given_text(click.get_current_context(), OPTIONS_FILE),
    )
    if options.as_json:
        print_json(summary)


@app.command()
@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Check the configuration before starting a campaign.

    Give it the options of the campaign, as far as you know them: none is needed. It works before
    and after `pate-server init`, and while a server runs; nothing is changed.

    One line for each finding: ok, warning, failed or unknown, and what to do. The exit code is 0 if
    nothing failed, else that of the first failure; 44 if something was not found out in time.
    """
    from aggregator_server.preflight.checks import checks_of
    from pate.preflight import present

    context = click.get_current_context()
    given = _given(context) | _given(context.find_root())
    options = replace(options, **_above(context), given=given)
    if options.public is None:
        with contextlib.suppress(UsageError):  # treated as if none were given
            options = replace(options, public=public_here())
    raise typer.Exit(present(checks_of(options), as_json=options.as_json))


def _given(context: click.Context) -> frozenset[str]:
    """Return the names of the options given on the command line or in the configuration file."""
    unset = (None, ParameterSource.DEFAULT)
    return frozenset(n for n in context.params if context.get_parameter_source(n) not in unset)


def _above(context: click.Context) -> dict[str, Any]:
    """Return the values of the options that are given only before a command's name."""
    names = _given(context.find_root()) - _given(context)
    return {name: getattr(context.obj, name) for name in names}


@app.command()
@takes(ResumeOptions)
def resume(options: ResumeOptions) -> None:
    """Continue a campaign where it stopped, whatever stopped it.

    Its parameters are those it was started with. Nothing is charged or released twice. --close ends it
    with what was released, for example if too few parties are left for a further round. With a ledger in a
    database and a folder that does not know it, --head or --close is needed.
    """
    with importing():
        from aggregator_server.flower.internals import SUPERLINK_MAIN
        from aggregator_server.session import resume_campaign
        from pate.encoders.reading import Reader

    fork_ahead(SUPERLINK_MAIN)
    inputs, screen = None, Screen("pate-server")
    if options.public is not None:
        encoder = Reader.open(options.encoder, home=options.place, bar=screen.bar)
        inputs = _public_set(options.public, options, encoder, screen)
    identities = _identities(options)
    listening = _listening(options, identities, screen)
    summary = resume_campaign(
        options.folder,
        inputs,
        listening,
        screen,
        options.ledger,
        encoder=options.encoder,
        head=options.head,
        close=options.close,
    )
    if options.as_json:
        print_json(summary)


@app.command()
def status(
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    as_json: JsonOption = False,
) -> None:
    """Print the state of a campaign: phase, labels, budget."""
    from aggregator_server.results.report import describe, show

    found = describe(folder_of(home, campaign))
    if as_json:
        print_json(found)
    else:
        show(found)


def _public_set(
    path: Path,
    options: CampaignOptions | ResumeOptions,
    encoder: Reader | None,
    screen: Screen,
) -> Inputs:
    """Return the public set as the options say that it is read; warnings go to the screen."""
    from pate.data.read import read_inputs

    return read_inputs(
        path,
        drop=options.dropped,
        window=options.window,
        say=partial(screen.say, level="warning"),
        encoder=encoder,
        text=options.text,
    )


def _identities(options: ServingOptions) -> Identities | None:
    """Return the server's identity and enrolled parties, None for a trial on loopback."""
    from aggregator_server.identities import Identities, require_identities

    found = Identities.open(options.place)
    require_identities(options.host, found)
    if found is not None:
        found.require_valid(datetime.now(UTC))
    return found


def _listening(options: ServingOptions, identities: Identities | None, screen: Screen) -> Listening:
    """Return where to listen, and report if parties are given another port."""
    from aggregator_server.identities import require_identities, told_port
    from aggregator_server.monitoring.serving import PageServer
    from aggregator_server.reaching import Listening

    port, told = options.port, told_port(identities)
    if identities is not None and port not in (None, 0, told):
        screen.say(
            f"listening on port {port}, while parties are told {identities.address}: they come only "
            f"if something forwards port {told} to this one",
            "warning",
        )
    page = None
    if options.page:
        require_identities(options.page_host, identities)
        page = PageServer(options.page_host, options.page_port)
    return Listening(
        options.host,
        told if port is None else port,
        options.student_port,
        options.patience,
        options.linger,
        identities,
        page,
        _by_envelope(options),
    )


def _by_envelope(options: ServingOptions) -> ByEnvelope | None:
    """Return who takes part by envelope, None for nobody."""
    from aggregator_server.exchange.by_envelope import ByEnvelope

    if options.envelopes is None:
        if options.by_envelope is not None or options.answer_days is not None:
            raise UsageError("--by-envelope and --answer-days need --envelopes DIR")
        return None
    names = names_in(options.by_envelope) or None
    return ByEnvelope(options.envelopes, names, options.answer_days)


ledger.register(app, ledger_app)
envelopes.register(app)


def main() -> NoReturn:
    """Entry point of ``pate-server``."""
    run(app, "pate-server")
