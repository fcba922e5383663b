"""``pate simulate``: the campaign with many simulated parties in one process tree."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE, label_set
from aggregator_server.results.statement import privacy_statement
from aggregator_server.student_service import StudentService
from pate.campaign.choices import ARRAYS
from pate.campaign.settings import spec_of
from pate.data.embeddings import Embeddings
from pate.data.odd import Odd
from pate.data.read import read_dataset
from pate.data.values import Images
from pate.encoders.reading import Reader
from pate.errors import ProcessError
from pate.masking.context import most_colluders
from pate.masking.graph import COMPLETE_UP_TO, degree_for
from pate.runtime.home import private_directory, write_file
from pate.runtime.tokens import STUDENT_TOKEN, kept_token
from simulation.campaign import run_campaign, wire_to
from simulation.datasets import deal, digits, digits_like, write_inputs
from simulation.party import (
    PUBLIC_FILE,
    open_party,
    party_home,
    store_inputs,
    store_records,
    worker,
)
from simulation.party_processes import PartyProcesses, memory_peak
from simulation.programs import Programs
from simulation.report import Report, draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aggregator_server.exchange.wire import Wire
    from party.voting.voter import Voter
    from pate.data.values import Dataset, Inputs
    from pate.runtime.screen import Screen
    from simulation.datasets import DatasetSplit
    from simulation.options import SimulationOptions
    from student.evaluation.evaluate import AnyEvaluation

#: Shares of the records for the public set and the test set.
_PUBLIC_SHARE, _TEST_SHARE = 0.3, 0.15
#: Records per teacher, if digits are synthesised.
_RECORDS_EACH = 10
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


def run_simulation(setting: SimulationOptions, screen: Screen) -> Report:
    """Run a simulated campaign and return its result.

    Raises:
        PateError: if the data, the budget or the parties do not allow it.
    """
    from student.evaluation.evaluate import Evaluation

    began = time.monotonic()
    encoder = Reader.open(setting.encoder, bar=screen.bar)
    dealt = _dealt(setting, encoder, screen)
    private_directory(setting.out)
    with tempfile.TemporaryDirectory(prefix="pate-simulation-") as scratch:
        place = Path(scratch)
        min_parties, colluders = _said_quorum(setting, screen)
        spec = spec_of(
            CampaignOptions(
                campaign="simulation",
                aggregator=setting.aggregator,
                parties=str(setting.parties),
                min_parties=min_parties,
                colluders=colluders,
                classes=",".join(dealt.public.classes) or None,
                epsilon=setting.epsilon,
                delta=setting.delta,
                aggregation=setting.aggregation,
                noise=setting.noise,
                noise_law=setting.noise_law,
                code=setting.code,
                answer=setting.answer,
                range=setting.range,
                release=setting.release,
                rounds=setting.rounds,
                expected_records=(
                    sum(map(len, dealt.parties))
                    if setting.aggregator == "neighbour" or setting.release == ARRAYS
                    else None
                ),
            ),
            dealt.public.inputs,
            say=screen.say,
        )
        if encoder is not None:
            spec = replace(spec, encoder=encoder.encoder.description.statement())
        folder = place / "campaign"
        with (
            Ledger.create(folder / LEDGER_FILE, spec) as ledger,
            _link(setting, dealt, place, screen) as link,
        ):
            evaluation = _campaign(setting, ledger, link, dealt, screen)
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
    report = Report.of(
        statement,
        labels,
        dealt,
        mechanism=setting.aggregator,
        teachers=teachers,
        student_accuracy=evaluation.accuracy if isinstance(evaluation, Evaluation) else None,
        student_scores=(
            None
            if evaluation is None or isinstance(evaluation, Evaluation)
            else evaluation.in_words
        ),
        seconds=time.monotonic() - began,
        files={"picture": str(setting.out / "campaign.png"), "ledger": str(kept)},
    )
    draw(setting.out / "campaign.png", report, labels, dealt.public)
    return report


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
        if setting.queries is not None or setting.parties * setting.teachers > private:
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
    setting: SimulationOptions, parties: Sequence[Dataset], place: Path, screen: Screen
) -> list[Voter]:
    voters = []
    teachers = _teachers(setting)
    what = (
        "opening each party" if teachers is None else f"training {teachers} teachers at each party"
    )
    with screen.bar(what) as progress:
        for number, records in enumerate(parties):
            home = party_home(place, number)
            voters.append(open_party(home, records, teachers=teachers))
            progress(number + 1, len(parties))
    return voters


def _teachers(setting: SimulationOptions) -> int | None:
    return None if setting.aggregator == "neighbour" else setting.teachers


@contextlib.contextmanager
def _link(
    setting: SimulationOptions, dealt: DatasetSplit, place: Path, screen: Screen
) -> Iterator[Wire]:
    """Yield the wire to the parties, which run as long as the block."""
    if setting.outside:
        private_directory(place)
        for number, records in enumerate(dealt.parties):
            store_records(private_directory(party_home(place, number)), records)
        if setting.parties * _size(dealt.public.inputs) > _MOST_COPIED:
            screen.say("parties share one copy of the public set: as many would fill the disk")
            store_inputs(place / PUBLIC_FILE, dealt.public.inputs)
        with PartyProcesses(
            "simulation.party",
            worker(place, _teachers(setting)),
            parties=setting.parties,
            processes=setting.outside,
            log=setting.out / "parties.log",
        ) as processes:
            yield processes
        return
    voters = _voters(setting, dealt.parties, place, screen)
    with wire_to(voters) as wire:
        yield wire


def _size(inputs: Inputs) -> int:
    """Return the size of inputs in bytes."""
    if isinstance(inputs, Images):
        return inputs.pixels.nbytes
    if isinstance(inputs, Embeddings):
        return inputs.values.nbytes
    return sum(column.nbytes for column in inputs.columns)


def _campaign(
    setting: SimulationOptions, ledger: Ledger, link: Wire, dealt: DatasetSplit, screen: Screen
) -> AnyEvaluation | None:
    """Run the campaign with a student; return its evaluation."""
    token = setting.out / STUDENT_TOKEN
    service = StudentService(ledger, token=kept_token(token))
    stop = threading.Event()
    failed: list[ProcessError] = []

    def watch(programs: Programs) -> None:
        try:
            programs.wait("student")
        except ProcessError as error:
            failed.append(error)
            stop.set()

    with Programs(screen, setting.out) as programs:
        port = service.start()
        watcher = threading.Thread(target=watch, args=(programs,), daemon=True)
        try:
            if setting.student:
                public = write_inputs(setting.out / "public", dealt.public.inputs)
                programs.start(
                    "student", "student",
                    "train", "--server", f"127.0.0.1:{port}", "--public", str(public),
                    "--token-file", str(token), "--out", str(setting.out / "student"), "--json",
                )  # fmt: skip
                watcher.start()
            run_campaign(
                ledger,
                dealt.public.inputs,
                link,
                screen=screen,
                await_predictions=lambda round_: service.wait_for_predictions(round_, stop),
            )
            if setting.student:
                watcher.join()
        finally:
            service.stop()
            token.unlink(missing_ok=True)
            if failed:
                raise failed[0]
    return _evaluated(setting.out / "student", dealt.test) if setting.student else None


def _evaluated(folder: Path, test: Dataset) -> AnyEvaluation:
    from student.evaluation.evaluate import LabelledData, evaluated
    from student.weights import load

    return evaluated(load(folder), LabelledData(test))
