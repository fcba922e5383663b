"""Training of a party's teachers, and their votes."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from party.teachers.constant import Constant
from party.teachers.protocol import NO_OPINION, AnswersTogether, FitsTogether
from party.teachers.registry import kind_for
from party.teachers.schema import schema_of
from party.teachers.several import Several, votes_of
from party.teachers.shards import assign_shards
from party.teachers.store import load_teacher, save_teacher
from pate.answers import BALANCED, CLASS, LABELS
from pate.codes import AXES
from pate.data.checks import require_teachable, require_trainable
from pate.data.values import Table
from pate.errors import SchemaError
from pate.features.axes import Axes
from pate.features.space import space_over
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Literal

    from numpy.typing import NDArray

    from party.teachers.protocol import Kind, Shard, Teacher
    from party.teachers.schema import EmbeddingSchema, ImageSchema, TableSchema
    from pate.codes import Code
    from pate.data.values import Dataset, Inputs
    from pate.votes import Counts

#: Cells (pixels, or cells of a table) processed at once; bounds the memory of a vote.
_CELLS_AT_ONCE: Final = 1 << 21
_ROWS_AT_ONCE: Final = 4096


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A party's k teachers.

    Attributes:
        members: the teachers, by number of their shard.
        classes: the party's class list.
        unit: ``record``, or ``patient`` if groups share a shard.
        schema: one line that describes the inputs that the teachers take.
        fingerprint: 32 bytes that change when the data or the settings do.
        answer: what they say, ``class`` or ``labels``.
    """

    members: tuple[Teacher, ...]
    classes: tuple[str, ...]
    unit: Literal["record", "patient"]
    schema: str
    fingerprint: bytes
    _takes: ImageSchema | TableSchema | EmbeddingSchema
    _key: bytes
    _kind: Kind
    answer: str = CLASS

    @property
    def teachers(self) -> int:
        """k, the number of teachers."""
        return len(self.members)

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs as the teachers see them: only their columns, in their order.

        Raises:
            SchemaError: if the inputs are not of the kind that the teachers take.
        """
        found = self._takes.conform(inputs)
        return found.plain() if isinstance(found, Table) else found

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        """Return how many teachers answer each class.

        Args:
            inputs: n queries.
            classes: the campaign's m classes; those that the party lacks get no votes, except from
                teachers of empty shards.

        Returns:
            (n, m) int64; each row sums to k.

        Raises:
            SchemaError: if a class of the party is not in ``classes``, or the queries are not of
                the kind that the teachers take.
        """
        columns = columns_of(self.classes, classes)
        queries = self.conform(inputs)
        votes = np.zeros((len(queries), len(classes)), dtype=np.int64)
        for rows, chunk in self._chunks(queries):
            for number, answers in enumerate(self._answers(chunk)):
                idle = idle_column(self._key, number, len(classes))
                votes[rows, np.where(answers == NO_OPINION, idle, columns[answers])] += 1
        return votes

    def vote_labels(self, inputs: Inputs, classes: Sequence[str], most: int) -> Counts:
        """Return how many teachers cast each label.

        Args:
            inputs: n queries.
            classes: the campaign's m labels; those that the party lacks get no votes.
            most: T, the most labels that each teacher casts for a query.

        Returns:
            (n, m) int64; each row sums to at most T k.

        Raises:
            SchemaError: as :meth:`vote`.
        """
        columns = columns_of(self.classes, classes)
        queries = self.conform(inputs)
        votes = np.zeros((len(queries), len(classes)), dtype=np.int64)
        for rows, chunk in self._chunks(queries):
            votes[rows[:, None], columns] = votes_of(self.members, chunk, len(columns), most)
        return votes

    def vote_once(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        """Return what all teachers cast in one release; see :class:`party.teachers.averaged.Averaged`.

        A teacher of this kind says one class an input, and no more: that is what it is sure of.
        """
        if code.name != AXES:
            if code.answer.name == BALANCED:
                raise SchemaError(
                    "balanced votes need teachers that say how probable a class is: start without --model"
                )
            return self.vote(public.take(list(rows)), classes)
        columns = columns_of(self.classes, classes)
        seen = self.conform(public)
        axes = Axes.fit(space_over(seen).embed(seen), rows)
        said = np.concatenate([self._answers(chunk) for _, chunk in self._chunks(seen)], axis=1)
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        for answers in said:
            known = answers != NO_OPINION
            scores = np.zeros((len(seen), len(classes)))
            scores[known, columns[answers[known]]] = 1.0
            if known.any():
                votes += axes.array(axes.reading @ scores, scores.mean(axis=0))
        return votes

    def _chunks(self, queries: Inputs) -> Iterator[tuple[NDArray[np.int64], Inputs]]:
        """Yield rows and queries in portions of bounded memory."""
        step = _rows_at_once(self._takes)
        for start in range(0, len(queries), step):
            chunk = queries.take(range(start, min(start + step, len(queries))))
            yield np.arange(start, start + len(chunk)), chunk

    def _answers(self, queries: Inputs) -> NDArray[np.int64]:
        """Return (k, n) int64: each teacher's class for each query, or :data:`NO_OPINION`."""
        if isinstance(self._kind, AnswersTogether):
            return self._kind.predict_many(self.members, len(self.classes), queries)
        return np.stack([member.predict(queries) for member in self.members])


def columns_of(own: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the campaign's column of each of the party's classes.

    Raises:
        SchemaError: if the campaign lacks one.
    """
    place = {name: at for at, name in enumerate(classes)}
    unknown = [name for name in own if name not in place]
    if unknown:
        raise SchemaError(
            f"our data has classes that the campaign lacks: {', '.join(unknown)}; "
            f"the campaign's are {', '.join(classes)}"
        )
    return np.array([place[name] for name in own], dtype=np.int64)


def idle_column(key: bytes, number: int, classes: int) -> int:
    """Return the column of a teacher without records; see :class:`Constant`."""
    return _derive(key, f"idle {number}") % classes


class Described(Protocol):
    """What is known of a kind of teachers in a fingerprint."""

    @property
    def name(self) -> str:
        """The kind's name."""

    @property
    def version(self) -> str:
        """A version that changes when teachers of this kind would change."""


def train_ensemble(
    dataset: Dataset,
    *,
    teachers: int,
    model: str,
    device: str,
    home: Path,
    key: bytes,
    progress: Callable[[int, int], None],
    few_fit: bool = False,
) -> Ensemble:
    """Return the party's teachers, training those that are not stored yet.

    A teacher is stored as soon as it is trained, so that a killed process continues with the rest.
    Stored teachers are used again as long as data and settings are the same; teachers of other data
    or settings are removed. A teacher depends only on its shard's records and its number, not on
    their order in the file.

    Args:
        dataset: the party's records.
        teachers: k.
        model: one of :data:`party.teachers.registry.MODELS`.
        device: ``auto``, ``cpu`` or ``cuda``.
        home: the party's state directory; teachers are in ``teachers`` below it.
        key: the party's secret that decides shards and seeds, at most 64 bytes.
        progress: called with the number of teachers done and k: first with those that were stored.
        few_fit: whether fewer records than teachers, or one class only, are no error: a shard without
            records, or of one class, has a teacher all the same.

    Raises:
        UsageError: if the model or device does not fit.
        DataError: if the data has one class only, or fewer records or groups than teachers, unless
            ``few_fit``.
        DiskError: if teachers cannot be stored.
    """
    (require_teachable if few_fit else require_trainable)(dataset, teachers)
    kind = kind_for(model, dataset.inputs, device)
    if dataset.kind == LABELS:
        kind = Several(kind)
    hashes = dataset.row_hashes()
    fingerprint = digest_of(dataset, hashes, teachers, kind, key)
    folder = _current_folder(home / "teachers", fingerprint)
    shards = assign_shards(dataset, teachers, key, row_hashes=hashes)
    # By hash: the order of training must not depend on positions in the file.
    order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
    members: dict[int, Teacher] = {}
    for number in range(teachers):
        stored = load_teacher(folder, number, kind)
        if stored is not None:
            members[number] = stored
    progress(len(members), teachers)  # stored teachers are no measure of training speed
    missing = {
        number: (order[shards[order] == number], _derive(key, f"teacher {number}"))
        for number in range(teachers)
        if number not in members
    }
    for number, teacher in _fit(kind, dataset, missing):
        reach("teacher-trained")
        save_teacher(folder, number, kind, teacher)
        members[number] = teacher
        progress(len(members), teachers)
    return Ensemble(
        members=tuple(members[number] for number in range(teachers)),
        classes=dataset.classes,
        unit="record" if dataset.groups is None else "patient",
        schema=dataset.inputs.schema(),
        fingerprint=fingerprint,
        _takes=schema_of(dataset.inputs),
        _key=key,
        _kind=kind,
        answer=dataset.kind,
    )


def _fit(kind: Kind, dataset: Dataset, shards: dict[int, Shard]) -> Iterator[tuple[int, Teacher]]:
    """Yield the number and teacher of each shard, in order."""
    if dataset.kind == CLASS and len(np.unique(dataset.labels)) < 2:
        # Nothing to learn from, in any shard.
        for number, (rows, _) in shards.items():
            yield number, Constant.of(dataset.labels[rows]) or Constant(NO_OPINION)
        return
    if isinstance(kind, FitsTogether):
        together = kind.fit_many(dataset, list(shards.values()))
        for (number, (rows, _)), teacher in zip(shards.items(), together, strict=True):
            yield number, Constant.of(dataset.labels[rows]) or teacher
        return
    for number, (rows, seed) in shards.items():
        if dataset.kind == LABELS:
            yield number, kind.fit(dataset.take(rows), seed)
            continue
        yield number, Constant.of(dataset.labels[rows]) or kind.fit(dataset.take(rows), seed)


def digest_of(
    dataset: Dataset, hashes: Sequence[bytes], teachers: int, kind: Described, key: bytes
) -> bytes:
    """Return the SHA-256 digest of everything that determines the teachers."""
    whole = hashlib.sha256(b"pate teachers v1\0")
    settings = [dataset.inputs.schema(), str(teachers), kind.name, kind.version, *dataset.classes]
    settings.append("record" if dataset.groups is None else "patient")
    for text in settings:
        whole.update(hashlib.sha256(text.encode()).digest())
    whole.update(hashlib.blake2b(b"fingerprint", key=key, digest_size=32).digest())
    if dataset.groups is None:
        records = sorted(hashes)
    else:
        groups = dataset.groups.tolist()
        records = sorted(
            row + hashlib.sha256(group.encode()).digest()
            for row, group in zip(hashes, groups, strict=True)
        )
    for record in records:
        whole.update(record)
    return whole.digest()


def _current_folder(home: Path, fingerprint: bytes) -> Path:
    """Return the folder of these teachers, and remove other or incomplete ones."""
    folder = private_directory(home / fingerprint.hex()[:32])
    for other in home.iterdir():
        if other != folder and re.fullmatch("[0-9a-f]{32}", other.name):
            shutil.rmtree(other, ignore_errors=True)
    for unfinished in folder.glob(".*"):
        with contextlib.suppress(OSError):
            unfinished.unlink()
    return folder


def _derive(key: bytes, purpose: str) -> int:
    """Return 63 bits that depend only on the key and the purpose."""
    digest = hashlib.blake2b(purpose.encode(), key=key, digest_size=8, person=b"pate teachers")
    return int.from_bytes(digest.digest(), "big") >> 1


def _rows_at_once(takes: ImageSchema | TableSchema | EmbeddingSchema) -> int:
    cells = takes.cells
    return max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // cells))
