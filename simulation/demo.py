"""``pate demo``: four hospitals, a server and a student as real processes over Flower.

The same records answer in two campaigns: with teachers, label by label; and in one release of neighbour
votes. Both students are evaluated and compared.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.formats.labels import LabelSet
from pate.formats.privacy_statement import PrivacyStatement
from pate.runtime.child import free_port
from pate.runtime.home import PAGE_TOKEN, STUDENT_TOKEN, kept_token
from simulation.datasets import DatasetSplit, deal, digits, write_split
from simulation.programs import Programs
from simulation.report import Report, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pate.runtime.screen import Screen

HOSPITALS: Final = ("hospital_a", "hospital_b", "hospital_c", "hospital_d")
TEACHERS: Final = 15
PUBLIC: Final = 500
TEST: Final = 297
DELTA: Final = 1e-4
#: Of each training of a student; with the 600 that it takes by itself it is not better here.
STEPS: Final = 400


@dataclass(frozen=True)
class Act:
    """One of the two campaigns."""

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
    # A coordinator would guess about a thousand records for four small hospitals.
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
    """Run the demonstration into the folder ``out``, and return the result of each campaign."""
    dealt = deal(digits(), len(HOSPITALS), public=PUBLIC, test=TEST)
    pooled = pooled_accuracy(dealt)
    with tempfile.TemporaryDirectory(prefix="pate-demo-") as scratch:
        place = Path(scratch)
        write_split(place, dealt, HOSPITALS)
        return tuple(_perform(act, place, out, dealt, pooled, screen) for act in ACTS)


def pooled_accuracy(dealt: DatasetSplit) -> float:
    """Return the test accuracy of a support vector machine on all parties' pixels, without privacy."""
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
    act: Act, place: Path, out: Path, dealt: DatasetSplit, pooled: float, screen: Screen
) -> Report:
    """Run one campaign and report its result."""
    began = time.monotonic()
    screen.say(f"--- campaign {ACTS.index(act) + 1} of {len(ACTS)}: {act.aggregator} ---")
    student, picture = out / f"student{act.ending}", out / f"campaign{act.ending}.png"
    logs = out / f"logs{act.ending}"
    logs.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(student, ignore_errors=True)
    test = ("--test", place / "test.npz", "--out", student)
    page_port = free_port()
    with Programs(screen, logs, tellers=("server",)) as programs:

        def say_where() -> None:
            programs.wait_for_port(page_port)
            token = kept_token(place / f"server{act.ending}" / PAGE_TOKEN)
            address = f"http://127.0.0.1:{page_port}/?token={token}"
            screen.say(f"watch it in a browser: {address}")

        labels, accuracy = _run_roles(act, programs, place, page_port, test, say_where)
    report = Report.of(
        PrivacyStatement.from_json((student / "privacy.json").read_text()),
        labels,
        parties=len(dealt.parties),
        truth=dealt.public,
        test=dealt.test,
        mechanism=act.aggregator,
        teachers=act.teachers,
        student_accuracy=accuracy,
        nonprivate_accuracy=pooled,
        seconds=time.monotonic() - began,
        files={
            "student": str(student),
            "picture": str(picture),
            "logs": str(logs),
        },
    )
    draw(picture, report, labels, dealt.public.inputs, dealt.public)
    return report


def _run_roles(
    act: Act,
    programs: Programs,
    place: Path,
    page_port: int,
    student: Sequence[object],
    started: Callable[[], None],
) -> tuple[LabelSet, float]:
    """Run a campaign of the real commands; return its labels and the student's accuracy.

    Once all run, ``started`` is called.
    """
    home, public = place / f"server{act.ending}", place / "public.npz"
    port, student_port = free_port(), free_port()
    programs.start(
        "server", "aggregator_server", "--public", public, "--parties", ",".join(HOSPITALS),
        "--port", port, "--student-port", student_port, "--page-port", page_port, "--home", home,
        "--linger", 60, "--json", "--aggregator", act.aggregator, "--epsilon", act.epsilon,
        "--delta", DELTA, *act.server,
    )  # fmt: skip
    for name in HOSPITALS:
        programs.start(
            name, "party", "start", "--data", place / name, "--server", f"127.0.0.1:{port}",
            "--home", place / "homes" / name, "--json", *act.party,
        )  # fmt: skip
    programs.start(
        "student", "student", "train", "--server", f"127.0.0.1:{student_port}", "--public", public,
        "--token-file", home / STUDENT_TOKEN, "--steps", STEPS, "--json", *student,
    )  # fmt: skip
    started()
    evaluation = programs.wait("server", *HOSPITALS, "student")["student"]["evaluation"]
    if not isinstance(evaluation, dict) or not isinstance(evaluation.get("accuracy"), float):
        raise TypeError("the student printed no accuracy")
    exported = place / f"labels{act.ending}.json"
    programs.start("labels", "aggregator_server", "export", "--home", home, "--out", exported)
    programs.wait("labels")
    return LabelSet.from_json(exported.read_text()), evaluation["accuracy"]
