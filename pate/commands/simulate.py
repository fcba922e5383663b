"""``pate simulate``: the campaign with many simulated parties in one process tree."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign import Campaign
from aggregator_server.ledger import Ledger
from aggregator_server.report import LEDGER_FILE, label_set
from aggregator_server.service import StudentService
from aggregator_server.settings import make_matrix, make_spec
from aggregator_server.statement import privacy_statement
from pate.commands.cast import Cast
from pate.commands.deal import deal, digits, write_inputs
from pate.commands.report import Report, draw, label_accuracy, majority_accuracy
from pate.commands.simulated_party import open_party, party_home, store_inputs, store_records
from pate.data.read import read_dataset
from pate.errors import ProcessError, UsageError
from pate.noise import SystemNoise
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aggregator_server.wire import Wire
    from party.voter import Voter
    from pate.commands.deal import Deal
    from pate.data.values import Dataset
    from pate.runtime.screen import Screen

ENGINES = ("local", "ray")
#: Of all records: what the public set and the test set take.
_PUBLIC_SHARE, _TEST_SHARE = 0.3, 0.15
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Simulation:
    """What to simulate; each field is the option of that name."""

    parties: int
    teachers: int
    aggregator: str
    epsilon: float
    delta: float
    data: Path | None
    label: str | None
    engine: str
    student: bool
    out: Path
    aggregation: str | None = None
    noise: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(f"--engine is {self.engine!r}, possible are {', '.join(ENGINES)}")
        if self.aggregator == "interactive-gnmax" and not self.student:
            raise UsageError("interactive-gnmax asks a student: leave --no-student out")
        if self.engine == "ray":
            from pate.commands.ray_engine import require_ray

            require_ray()
            if self.aggregator == "neighbour":
                raise UsageError(
                    "--engine ray simulates teachers; neighbour votes need none: local"
                )
            if self.aggregation == "masked" or self.noise == "distributed":
                raise UsageError(
                    "--engine ray has many processes for one party, and the secrets of a masked sum "
                    "stay in one: use --engine local, or --aggregation plain"
                )


def run_simulation(setting: Simulation, screen: Screen) -> Report:
    """Run a simulated campaign and return what came out.

    Raises:
        PateError: if the data, the budget or the parties do not allow it.
    """
    began = time.monotonic()
    records = digits() if setting.data is None else read_dataset(setting.data, label=setting.label)
    dealt = deal(
        records,
        setting.parties,
        public=int(len(records) * _PUBLIC_SHARE),
        test=int(len(records) * _TEST_SHARE),
    )
    private_directory(setting.out)
    with tempfile.TemporaryDirectory(prefix="pate-simulation-") as scratch:
        place = Path(scratch)
        voters = _voters(setting, dealt.parties, place, screen)
        matrix = make_matrix(
            dealt.public.inputs,
            setting.aggregator,
            epsilon=setting.epsilon,
            delta=setting.delta,
            records=sum(map(len, dealt.parties)) if setting.aggregator == "neighbour" else None,
            say=screen.say,
        )
        spec = make_spec(
            dealt.public.inputs,
            name="simulation",
            aggregator=setting.aggregator,
            parties=str(setting.parties),
            min_parties=None,
            classes=",".join(records.classes),
            epsilon=setting.epsilon,
            delta=setting.delta,
            unit="record",
            rounds=None,
            max_queries=None,
            fractions={},
            aggregation="plain" if setting.engine == "ray" else setting.aggregation,
            noise=setting.noise,
            matrix=matrix,
        )
        folder = place / "campaign"
        with (
            Ledger.create(folder / LEDGER_FILE, spec) as ledger,
            _link(setting, voters, dealt, place) as link,
        ):
            accuracy = _campaign(setting, ledger, link, dealt, screen)
            statement = privacy_statement(ledger.state())
            teachers = ledger.state().teachers
        labels = label_set(folder)
        # Kept where `pate-server ledger verify --home OUT` finds it.
        kept = private_directory(setting.out / folder.name) / LEDGER_FILE
        write_file(kept, (folder / LEDGER_FILE).read_bytes())
    report = Report(
        parties=setting.parties,
        teachers=teachers,
        labels_asked=statement.queries_asked,
        labels_answered=len(labels.rows),
        label_accuracy=label_accuracy(labels, dealt.public),
        student_accuracy=accuracy,
        nonprivate_accuracy=None,
        majority_accuracy=majority_accuracy(dealt.test),
        epsilon=statement.epsilon,
        delta=statement.delta,
        unit=statement.unit,
        adjacency=statement.adjacency,
        observer=statement.observer,
        mechanism=setting.aggregator,
        seconds=round(time.monotonic() - began, 1),
        files={"picture": str(setting.out / "campaign.png"), "ledger": str(kept)},
    )
    draw(setting.out / "campaign.png", report, labels, dealt.public)
    return report


def _voters(
    setting: Simulation, parties: Sequence[Dataset], place: Path, screen: Screen
) -> list[Voter]:
    voters = []
    teachers = None if setting.aggregator == "neighbour" else setting.teachers
    what = (
        "opening each party" if teachers is None else f"training {teachers} teachers at each party"
    )
    with screen.bar(what) as progress:
        for number, records in enumerate(parties):
            home = party_home(place, number)
            voters.append(open_party(home, records, teachers=teachers))
            progress(number + 1, len(parties))
    return voters


@contextlib.contextmanager
def _link(setting: Simulation, voters: Sequence[Voter], dealt: Deal, place: Path) -> Iterator[Wire]:
    """Yield the wire to the parties, which live as long as the block."""
    if setting.engine == "ray":
        from pate.commands.ray_engine import PUBLIC_FILE, ray_wire

        # Ray's processes have no part in our memory: what they need lies on the disk.
        store_inputs(place / PUBLIC_FILE, dealt.public.inputs)
        for number, records in enumerate(dealt.parties):
            store_records(party_home(place, number), records)
        with ray_wire(
            place,
            parties=setting.parties,
            teachers=setting.teachers,
            log=setting.out / "ray.log",
        ) as wire:
            yield wire
        return
    from aggregator_server.local_grid import LocalGrid
    from aggregator_server.wire import GridWire
    from party.client_app import make_client_app

    grid = LocalGrid([make_client_app(voter.handle) for voter in voters])
    try:
        yield GridWire(grid)
    finally:
        grid.close()


def _campaign(
    setting: Simulation, ledger: Ledger, link: Wire, dealt: Deal, screen: Screen
) -> float | None:
    """Run the campaign with a student beside it; return the student's accuracy."""
    service = StudentService(ledger)
    stop = threading.Event()
    failed: list[ProcessError] = []

    def watch(cast: Cast) -> None:
        try:
            cast.wait("student")
        except ProcessError as error:
            failed.append(error)
            stop.set()

    with Cast(screen, setting.out) as cast:
        port = service.start()
        watcher = threading.Thread(target=watch, args=(cast,), daemon=True)
        try:
            if setting.student:
                public = write_inputs(setting.out / "public", dealt.public.inputs)
                cast.start(
                    "student", "student",
                    "train", "--server", f"127.0.0.1:{port}", "--public", str(public),
                    "--out", str(setting.out / "student"), "--json",
                )  # fmt: skip
                watcher.start()
            Campaign(
                ledger,
                dealt.public.inputs,
                link,
                noise=SystemNoise(),
                screen=screen,
                signing_key=Ed25519PrivateKey.generate(),
                patience=_PATIENCE_S,
                await_predictions=lambda round_: service.wait_for_predictions(round_, stop),
            ).run()
            if setting.student:
                watcher.join()
        finally:
            service.stop()
            if failed:
                raise failed[0]
    return _accuracy(setting.out / "student", dealt.test) if setting.student else None


def _accuracy(folder: Path, test: Dataset) -> float:
    from student.evaluate import evaluate
    from student.weights import load

    return evaluate(load(folder), test).accuracy
