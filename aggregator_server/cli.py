"""``pate-server``: what the coordinator of a campaign runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from aggregator_server import cli_backup, cli_ledger, cli_schema
from aggregator_server.check import cli as check_cli
from aggregator_server.identities import cli as identities_cli
from aggregator_server.identities.store import FOLDER
from aggregator_server.options import (
    CampaignOption,
    CloseOption,
    DropOption,
    HomeOption,
    HostOption,
    KnownHeadOption,
    LedgerOption,
    LingerOption,
    PageHostOption,
    PageOption,
    PagePortOption,
    PatienceOption,
    PortOption,
    PublicOption,
    StudentPortOption,
    WindowOption,
)
from pate.errors import UsageError
from pate.runtime.command import ConfigOption, JsonOption, print_json, run
from pate.runtime.home import default_home
from pate.runtime.imports import importing
from pate.runtime.lifeline import fork_ahead
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from aggregator_server.identities import Identities
    from aggregator_server.watch.serving import PageDoor

app = typer.Typer(
    add_completion=False,
    help="Run a PATE campaign: wait for the parties, sum their votes, add noise under a hard privacy "
    "budget, and hand the labels to a student.\n\nFor example: pate-server --aggregator "
    "interactive-gnmax --public ./public --parties hospital_a,hospital_b,hospital_c --epsilon 2",
)
ledger_app = typer.Typer(
    no_args_is_help=True, help="Look at the privacy ledger of a campaign, or check it."
)
app.add_typer(ledger_app, name="ledger")
identities_cli.register(app)


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    aggregator: Annotated[
        str,
        typer.Option(
            help="Mechanism: lnmax, gnmax, confident-gnmax (answers only where teachers agree), "
            "interactive-gnmax (answers where they agree and the student does not know), or "
            "neighbour (no teachers: each record votes once, at its nearest public input, so that "
            "all labels together cost one release)."
        ),
    ] = "confident-gnmax",
    public: PublicOption = None,
    parties: Annotated[
        str, typer.Option(help="How many parties to wait for, or their names, comma separated.")
    ] = "3",
    min_parties: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With fewer the campaign stops. Default: two thirds of the roster; masked: more "
            "than that.",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="Class names, comma separated. Default: the parties', who must agree."),
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help="Hard budget: no label leaves once it is spent.")
    ] = 2.0,
    delta: Annotated[
        float | None,
        typer.Option(
            help="At which epsilon holds; well below one over all records. Default: 1e-5; gated 1e-6, as "
            "much as parties set aside for it."
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="What is protected: a record, a patient, or a whole party.")
    ] = "record",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of labels. Default: 2 if interactive, else 1.")
    ] = None,
    first_round_share: Annotated[
        str, typer.Option(help="Share of the budget that the first of several rounds may use.")
    ] = "1/2",
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Ask at most so many queries, budget or not.")
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Confident: votes that the top class needs, about. Neighbour: noisy votes by which "
            "it must lead."
        ),
    ] = None,
    interactive_threshold: Annotated[
        str | None,
        typer.Option(help="Interactive: votes by which teachers must exceed the student's belief."),
    ] = None,
    sigma1: Annotated[
        str | None, typer.Option(help="Standard deviation of the threshold's noise, in votes.")
    ] = None,
    sigma2: Annotated[
        str | None, typer.Option(help="Standard deviation of the noise on each count, in votes.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="LNMax: scale of the Laplace noise (1/gamma), in votes.")
    ] = None,
    confidence: Annotated[
        str | None,
        typer.Option(help="Interactive: student's probability at which its label is reinforced."),
    ] = None,
    publish: Annotated[
        str,
        typer.Option(
            help="capped: labels leave as they are answered, under a cap that looks at no vote. "
            "gated: those of one batch (--max-queries) leave together, if a private test finds that "
            "these votes cost little; far more labels for teachers that agree, or none at all."
        ),
    ] = "capped",
    gate_order: Annotated[
        float | None,
        typer.Option(
            help="Gated: Renyi order. Take it from `pate account --gate` on public votes."
        ),
    ] = None,
    aggregation: Annotated[
        str | None,
        typer.Option(
            help="masked: this server learns sums of votes alone. plain: it sees every party's "
            "votes. Default: masked from three parties on."
        ),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            help="central: this server adds the noise. distributed: every party adds a share to its "
            "masked votes, so that this server sees no exact sum either. Default: central; of "
            "masked neighbour votes distributed."
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Masked: parties that may be in league with this server without harm. Default: "
            "the most that --min-parties allows, below a third of the roster.",
        ),
    ] = None,
    vote_proofs: Annotated[
        bool,
        typer.Option(
            "--vote-proofs",
            help="Masked: every party proves, showing nothing else, that each row of its votes sums "
            "to its teachers and has no negative count. Who fails is named and left out.",
        ),
    ] = False,
    class_quota: Annotated[
        bool,
        typer.Option(
            "--class-quota",
            help="Interactive: later rounds ask first about inputs that the student takes for classes "
            "with few labels so far. All of that is public: it costs nothing.",
        ),
    ] = False,
    gate_share: Annotated[
        float, typer.Option(help="Gated: share of the divergence that the test itself may cost.")
    ] = 0.15,
    representatives: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: how many public inputs records vote at. Default: as many as "
            "--expected-records and the budget let win clearly.",
        ),
    ] = None,
    expected_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: about how many records all parties have: your guess, since none of them "
            "tells. Default: 10000.",
        ),
    ] = None,
    most_votes: Annotated[
        int | None,
        typer.Option(min=1, help="Neighbour: most votes of one party on one count. Default: 4095."),
    ] = None,
    votes_per_patient: Annotated[
        int | None,
        typer.Option(
            min=1, help="Neighbour, --unit patient: most votes of one patient. Default: 1."
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = None,
    student_port: StudentPortOption = 9093,
    page: PageOption = True,
    page_host: PageHostOption = "127.0.0.1",
    page_port: PagePortOption = None,
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    ledger: LedgerOption = None,
    drop: DropOption = None,
    window: WindowOption = None,
    patience: PatienceOption = 120.0,
    linger: LingerOption = -1.0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Run a campaign from its start; `resume` goes on with one that was interrupted.

    Numbers of votes left out follow from the number of teachers once the parties are known.
    """
    del config  # read before the other options, by its callback
    if context.invoked_subcommand is not None:
        return
    if public is None:
        raise UsageError("name the public set with --public PATH; `pate-server --help` explains")
    with importing():
        from aggregator_server.flower_internals import SUPERLINK_MAIN
        from aggregator_server.session import Doors, start_campaign
        from aggregator_server.settings import (
            delta_of,
            make_gate,
            make_matrix,
            make_spec,
            of_gated_delta,
        )
        from pate.data.read import read_inputs

    fork_ahead(SUPERLINK_MAIN)  # before anything of this server's is read
    identities = _identities(home, host)
    inputs = read_inputs(public, drop=tuple(drop or ()), window=window)
    screen = Screen("pate-server")
    port = _port(port, identities, screen)
    delta = delta_of(publish, delta)
    if line := of_gated_delta(publish, delta):
        screen.say(line, "warning")
    matrix = make_matrix(
        inputs,
        aggregator,
        epsilon=epsilon,
        delta=delta,
        number=representatives,
        records=expected_records,
        most_votes=most_votes,
        votes_per_patient=votes_per_patient,
        say=screen.say,
    )
    spec = make_spec(
        inputs,
        name=campaign,
        aggregator=aggregator,
        parties=parties,
        min_parties=min_parties,
        classes=classes,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        rounds=rounds,
        max_queries=max_queries,
        fractions={
            "first_round_share": first_round_share,
            "threshold": threshold,
            "interactive_threshold": interactive_threshold,
            "sigma1": sigma1,
            "sigma2": sigma2,
            "scale": scale,
            "confidence": confidence,
        },
        publish=publish,
        gate=make_gate(publish, epsilon, delta, gate_order, gate_share),
        aggregation=aggregation,
        noise=noise,
        colluders=colluders,
        vote_proofs=vote_proofs,
        class_quota=class_quota,
        matrix=matrix,
    )
    door = _page_door(page_host, page_port, identities) if page else None
    doors = Doors(host, port, student_port, patience, linger, identities, door)
    summary = start_campaign(_folder(home, campaign), spec, inputs, doors, screen, ledger)
    if as_json:
        print_json(summary)


check_cli.register(app, serve)


@app.command()
def resume(
    public: PublicOption = None,
    drop: DropOption = None,
    window: WindowOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = None,
    student_port: StudentPortOption = 9093,
    page: PageOption = True,
    page_host: PageHostOption = "127.0.0.1",
    page_port: PagePortOption = None,
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    ledger: LedgerOption = None,
    head: KnownHeadOption = None,
    close: CloseOption = False,
    patience: PatienceOption = 120.0,
    linger: LingerOption = -1.0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Go on with a campaign where it stopped, whatever stopped it.

    Its parameters are those it was started with. Nothing is charged or released twice. With a ledger
    in a database and a folder that does not know it, --head or --close is needed.
    """
    del config
    with importing():
        from aggregator_server.flower_internals import SUPERLINK_MAIN
        from aggregator_server.session import Doors, resume_campaign
        from pate.data.read import read_inputs

    fork_ahead(SUPERLINK_MAIN)
    inputs = None if public is None else read_inputs(public, drop=tuple(drop or ()), window=window)
    identities = _identities(home, host)
    screen = Screen("pate-server")
    door = _page_door(page_host, page_port, identities) if page else None
    port = _port(port, identities, screen)
    doors = Doors(host, port, student_port, patience, linger, identities, door)
    summary = resume_campaign(
        _folder(home, campaign), inputs, doors, screen, ledger, head=head, close=close
    )
    if as_json:
        print_json(summary)


@app.command()
def status(
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    as_json: JsonOption = False,
) -> None:
    """Say where a campaign stands: phase, roster, queries, labels, budget."""
    from aggregator_server.report import describe, show

    found = describe(_folder(home, campaign))
    if as_json:
        print_json(found)
    else:
        show(found)


def _identities(home: Path | None, host: str) -> Identities | None:
    """Return who this server is and who is enrolled, None for a trial on loopback.

    Raises:
        UsageError: if there is nothing of the kind and ``host`` is reached from outside.
        StateError: if the certificate has expired.
    """
    from aggregator_server.identities import Identities, require_identities

    found = Identities.open(home or default_home("server"))
    require_identities(host, found)
    if found is not None:
        found.require_valid(datetime.now(UTC))
    return found


def _port(asked: int | None, identities: Identities | None, screen: Screen) -> int:
    """Return the port to listen on for parties, and say if it is not the one that they are told."""
    from aggregator_server.identities import told_port

    told = told_port(identities)
    if identities is not None and asked not in (None, 0, told):
        screen.say(
            f"listening on port {asked}, while parties are told {identities.address}: they come only "
            f"if something forwards port {told} to this one",
            "warning",
        )
    return told if asked is None else asked


def _page_door(host: str, port: int | None, identities: Identities | None) -> PageDoor:
    """Return where the page is to be.

    Raises:
        UsageError: if it would be reached from outside without a certificate.
    """
    from aggregator_server.identities import require_identities
    from aggregator_server.watch.serving import PageDoor

    require_identities(host, identities)
    return PageDoor(host, port)


def _folder(home: Path | None, campaign: str) -> Path:
    if not campaign or campaign.startswith(".") or "/" in campaign or campaign == FOLDER:
        raise UsageError(
            f"{campaign!r} cannot be the name of a campaign: it names a folder beside {FOLDER!r}"
        )
    return (home or default_home("server")) / campaign


cli_ledger.register(app, ledger_app, _folder)
cli_backup.register(ledger_app, _folder)
cli_schema.register(app)


def main() -> NoReturn:
    """Entry point of ``pate-server``."""
    run(app, "pate-server")
