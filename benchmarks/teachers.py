"""``python -m benchmarks.teachers``: 250 MNIST teachers, trained and voting, against a plain loop.

Five parties of 50 teachers each, about 240 of the 60,000 training images a teacher, vote on the
first 9,000 test images. The plain loop is the same model without what the house does: one teacher
after the other is fitted, and answers by itself. It is timed twice over the same teachers: with the
queries' features kept from one teacher to the next, and with features made anew for each teacher.

Seconds are of processor time, so that what else the machine does is not counted; with ``--device
cuda`` they are of the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.field import data_folder
from party.teachers.device import pick_device
from party.teachers.image_features import image_features
from party.teachers.protocol import AnswersTogether
from party.teachers.registry import kind_for
from party.teachers.shards import assign_shards
from party.teachers.training import train_ensemble
from pate.accounting.account import account
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.units import Neighbours
from pate.data.read import read_dataset
from pate.storage.table_cache import cached_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.teachers.training import Ensemble
    from pate.data.values import Dataset, Inputs
    from pate.votes import Counts

PARTIES, TEACHERS, QUERIES = 5, 50, 9_000
DELTA = 1e-5
#: Confident-GNMax: threshold, sigma1, sigma2, queries. The first is that of the 2018 paper.
SETTINGS = ((200.0, 150.0, 40.0, 640), (150.0, 150.0, 40.0, 420), (150.0, 200.0, 35.0, 450))
#: Queries voted on at once, as the house does for images of this size.
AT_ONCE = 2_600


def now(device: str) -> float:
    """Return the seconds that count; see above."""
    return time.process_time() if pick_device(device) == "cpu" else time.perf_counter()


@dataclass
class Clock:
    """Seconds spent on training, and on votes."""

    training: float = 0.0
    votes: float = 0.0

    def total(self) -> float:
        return self.training + self.votes


def parties(data: Dataset) -> list[tuple[Dataset, bytes]]:
    """Return each party's records and key: the training images dealt out at random."""
    order = np.random.default_rng(0).permutation(len(data))
    return [
        (data.take(rows), bytes([number]) * 32)
        for number, rows in enumerate(np.array_split(order, PARTIES))
    ]


def house(
    held: list[tuple[Dataset, bytes]], queries: Inputs, device: str
) -> tuple[Counts, Clock, Ensemble]:
    """Return all votes as parties make them, teachers stored and all, and the first ensemble."""
    first: Ensemble | None = None
    clock, votes = Clock(), np.zeros((len(queries), 10), dtype=np.int64)
    for records, key in held:
        image_features.cache_clear()  # parties are different machines
        with tempfile.TemporaryDirectory() as home:
            began = now(device)
            ensemble = train_ensemble(
                records,
                teachers=TEACHERS,
                model="auto",
                device=device,
                home=Path(home),
                key=key,
                progress=lambda *_: None,
            )
            clock.training += now(device) - began
        first = first or ensemble
        began = now(device)
        votes += ensemble.vote(queries, records.classes)
        clock.votes += now(device) - began
    assert first is not None
    return votes, clock, first


def loop(
    held: list[tuple[Dataset, bytes]], queries: Inputs, few: int, device: str, *, keep: bool
) -> tuple[NDArray[np.int64], Clock]:
    """Return what the first ``few`` teachers of the first party answer, one after the other.

    With ``keep`` the queries' features are made beforehand, and only read by each teacher.
    """
    (records, key), *_ = held
    kind = kind_for("auto", records.inputs, "cpu")
    hashes = records.row_hashes()
    shards = assign_shards(records, TEACHERS, key, row_hashes=hashes)
    order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
    pieces = [
        queries.take(range(start, min(start + AT_ONCE, len(queries))))
        for start in range(0, len(queries), AT_ONCE)
    ]
    clock, answers = Clock(), np.zeros((few, len(queries)), dtype=np.int64)
    fitted = []
    for number in range(few):
        shard = records.take(order[shards[order] == number])
        began = now(device)
        fitted.append(kind.fit(shard, 0))
        clock.training += now(device) - began
    at = 0
    for piece in pieces:
        if keep:
            image_features.cache_clear()
            fitted[0].predict(piece)
        for number, teacher in enumerate(fitted):
            if not keep:
                image_features.cache_clear()
            began = now(device)
            answers[number, at : at + len(piece)] = teacher.predict(piece)
            clock.votes += now(device) - began
        at += len(piece)
    return answers, clock


def costs(votes: Counts, labels: NDArray[np.int64]) -> list[dict[str, object]]:
    """Return what Confident-GNMax costs with each setting, and how right its labels are."""
    found = []
    draw = np.random.default_rng(0)
    for threshold, sigma1, sigma2, queries in SETTINGS:
        rows = votes[:queries]
        setting = GaussianSetting(
            label=Gaussian(sigma2), check=Gaussian(sigma1), threshold=threshold
        )
        paid = account(
            rows,
            setting,
            delta=DELTA,
            neighbours=Neighbours(),
            tables=cached_table,
            bounds=("paper-2018", "theorem6", "sharp"),
        )
        rights = []
        for _ in range(100):
            open_ = rows.max(axis=1) + draw.normal(0, sigma1, queries) >= threshold
            noisy = rows + draw.normal(0, sigma2, rows.shape)
            rights.append((noisy.argmax(axis=1) == labels[:queries])[open_].mean())
        found.append(
            {
                "threshold": threshold,
                "sigma1": sigma1,
                "sigma2": sigma2,
                "queries": queries,
                "answered": round(paid.answered, 1),
                "label_accuracy": round(float(np.mean(rights)), 4),
                "epsilon": {
                    name: {
                        "classical": round(figures.classical, 3),
                        "improved": round(figures.improved, 3),
                    }
                    for name, figures in paid.figures.items()
                },
            }
        )
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path, help="write the figures to this file")
    options.add_argument("--votes", type=Path, help="write the (9000, 10) votes to this .npy file")
    options.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options.add_argument(
        "--loop-teachers", type=int, default=5, help="teachers that the slow loops are timed on"
    )
    given = options.parse_args()
    raw = data_folder() / "mnist" / "MNIST" / "raw"
    train = read_dataset(raw)
    test = read_dataset(raw / "t10k-images-idx3-ubyte.gz").take(range(QUERIES))
    held, few = parties(train), min(given.loop_teachers, TEACHERS)
    kind_for("auto", train.inputs).fit(train.take(range(100)), 0)  # tables of the features

    votes, clock, ensemble = house(held, test.inputs, given.device)
    if given.votes is not None:
        np.save(given.votes, votes)
    answers, anew = loop(held, test.inputs, few, given.device, keep=False)
    _, kept = loop(held, test.inputs, few, given.device, keep=True)
    kind = kind_for("auto", train.inputs)
    assert isinstance(kind, AnswersTogether)
    for _ in range(2):  # the second time, the features are kept, and the answers alone are timed
        began = now(given.device)
        together = kind.predict_many(ensemble.members, len(train.classes), test.inputs)
        products = now(given.device) - began
    share = PARTIES * TEACHERS / few
    # A loop that keeps features still makes those of the queries once.
    once = (anew.votes - kept.votes) / few
    slow, quick = share * anew.total(), share * kept.total() + once
    found = {
        "parties": PARTIES,
        "teachers": PARTIES * TEACHERS,
        "queries": QUERIES,
        "seconds": {
            "house": round(clock.total(), 1),
            "house_training": round(clock.training, 1),
            "house_votes": round(clock.votes, 1),
            "house_answers_from_kept_features": round(PARTIES * products, 1),
            "loop": round(slow, 1),
            "loop_keeping_features": round(quick, 1),
            "loop_votes_keeping_features": round(share * kept.votes, 1),
        },
        "loops_timed_on_teachers": few,
        "times_faster": {
            "than_loop": round(slow / clock.total(), 1),
            "than_loop_keeping_features": round(quick / clock.total(), 2),
            "answers_from_kept_features": round(share * kept.votes / PARTIES / products, 1),
        },
        "cells_that_differ": int((together[:few] != answers).sum()),
        "cells_compared": int(answers.size),
        "accuracy": {
            "teacher": round(
                float(votes[np.arange(QUERIES), test.labels].mean()) / (PARTIES * TEACHERS), 4
            ),
            "plurality": round(float((votes.argmax(axis=1) == test.labels).mean()), 4),
        },
        "confident_gnmax": costs(votes, test.labels),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
