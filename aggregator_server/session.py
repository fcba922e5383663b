"""A run of ``pate-server``: open the ledger, start listening, run the campaign, serve its labels."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.runner import Campaign, exchange_of
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.by_envelope import (
    KnownKeys,
    check_goes_by_envelope,
    forget_key,
    last_envelopes,
)
from aggregator_server.exchange.presence import noting
from aggregator_server.identities import require_lasting_key
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import place_of
from aggregator_server.ledger.verify import read_campaign
from aggregator_server.monitoring.overview import Command
from aggregator_server.monitoring.serving import watched
from aggregator_server.reaching import enrolled_of, reaching
from aggregator_server.results.report import describe_state
from aggregator_server.results.statement import promised, server_epsilon
from aggregator_server.student_service import StudentService
from pate.campaign.choices import NO_GUESS, TEACHERS_EACH, Guess
from pate.codes import code_of
from pate.data.embeddings import encoder_in
from pate.data.values import Inputs, content_hash
from pate.errors import PateError, ProtocolError, SchemaError, StateError, UsageError
from pate.noise.exact import SystemNoise
from pate.planning.forecast import expected, teachers_wanted
from pate.printable import listed, number_of
from pate.runtime.child import LOCAL_STUDENT_SERVICE
from pate.runtime.failpoints import reach
from pate.runtime.home import (
    STUDENT_TOKEN,
    default_home,
    kept_secret,
    kept_token,
    private_directory,
    sweep_drafts,
    write_file,
)
from pate.storage.hash_chain import Head
from protos.public_set import PackedEncoder, pack_public_set, read_public_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator_server.reaching import Listening
    from pate.campaign.spec import CampaignSpec
    from pate.runtime.screen import Screen

_PUBLIC_FILE = "public.bin"
#: The coordinator's options, in the campaign's folder.
OPTIONS_FILE = "campaign.toml"
#: What this server can see, stated before the first party connects.
_SEEN: Final = {
    ("plain", "central"): (
        "aggregation is plain: this server sees every party's vote vectors; its releases are "
        "protected, its own view is not"
    ),
    ("masked", "central"): (
        "aggregation is masked: this server sees sums over {spec.sums.min_parties} parties or more, "
        "exact ones, and no party's votes"
    ),
    ("masked", "distributed"): (
        "aggregation is masked, with noise by the parties: this server sees noisy sums over "
        "{spec.sums.min_parties} parties or more, and no party's votes"
    ),
}
#: Marks that the parties were notified of the campaign's end.
_TOLD_FILE = "parties-told"
#: Marks that the labels were served, too: the same command has nothing left to do.
_SERVED_FILE = "labels-served"


def start_campaign(
    folder: Path,
    spec: CampaignSpec,
    inputs: Inputs,
    listening: Listening,
    screen: Screen,
    database: str | None = None,
    encoder: Path | None = None,
    guess: Guess = NO_GUESS,
    typed: str = "",
) -> dict[str, object]:
    """Run a new campaign to its end, or continue the same one if it exists; return what ``--json`` prints.

    It is over once its parties were notified of its end and its labels were served. If it ends
    early, released labels are not lost. ``encoder`` is a folder, which parties without a copy are
    sent; ``guess`` is for what to expect, no term of the campaign; ``typed`` is the options as a
    configuration file, which a new campaign's folder keeps.
    """
    place = place_of(private_directory(folder), database)
    if stores.exists(place):
        with Ledger.open(place) as ledger:
            state = ledger.state()
            state.spec.require_same(spec)
            if state.phase == "finished" and is_over(folder):
                raise StateError(
                    f"the campaign in {folder} is finished; name a new one with --campaign, or "
                    "`pate-server export` its labels"
                )
            screen.say(f"continuing the campaign in {folder}: it is {state.phase}")
            return _run(ledger, inputs, folder, listening, screen, encoder, guess)
    require_lasting_key(spec.series, listening.identities)
    if listening.by_envelope is not None:
        listening.by_envelope.names(spec)
    if spec.series is not None and listening.identities is not None:
        key = listening.identities.signing_key.public_key().public_bytes_raw()
        spec = replace(spec, series_key=key.hex())
        require_same_series(folder, spec)
    write_file(folder / _PUBLIC_FILE, pack_public_set(inputs))
    if typed:
        write_file(folder / OPTIONS_FILE, typed.encode())
    reach("public-set-stored")
    with Ledger.create(place, spec) as ledger:
        reach("ledger-created")
        screen.say(
            f"new campaign {spec.name!r} ({spec.id[:8]}) of {len(inputs)} queries, stored in {folder}"
        )
        _say_guess(spec, guess, screen)
        return _run(ledger, inputs, folder, listening, screen, encoder, guess)


def is_over(folder: Path) -> bool:
    """Whether the parties of the finished campaign in ``folder`` were told, and its labels served."""
    return (folder / _TOLD_FILE).exists() and (folder / _SERVED_FILE).exists()


def require_same_series(folder: Path, spec: CampaignSpec) -> None:
    """Check before parties come what each of them compares: that a series has one set of terms."""

    def terms(of: CampaignSpec) -> str:
        votes = of.votes_per_patient or 1
        law = "geometric" if of.delta == 0 else "gaussian"
        return f"--unit {of.unit} --votes-per-patient {votes} --noise-law {law}"

    for other in sorted(each for each in folder.parent.iterdir() if each.is_dir()):
        try:
            earlier, _ = read_campaign(place_of(other))
        except (
            PateError
        ):  # no campaign, or one that is not readable now: parties compare all the same
            continue
        same = (earlier.spec.series, earlier.spec.series_key) == (spec.series, spec.series_key)
        if same and earlier.spent and terms(earlier.spec) != terms(spec):
            raise UsageError(
                f"series {spec.series!r} has the terms {terms(earlier.spec)} since its campaign "
                f"{earlier.spec.name!r}, this one has {terms(spec)}: state the same, or another --series"
            )


def _say_guess(spec: CampaignSpec, guess: Guess, screen: Screen) -> None:
    """Warn, before any party trains, if few labels are to be expected.

    The number of teachers, or records, is a guess, so there is no message if they are enough: but for a
    rarest class that is stated.
    """
    each = teachers_wanted(spec)
    if each > TEACHERS_EACH:
        screen.say(
            f"{TEACHERS_EACH} teachers at each party are too few for this budget: a party that starts "
            f"without --teachers has {each}"
        )
    found = expected(spec, guess)
    if found.few:
        screen.say(f"{found.text}; what helps: {found.advice}", "warning")
    elif guess.rarest is not None:
        screen.say(found.text)


def resume_campaign(
    folder: Path,
    inputs: Inputs | None,
    listening: Listening,
    screen: Screen,
    database: str | None = None,
    *,
    encoder: Path | None = None,
    head: str | None = None,
    close: bool = False,
) -> dict[str, object]:
    """Continue the campaign in ``folder``; a finished one serves its labels again.

    Without ``inputs`` the public set is the stored one. A ledger that may be stale needs ``head``,
    the newest that is known from elsewhere, or ``close``, which ends the campaign where its ledger
    ends.
    """
    known = Head.given(head)
    with Ledger.open(place_of(folder, database), head=known, close=close) as ledger:
        spec = ledger.state().spec
        if inputs is None:
            inputs = _stored_public_set(folder, spec)
        elif content_hash(inputs).hex() != spec.public_set:
            raise SchemaError(
                f"--public is not the public set of this campaign: its hash is "
                f"{content_hash(inputs).hex()[:12]}…, the campaign's is {spec.public_set[:12]}…"
            )
        screen.say(f"continuing the campaign in {folder}: it is {ledger.state().phase}")
        return _run(ledger, inputs, folder, listening, screen, encoder)


def _stored_public_set(folder: Path, spec: CampaignSpec) -> Inputs:
    path = folder / _PUBLIC_FILE
    try:
        return read_public_set(
            path.read_bytes(), public_set=bytes.fromhex(spec.public_set), queries=spec.queries
        )
    except (FileNotFoundError, ProtocolError) as error:
        raise StateError(f"the public set is no longer in {path}; name it with --public") from error


def _run(
    ledger: Ledger,
    inputs: Inputs,
    folder: Path,
    listening: Listening,
    screen: Screen,
    encoder: Path | None,
    guess: Guess = NO_GUESS,
) -> dict[str, object]:
    sweep_drafts(folder)
    spec, identities = ledger.state().spec, listening.identities
    if ledger.state().phase == "finished" and not ledger.state().roster:
        raise StateError(
            f"the campaign in {folder} ended before its roster was complete: it has no labels, and no "
            "party to notify; name a new one with --campaign"
        )
    check_goes_by_envelope(folder, listening.by_envelope)
    packed = None if encoder is None else _packed(encoder, spec)
    signing_key = _signing_key(folder) if identities is None else identities.signing_key
    keys = Keyring(signing_key, enrolled_of(identities))
    for line in [] if identities is None else identities.warnings(datetime.now(UTC)):
        screen.say(line)
    token = folder.parent / STUDENT_TOKEN
    with (
        _serving(
            StudentService(
                ledger, port=listening.student_port, token=kept_token(token), guess=guess
            )
        ) as service,
        watched(
            ledger,
            folder,
            listening.page,
            guess=guess,
            identities=identities,
            service=service,
            screen=screen,
        ) as status,
    ):
        never = threading.Event()
        status.envelopes(last_envelopes(folder))
        if ledger.state().phase != "finished" or not (folder / _TOLD_FILE).exists():
            with reaching(folder, spec, listening, keys, screen, status.envelopes) as reached:
                status.open_doors(reached.address, reached.alive, listens=reached.listens)
                student = _for_student(service, token)
                status.tell_commands(
                    Command("at each party", reached.command), Command("for the student", student)
                )
                for line in _terms_in_words(spec):
                    screen.say(line)
                for line in reached.for_parties:
                    screen.say(line)
                screen.say(f"for the student: {student}")
                screen.say(_SEEN[spec.sums.aggregation, spec.sums.noise].format(spec=spec))
                exchange = exchange_of(
                    spec,
                    inputs,
                    reached.carrier,
                    keys,
                    screen,
                    encoder=packed,
                    show=noting(folder, lambda: ledger.state().phase, status.present),
                )
                known = None
                if listening.by_envelope is not None and identities is not None:
                    known = KnownKeys(folder, spec, identities, screen.say)
                campaign = Campaign(
                    ledger,
                    inputs,
                    Sums(ledger, inputs, exchange, screen, patience=listening.patience, keys=known),
                    noise=SystemNoise(),
                    screen=screen,
                    await_predictions=lambda round_: service.wait_for_predictions(
                        round_, never, exchange.look
                    ),
                    guess=guess,
                )
                campaign.run()
                campaign.farewell()
                reach("farewell-said")
                write_file(folder / _TOLD_FILE, b"")
                reach("parties-told")
        if listening.by_envelope is not None:
            forget_key(folder)
        status.close_doors()
        status.tell_commands(*_after_the_end(_for_student(service, token), folder))
        state = ledger.state()
        found = describe_state(state)
        released = spec.voted_for.release_in_words(len(state.labels), state.queries_asked)
        code = code_of(spec.code)
        of = code.asked_in_words(state.queries_asked) + ("" if code.in_directions else " asked")
        screen.say(f"the campaign is finished: {released} of {of}, {promised(spec, state.epsilon)}")
        if (seen := server_epsilon(state)) is not None:
            screen.say(f"the noisy sums that this server saw: {promised(spec, seen, 'server')}")
        _serve_to_the_end(service, listening.linger, screen, token)
    write_file(folder / _SERVED_FILE, b"")
    return found


def _for_student(service: StudentService, token: Path) -> str:
    """Return the student's command."""
    elsewhere = token != default_home("server") / STUDENT_TOKEN
    file = f" --token-file {quote(str(token))}" if elsewhere else ""
    at = f"127.0.0.1:{service.port}"
    server = "" if at == LOCAL_STUDENT_SERVICE else f" --server {at}"
    return f"pate-student train{server} --public PATH{file}"


def _after_the_end(student: str, folder: Path) -> Iterator[Command]:
    """Yield what is to be typed once the campaign is finished."""
    home = "" if folder.parent == default_home("server") else f" --home {quote(str(folder.parent))}"
    name = "" if folder.name == "campaign" else f" --campaign {quote(folder.name)}"
    # On the stored page, too, where it does not run any more.
    yield Command("for the student, while this server runs or after pate-server resume", student)
    yield Command("or from a file", f"pate-server export --out labels.json{home}{name}")
    yield Command("to verify what was charged", f"pate-server ledger verify{home}{name}")
    yield Command("at each party, to verify what left it", "pate-party verify DIR/privacy.json")


def _packed(folder: Path, spec: CampaignSpec) -> PackedEncoder | None:
    """Return the encoder of a campaign's inputs as it is sent; None if they are made by none."""
    made, wanted = PackedEncoder(folder), encoder_in(spec.schema)
    if wanted and made.digest != wanted:
        raise SchemaError(
            f"--encoder is not the encoder of this campaign: its digest is {made.digest[:12]}…, the "
            f"campaign's is {wanted[:12]}…"
        )
    return made if wanted else None


def _terms_in_words(spec: CampaignSpec) -> Iterator[str]:
    """Yield the effective terms, given or default: required parties, and the guarantee."""
    named = spec.parties if isinstance(spec.parties, tuple) else ()
    yield (
        f"{spec.aggregator} with {number_of(spec.wanted_parties, 'party')} (--parties): "
        f"{listed(named) if named else 'the first that come'}"
    )
    yield f"privacy budget (--epsilon, --delta, --unit): at most {promised(spec, spec.epsilon)}"
    if spec.series is not None:
        yield (
            f"series {spec.series!r}: parties accept one law of noise in all its campaigns, this one's: "
            f"--noise-law {'geometric' if spec.delta == 0 else 'gaussian'}"
        )


def _signing_key(folder: Path) -> Ed25519PrivateKey:
    """Return the key of a campaign without identities: its own, made on first use."""
    return Ed25519PrivateKey.from_private_bytes(kept_secret(folder / "campaign.key"))


@contextlib.contextmanager
def _serving(service: StudentService) -> Iterator[StudentService]:
    service.start()
    try:
        yield service
    finally:
        service.stop()


def _serve_to_the_end(service: StudentService, linger: float, screen: Screen, token: Path) -> None:
    if linger == 0 or service.delivered:
        return
    screen.say(
        f"serving the labels on port {service.port} until a student with the token in {token} has "
        "them all; Ctrl-C ends it, and `pate-server resume` serves them again"
    )
    never = threading.Event()
    if not service.wait_until_delivered(never, None if linger < 0 else linger):
        screen.say(f"no student came for the labels within {linger:g} s; they stay in the ledger")
