"""A published student in Python: its folder, and predictions of whatever a notebook has."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import CLASS
from pate.data.memory import inputs_in
from pate.data.schema import Schema
from pate.encoders.reading import Reader
from pate.errors import DataError, UsageError
from pate.formats.labels import checked_statement
from student import weights
from student.card import promise_of
from student.export import PRIVACY
from student.lesson import answer_in, decided, has_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pate.data.memory import Source
    from pate.data.values import Inputs
    from student.fit.rows import TableStudent
    from student.lesson import Student

_NO_STATEMENT: Final = "no privacy guarantee is known: the folder has no privacy.json"


class PublishedStudent:
    """A student with its privacy statement.

    Args:
        student: as trained or loaded.
        privacy: the text of its privacy statement; None: there is none.
        encoder: folder of the encoder of its inputs, for data at a path; None: there is none.

    Attributes:
        classes: names of the classes, in the order of the probabilities' columns.
        schema: the accepted inputs, in one line.
        statement: the fields of ``privacy.json`` by name: ``epsilon``, ``delta``, ``unit``, ``adjacency``,
            ``observer`` and others; empty if there is none.

    Raises:
        DataError: for a text that is no privacy statement.
    """

    def __init__(
        self, student: Student, privacy: str | None = None, encoder: Path | None = None
    ) -> None:
        self._student = student
        self._encoder = encoder
        self.classes = student.classes
        self.schema = student.schema
        self.statement: Mapping[str, object] = {} if privacy is None else checked_statement(privacy)

    def predict(self, data: Source) -> NDArray[np.generic]:
        """Return the predictions.

        Args:
            data: a frame or folder with the student's columns, by name; an array with as many columns, by
                place; images of its size; a torch data set.

        Returns:
            (n,) names of classes; of a student of several labels (n, labels) bool; of a number (n,) float64.

        Raises:
            SchemaError: if the inputs are of another kind.
            DataError: if nothing can be made of them.
        """
        inputs = self._inputs(data)
        if not has_classes(self._student):
            student: TableStudent = self._student  # type: ignore[assignment]  # the only one without
            if student.thresholds:
                chances = student.predict_probabilities(inputs)
                return np.asarray(chances >= np.asarray(student.thresholds))
            return student.predict_numbers(inputs)[0]
        chosen = decided(answer_in(self._student), self._student.predict_probabilities(inputs))
        return np.array(self.classes, dtype=np.str_)[chosen]

    def predict_proba(self, data: Source) -> NDArray[np.float32]:
        """Return (n, classes) probabilities, of several labels those of each; arguments as above."""
        if not has_classes(self._student) and not getattr(self._student, "thresholds", ()):
            raise UsageError("this student predicts a number: it has no probabilities of classes")
        return self._student.predict_probabilities(self._inputs(data))

    def _inputs(self, data: Source) -> Inputs:
        encoder = Reader.open(self._encoder)
        return inputs_in(data, schema=Schema.parse(self.schema), encoder=encoder)

    def __repr__(self) -> str:
        kind = f"a student of {len(self.classes)} classes"
        if answer_in(self._student) != CLASS and not has_classes(self._student):
            kind = "a student of labels or a number"
        promise = promise_of(self.statement) if self.statement else _NO_STATEMENT
        return f"{kind}, {Schema.parse(self.schema).in_words()}; {promise}"

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        return f"<p>{html.escape(repr(self))}</p>"


def load_student(folder: str | Path, *, encoder: str | Path | None = None) -> PublishedStudent:
    """Return the student that was published into a folder.

    A folder from anywhere is safe to open: nothing in it is a pickle or code, each file must have the hash in
    ``model.json``, and models are checked before they are used. It can still be a bad student.

    Args:
        folder: of ``pate-student train``.
        encoder: folder of the public encoder of its inputs, for predictions of images or texts at a path.

    Raises:
        DataError: if there is no student, or a file is missing, changed, or has forbidden content.
    """
    place = Path(folder)
    student = weights.load(place)
    privacy = None
    try:
        privacy = (place / PRIVACY).read_text(encoding="utf-8")
    except FileNotFoundError:
        pass  # a copy without it still predicts, and its text says that nothing is known
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{place / PRIVACY} cannot be read: {error}") from error
    return PublishedStudent(student, privacy, None if encoder is None else Path(encoder))
