"""``pate simulate``: the campaign with many simulated parties in one process tree."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.runner import Campaign, exchange_of
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement
from pate.campaign.choices import ARRAYS, NO_GUESS, Guess
from pate.campaign.settings import spec_of
from pate.data.embeddings import Embeddings
from pate.data.odd import Odd
from pate.data.read import read_dataset
from pate.data.values import Images
from pate.encoders.reading import Reader
from pate.errors import DataError, UsageError
from pate.formats.labels import LabelRow
from pate.masking.context import most_colluders
from pate.masking.graph import COMPLETE_UP_TO, degree_for
from pate.noise.exact import SystemNoise
from pate.runtime.home import private_directory, write_file
from simulation.datasets import deal, digits, digits_like
from simulation.parties import Opener, open_party, party_home
from simulation.processes import PartyProcesses, PartyThreads, memory_peak
from simulation.report import Report, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aggregator_server.exchange.carrier import Carrier
    from party.voting.voter import Voter
    from pate.accounting import Unit
    from pate.data.values import Dataset, Inputs
    from pate.formats.labels import LabelSet
    from pate.formats.privacy_statement import PrivacyStatement
    from pate.runtime.screen import Screen
    from simulation.datasets import DatasetSplit
    from simulation.options import SimulationOptions
    from student.evaluation.evaluate import AnyEvaluation
    from student.lesson import Lesson, Student
    from student.session import Trainer

#: Shares of the records for the public set and the test set.
_PUBLIC_SHARE, _TEST_SHARE = 0.3, 0.15
#: Options of the simulation that are the campaign's.
_TERMS = (
    "aggregator", "epsilon", "delta", "aggregation", "noise", "noise_law", "code", "release", "rounds",
)  # fmt: skip
#: Records per teacher, if digits are synthesised.
_RECORDS_EACH = 10
#: Real digits of a party, at least: with fewer one of hundreds would have a single class by chance.
_FEWEST = 8
#: Largest total size of the parties' copies of the public set for which each receives its own.
_MOST_COPIED = 2**28


def quorum(
    parties: int, min_parties: int | None = None, colluders: int | None = None
) -> tuple[int | None, int | None]:
    """Return t and c of a simulated masked sum, None if left to the campaign's defaults.

    Up to 128 parties all pairs share masks, and the campaign's own defaults apply. They tolerate the
    most that masking can: a third of the parties lost, or colluding. Above that the complete graph has
    half a million pairs at 1,000 parties; with nine tenths needed and a twentieth colluding each party
    has 140 neighbours.

    >>> quorum(50), quorum(1000), quorum(1000, colluders=10)
    ((None, None), (900, 50), (900, 10))
    """
    if parties > COMPLETE_UP_TO:
        least = -(-parties * 9 // 10)
        min_parties = least if min_parties is None else min_parties
        colluders = (
            min(parties // 20, most_colluders(parties, min_parties))
            if colluders is None
            else colluders
        )
    return min_parties, colluders


@dataclass(frozen=True, eq=False)
class Setup:
    """What a simulated campaign is about."""

    parties: Mapping[str, Dataset]
    public: Inputs
    classes: tuple[str, ...]
    unit: Unit = "record"
    # of all parties: it decides where records vote, and is public. None: a guess
    expected_records: int | None = None
    encoder: Reader | None = None  # of the inputs; None: there is none
    seed: int = 0  # of the student's training. Noise is from the operating system
    answer: str | None = None  # what records say; None: their class
    range: str | None = None  # of a number


@dataclass(frozen=True, eq=False)
class Finished:
    """A simulated campaign that has ended."""

    labels: LabelSet  # that were released, with their cost
    statement: PrivacyStatement
    teachers: int  # of all parties; 0 if records vote
    ledger: Path
    student: Path | None  # the folder that it was published into; None without one


def run_simulation(setting: SimulationOptions, screen: Screen) -> Report:
    """Run the command's campaign over records that are dealt out, and return its result."""
    began = time.monotonic()
    encoder = Reader.open(setting.encoder, bar=screen.bar)
    dealt = _dealt(setting, encoder, screen)
    names = (party_home(Path(), number).name for number in range(setting.parties))
    setup = Setup(
        dict(zip(names, dealt.parties, strict=True)),
        dealt.public.inputs,
        dealt.public.classes,
        setting.unit,
        expected_records=sum(map(len, dealt.parties)),
        encoder=encoder,
        answer=setting.answer,
        range=setting.range,
    )
    done = simulated(setting, setup, screen)
    report = Report.of(
        done.statement,
        done.labels,
        parties=setting.parties,
        truth=dealt.public,
        test=dealt.test,
        mechanism=setting.aggregator,
        teachers=done.teachers,
        evaluation=None if done.student is None else evaluated_on(done.student, dealt.test),
        seconds=time.monotonic() - began,
        files={"picture": str(setting.out / "campaign.png"), "ledger": str(done.ledger)},
    )
    draw(setting.out / "campaign.png", report, done.labels, setup.public, dealt.public)
    return report


def simulated(setting: SimulationOptions, setup: Setup, screen: Screen) -> Finished:
    """Run a campaign over any records in this process tree; its ledger and student are in ``setting.out``."""
    private_directory(setting.out)
    train, student = None, setting.out / "student"
    if setting.student:
        from student.export import check_out

        check_out(student)
        train = _trainer(setup.seed, screen)
    with tempfile.TemporaryDirectory(prefix="pate-simulation-") as scratch:
        place = Path(scratch)
        min_parties, colluders = _said_quorum(setting, screen)
        spec = spec_of(
            CampaignOptions(
                campaign="simulation",
                parties=str(setting.parties),
                min_parties=min_parties,
                colluders=colluders,
                classes=",".join(setup.classes) or None,
                unit=setup.unit,
                answer=setup.answer,
                range=setup.range,
                **{name: getattr(setting, name) for name in _TERMS},
                expected_records=(
                    setup.expected_records
                    if setting.aggregator == "neighbour" or setting.release == ARRAYS
                    else None
                ),
            ),
            setup.public,
            say=screen.say,
        )
        if setup.encoder is not None:
            spec = replace(spec, encoder=setup.encoder.encoder.description.statement())
        folder = place / "campaign"
        with (
            Ledger.create(folder / LEDGER_FILE, spec) as ledger,
            _link(setting, setup, place, screen) as link,
        ):
            run_campaign(
                ledger,
                setup.public,
                link,
                screen=screen,
                await_predictions=(
                    None
                    if train is None
                    else lambda number: _predict(ledger, setup.public, train, number, screen)
                ),
                guess=Guess(records=setup.expected_records),
            )
            statement = privacy_statement(ledger.state())
            teachers = ledger.state().teachers
        if setting.outside:
            screen.say(
                f"the server's process took {time.process_time():.0f} s of processor, and "
                f"{memory_peak() / 1e6:.0f} MB of memory at most; the parties were in "
                f"{setting.outside} others"
            )
        labels = label_set(folder)
        # Kept where `pate-server ledger verify --home OUT` finds it.
        kept = private_directory(setting.out / folder.name) / LEDGER_FILE
        write_file(kept, (folder / LEDGER_FILE).read_bytes())
    if train is None:
        return Finished(labels, statement, teachers, kept, None)
    from student.lesson import learns_from_counts
    from student.session import NO_LABELS, graduate

    if not labels.rows and not learns_from_counts(labels.noisy):
        raise DataError(NO_LABELS)
    facts = {"seed": setup.seed}
    graduate(labels, setup.public, train, student, facts=facts, name=spec.name, say=screen.say)
    return Finished(labels, statement, teachers, kept, student)


def _trainer(seed: int, screen: Screen) -> Trainer:
    """Return what trains the student of a round; number 0 is the final one."""
    from pate.features.progress import telling
    from student.training import train as teach

    def train(lesson: Lesson, number: int) -> Student:
        title = f"student for round {number}" if number else "final student"
        describing = screen.bar("describing the public inputs", percent=True, late=True)
        with screen.bar(title) as move, describing as described, telling(described):
            return teach(
                lesson, seed=seed + number, progress=lambda step, total, _loss: move(step, total)
            )

    return train


def _predict(ledger: Ledger, public: Inputs, train: Trainer, number: int, screen: Screen) -> None:
    """Record the predictions of a student of the labels so far."""
    from student.session import predictions

    state = ledger.state()
    rows = [
        LabelRow(query, held.label, held.round, held.source) for query, held in state.labels.items()
    ]
    _, probabilities = predictions(public, rows, state.classes, number, train)
    ledger.record_predictions(number, probabilities)
    screen.say(f"round {number}: predictions submitted")


def _dealt(setting: SimulationOptions, encoder: Reader | None, screen: Screen) -> DatasetSplit:
    """Return the split of the named data, of the digits, or of synthetic digits if more are needed."""
    if setting.data is not None:
        notes = Odd()
        records = read_dataset(
            setting.data,
            label=setting.label,
            labels=setting.label_list,
            number=setting.number,
            text=setting.text,
            encoder=encoder,
            notes=notes,
        )
        for line in notes.lines():
            screen.say(f"{setting.data}: {line}", "warning")
    else:
        records = digits()
        private = len(records) * (1 - _PUBLIC_SHARE - _TEST_SHARE)
        needed = setting.parties * max(setting.teachers, _FEWEST)
        if setting.queries is not None or needed > private:
            public = setting.queries or int(len(records) * _PUBLIC_SHARE)
            test = int(len(records) * _TEST_SHARE)
            wanted = public + test + setting.parties * setting.teachers * _RECORDS_EACH
            screen.say(
                f"{wanted} images made of copies of the {len(records)} digits, moved and noisy, since "
                "there are not so many: accuracies on them are meaningless"
            )
            return deal(digits_like(wanted), setting.parties, public=public, test=test)
    return deal(
        records,
        setting.parties,
        public=int(len(records) * _PUBLIC_SHARE),
        test=int(len(records) * _TEST_SHARE),
    )


def _said_quorum(setting: SimulationOptions, screen: Screen) -> tuple[int | None, int | None]:
    """Return t and c of the campaign, and print the choice."""
    given = setting.min_parties, setting.colluders
    if not setting.masked:
        return given
    chosen = quorum(setting.parties, *given)
    if chosen != given:
        least, colluders = chosen
        assert least is not None and colluders is not None  # noqa: S101, PT018 - see quorum
        degree = degree_for(setting.parties, least, colluders)
        screen.say(
            f"above 128 parties each party masks with {degree.neighbours} neighbours, "
            f"which allows for {setting.parties - least} lost and {colluders} colluding; "
            "--min-parties and --colluders choose otherwise"
        )
    return chosen


def _voters(
    setting: SimulationOptions, parties: Mapping[str, Dataset], place: Path, screen: Screen
) -> list[Voter]:
    voters = []
    teachers = _teachers(setting)
    what = (
        "opening each party" if teachers is None else f"training {teachers} teachers at each party"
    )
    with screen.bar(what) as progress:
        for name, records in parties.items():
            voters.append(open_party(place / name, records, teachers=teachers))
            progress(len(voters), len(parties))
    return voters


def _teachers(setting: SimulationOptions) -> int | None:
    return None if setting.aggregator == "neighbour" else setting.teachers


@contextlib.contextmanager
def _link(
    setting: SimulationOptions, setup: Setup, place: Path, screen: Screen
) -> Iterator[Carrier]:
    """Yield the carrier to the parties, which run as long as the block."""
    if setting.outside:
        records, public = list(setup.parties.values()), setup.public
        if shared := setting.parties * _size(public) > _MOST_COPIED:
            screen.say("parties share one copy of the public set: as many would fill the disk")
        with PartyProcesses(
            lambda numbers: Opener(
                place,
                {at: records[at] for at in numbers},
                _teachers(setting),
                public if shared else None,
            ),
            parties=setting.parties,
            processes=setting.outside,
            log=setting.out / "parties.log",
        ) as processes:
            yield processes
        return
    voters = _voters(setting, setup.parties, place, screen)
    with carrier_to(voters) as carrier:
        yield carrier


def _size(inputs: Inputs) -> int:
    """Return the size of inputs in bytes."""
    if isinstance(inputs, Images):
        return inputs.pixels.nbytes
    if isinstance(inputs, Embeddings):
        return inputs.values.nbytes
    return sum(column.nbytes for column in inputs.columns)


def evaluated_on(folder: Path, test: Dataset) -> AnyEvaluation:
    """Return the evaluation of the student in a folder on labelled records."""
    from student.evaluation.evaluate import LabelledData, evaluated
    from student.weights import load

    return evaluated(load(folder), LabelledData(test))


#: Seconds to wait for the last parties once enough have voted. None is absent here; many are slow.
_PATIENCE_S: Final = 3600.0


def run_campaign(
    ledger: Ledger,
    public: Inputs,
    carrier: Carrier,
    *,
    screen: Screen,
    # called with a round; returns when the student's predictions for it are in the ledger. None:
    # there is no student
    await_predictions: Callable[[int], object] | None = None,
    # the server's, by which parties know a series; None: a new one
    signing_key: Ed25519PrivateKey | None = None,
    guess: Guess = NO_GUESS,  # for what to expect
) -> None:
    """Run a campaign to its end, and notify the parties."""
    if ledger.state().spec.interactive and await_predictions is None:
        raise UsageError("an interactive campaign needs a student between its rounds")
    keys = Keyring(signing_key or Ed25519PrivateKey.generate())
    exchange = exchange_of(ledger.state().spec, public, carrier, keys, screen)
    campaign = Campaign(
        ledger,
        public,
        Sums(ledger, public, exchange, screen, patience=_PATIENCE_S),
        noise=SystemNoise(),
        screen=screen,
        await_predictions=await_predictions or (lambda _: None),
        guess=guess,
    )
    campaign.run()
    campaign.farewell()


def carrier_to(voters: Sequence[Voter]) -> contextlib.closing[PartyThreads]:
    """Return the carrier to parties in threads of this process, for a ``with``."""
    return contextlib.closing(PartyThreads([voter.handle for voter in voters]))
