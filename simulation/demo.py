"""``pate demo``: four hospitals, a server and a student as real processes over Flower.

The same records answer twice: with teachers, label by label; and by themselves, in one release of
neighbour votes. Both students are judged side by side.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aggregator_server.monitoring.token import kept_token
from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import PrivacyStatement
from pate.runtime.child import free_port
from pate.runtime.tokens import STUDENT_TOKEN
from simulation.datasets import Deal, deal, digits, write_deal
from simulation.processes import Cast
from simulation.report import Report, draw, label_accuracy, majority_accuracy

if TYPE_CHECKING:
    from pate.runtime.screen import Screen

HOSPITALS: Final = ("hospital_a", "hospital_b", "hospital_c", "hospital_d")
TEACHERS: Final = 15
PUBLIC: Final = 500
TEST: Final = 297
DELTA: Final = 1e-4


@dataclass(frozen=True)
class Act:
    """One of the two campaigns.

    Attributes:
        aggregator: name of the mechanism.
        epsilon: its budget.
        server: further options of the server.
        party: of each party.
        teachers: in all.
        ending: of the names of its files.
    """

    aggregator: str
    epsilon: float
    server: tuple[str, ...]
    party: tuple[str, ...]
    teachers: int
    ending: str


ACTS: Final = (
    Act(
        aggregator="interactive-gnmax",
        epsilon=8.0,
        server=(),
        party=("--votes", "teachers", "--teachers", str(TEACHERS)),
        teachers=len(HOSPITALS) * TEACHERS,
        ending="",
    ),
    # A thousand records or so is what a coordinator would guess of four small hospitals.
    Act(
        aggregator="neighbour",
        epsilon=1.0,
        server=("--expected-records", "1000"),
        party=("--votes", "neighbour"),
        teachers=0,
        ending="-neighbour",
    ),
)


def run_demo(out: Path, screen: Screen) -> tuple[Report, ...]:
    """Run the demonstration and return what came out of each campaign.

    Args:
        out: folder for the students, the pictures and the logs; made if absent.
        screen: where the roles' lines go.

    Raises:
        ProcessError: if one of the processes fails.
    """
    dealt = deal(digits(), len(HOSPITALS), public=PUBLIC, test=TEST)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    pooled = pooled_accuracy(dealt)
    with tempfile.TemporaryDirectory(prefix="pate-demo-") as scratch:
        place = Path(scratch)
        write_deal(place, dealt, HOSPITALS)
        return tuple(_perform(act, place, out, dealt, pooled, screen) for act in ACTS)


def pooled_accuracy(dealt: Deal) -> float:
    """Return the test accuracy of a classifier that saw all parties' records: not private.

    A support vector machine on raw values, scikit-learn's own example for these digits.
    """
    import numpy as np
    from sklearn.svm import SVC

    def matrix(inputs: object) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        from pate.data.values import Images

        if not isinstance(inputs, Images):
            raise TypeError("the pooled baseline takes images")
        return inputs.pixels.reshape(len(inputs), -1) / 255.0

    pooled = np.concatenate([matrix(party.inputs) for party in dealt.parties])
    labels = np.concatenate([party.labels for party in dealt.parties])
    model = SVC(gamma="scale", C=10.0).fit(pooled, labels)
    return float(model.score(matrix(dealt.test.inputs), dealt.test.labels))


def _perform(
    act: Act, place: Path, out: Path, dealt: Deal, pooled: float, screen: Screen
) -> Report:
    """Run one campaign and say what came of it."""
    began = time.monotonic()
    screen.say(f"--- {act.aggregator}, epsilon {act.epsilon:g} ---")
    labels = _campaign(act, place, out, screen)
    evaluation = _evaluate(act, place, out, screen)
    student = out / f"student{act.ending}"
    statement = PrivacyStatement.from_json((student / "privacy.json").read_text())
    accuracy = evaluation["accuracy"]
    if not isinstance(accuracy, float):
        raise TypeError("the evaluation printed no accuracy")
    picture = out / f"campaign{act.ending}.png"
    report = Report(
        parties=len(HOSPITALS),
        teachers=act.teachers,
        labels_asked=statement.queries_asked,
        labels_answered=len(labels.rows),
        label_accuracy=label_accuracy(labels, dealt.public),
        student_accuracy=accuracy,
        nonprivate_accuracy=pooled,
        majority_accuracy=majority_accuracy(dealt.test),
        epsilon=statement.epsilon,
        delta=statement.delta,
        unit=statement.unit,
        adjacency=statement.adjacency,
        observer=statement.observer,
        mechanism=act.aggregator,
        seconds=round(time.monotonic() - began, 1),
        files={
            "student": str(student),
            "picture": str(picture),
            "evaluation": str(out / f"evaluation{act.ending}"),
            "logs": str(_logs(act, out)),
        },
    )
    draw(picture, report, labels, dealt.public)
    return report


def _logs(act: Act, out: Path) -> Path:
    made = out / f"logs{act.ending}"
    made.mkdir(parents=True, exist_ok=True)
    return made


def _campaign(act: Act, place: Path, out: Path, screen: Screen) -> LabelSet:
    port, student_port, page_port = free_port(), free_port(), free_port()
    server, exported = place / f"server{act.ending}", place / f"labels{act.ending}.json"
    with Cast(screen, _logs(act, out)) as cast:
        cast.start(
            "server", "aggregator_server",
            "--aggregator", act.aggregator, "--public", str(place / "public.npz"),
            "--parties", ",".join(HOSPITALS), *act.server,
            "--epsilon", str(act.epsilon), "--delta", str(DELTA),
            "--port", str(port), "--student-port", str(student_port),
            "--page-port", str(page_port),
            "--home", str(server), "--linger", "60", "--json",
        )  # fmt: skip
        for name in HOSPITALS:
            cast.start(
                name, "party",
                "start", "--data", str(place / name), "--server", f"127.0.0.1:{port}",
                *act.party, "--home", str(place / "homes" / name), "--json",
            )  # fmt: skip
        student = out / f"student{act.ending}"
        if student.exists():
            shutil.rmtree(student)
        cast.start(
            "student", "student",
            "train", "--server", f"127.0.0.1:{student_port}", "--public", str(place / "public.npz"),
            "--token-file", str(server / STUDENT_TOKEN),
            "--test", str(place / "test.npz"), "--out", str(student), "--json",
        )  # fmt: skip
        cast.wait_for_door(page_port)
        address = f"http://127.0.0.1:{page_port}/?token={kept_token(server)}"
        screen.say(f"watch it in a browser: {address}")
        cast.wait("server", "student", *HOSPITALS)
        cast.start(
            "labels", "aggregator_server", "export", "--home", str(server), "--out", str(exported)
        )
        cast.wait("labels")
    return LabelSet.from_json(exported.read_text())


def _evaluate(act: Act, place: Path, out: Path, screen: Screen) -> dict[str, object]:
    with Cast(screen, _logs(act, out)) as cast:
        cast.start(
            "evaluation", "student",
            "evaluate", "--model", str(out / f"student{act.ending}"),
            "--data", str(place / "test.npz"), "--out", str(out / f"evaluation{act.ending}"),
            "--json",
        )  # fmt: skip
        return cast.wait("evaluation")["evaluation"]
