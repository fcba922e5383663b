"""``pate demo``: four hospitals, a server and a student as real processes over Flower."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.commands.cast import Cast
from pate.commands.deal import Deal, deal, digits, write_inputs, write_labelled
from pate.commands.report import Report, draw, label_accuracy, majority_accuracy
from pate.labels import LabelSet
from pate.runtime.lifeline import free_port
from pate.statement import PrivacyStatement

if TYPE_CHECKING:
    from pate.runtime.screen import Screen

HOSPITALS: Final = ("hospital_a", "hospital_b", "hospital_c", "hospital_d")
TEACHERS: Final = 15
PUBLIC: Final = 500
TEST: Final = 297
AGGREGATOR: Final = "interactive-gnmax"
EPSILON: Final = 8.0
DELTA: Final = 1e-4


def run_demo(out: Path, screen: Screen) -> Report:
    """Run the demonstration and return what came out.

    Args:
        out: folder for the student, the picture and the logs; made if absent.
        screen: where the roles' lines go.

    Raises:
        ProcessError: if one of the processes fails.
    """
    began = time.monotonic()
    dealt = deal(digits(), len(HOSPITALS), public=PUBLIC, test=TEST)
    logs = out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pate-demo-") as scratch:
        place = Path(scratch)
        _write(place, dealt)
        labels = _campaign(place, out, logs, screen)
        evaluation = _evaluate(place, out, logs, screen)
    statement = PrivacyStatement.from_json((out / "student" / "privacy.json").read_text())
    accuracy = evaluation["accuracy"]
    if not isinstance(accuracy, float):
        raise TypeError("the evaluation printed no accuracy")
    picture = out / "campaign.png"
    report = Report(
        parties=len(HOSPITALS),
        teachers=len(HOSPITALS) * TEACHERS,
        labels_asked=statement.queries_asked,
        labels_answered=len(labels.rows),
        label_accuracy=label_accuracy(labels, dealt.public),
        student_accuracy=accuracy,
        nonprivate_accuracy=pooled_accuracy(dealt),
        majority_accuracy=majority_accuracy(dealt.test),
        epsilon=statement.epsilon,
        delta=statement.delta,
        unit=statement.unit,
        adjacency=statement.adjacency,
        observer=statement.observer,
        mechanism=AGGREGATOR,
        seconds=round(time.monotonic() - began, 1),
        files={
            "student": str(out / "student"),
            "picture": str(picture),
            "evaluation": str(out / "evaluation"),
            "logs": str(logs),
        },
    )
    draw(picture, report, labels, dealt.public)
    return report


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


def _write(place: Path, dealt: Deal) -> None:
    for name, records in zip(HOSPITALS, dealt.parties, strict=True):
        (place / name).mkdir()
        write_labelled(place / name / "records.npz", records)
    write_inputs(place / "public", dealt.public.inputs)
    write_labelled(place / "test.npz", dealt.test)


def _campaign(place: Path, out: Path, logs: Path, screen: Screen) -> LabelSet:
    port, student_port = free_port(), free_port()
    with Cast(screen, logs) as cast:
        cast.start(
            "server", "aggregator_server",
            "--aggregator", AGGREGATOR, "--public", str(place / "public.npz"),
            "--parties", ",".join(HOSPITALS), "--epsilon", str(EPSILON), "--delta", str(DELTA),
            "--port", str(port), "--student-port", str(student_port),
            "--home", str(place / "server"), "--linger", "60", "--json",
        )  # fmt: skip
        for name in HOSPITALS:
            cast.start(
                name, "party",
                "start", "--data", str(place / name), "--server", f"127.0.0.1:{port}",
                "--teachers", str(TEACHERS), "--home", str(place / "homes" / name), "--json",
            )  # fmt: skip
        student = out / "student"
        if student.exists():
            shutil.rmtree(student)
        cast.start(
            "student", "student",
            "train", "--server", f"127.0.0.1:{student_port}", "--public", str(place / "public.npz"),
            "--out", str(student), "--json",
        )  # fmt: skip
        cast.wait("server", "student", *HOSPITALS)
        exported = place / "labels.json"
        cast.start("labels", "aggregator_server", "export",
                   "--home", str(place / "server"), "--out", str(exported))  # fmt: skip
        cast.wait("labels")
    return LabelSet.from_json(exported.read_text())


def _evaluate(place: Path, out: Path, logs: Path, screen: Screen) -> dict[str, object]:
    with Cast(screen, logs) as cast:
        cast.start(
            "evaluation", "student",
            "evaluate", "--model", str(out / "student"), "--data", str(place / "test.npz"),
            "--out", str(out / "evaluation"), "--json",
        )  # fmt: skip
        return cast.wait("evaluation")["evaluation"]
