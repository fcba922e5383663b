"""Publishing a student: an atomic folder, always with its privacy statement.

::

    OUT/
        model.json            description: classes, schema, preprocessing, architecture, hashes
        model.safetensors     weights of an image student
        forest.skops, ...     models of a student of a table, or of embeddings
        model.onnx            of images and embeddings: the same, for any runtime
        privacy.json          the server's privacy statement, byte for byte
        README.md             model card
        evaluation.json, .png, calibration.png    how good it is, if it was evaluated
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.errors import DataError, DiskError, SchemaError, UsageError
from pate.formats.labels import checked_statement
from pate.runtime.home import sweep_drafts, sync
from student import weights
from student.card import Provenance, promise_of, write_card
from student.evaluation.evaluate import Evaluation
from student.training import EMBEDDING_MODELS, IMAGE_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from student.evaluation.evaluate import AnyEvaluation
    from student.lesson import Student
    from student.onnx_graph import Written

PRIVACY: Final = "privacy.json"
_CHANGED: Final = "the encoder's folder is not what it was when the training began"


def check_out(out: Path, *, replace: bool = True) -> None:
    """Refuse, before training, a place where publishing would fail or overwrite anything else."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a folder to publish into")
    if out.is_dir() and any(out.iterdir()) and not (out / weights.DESCRIPTION).is_file():
        raise UsageError(f"{out} holds something that is not a student; name another folder")
    if not replace and (out / weights.DESCRIPTION).is_file():
        raise UsageError(
            f"{out} holds a student that was published before: name another folder, or replace it "
            "with --force"
        )
    with _writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()


@contextlib.contextmanager
def scratch(out: Path, *, replace: bool = True) -> Iterator[Path]:
    """Keep this process's temporary files next to ``out``, and remove them when the block ends.

    Libraries leave folders in the directory of temporary files. Those of an earlier, killed training
    for the same ``out`` are removed first. The folder is accessible only to the owner. See :func:`check_out`.
    """
    check_out(out, replace=replace)
    with _writing(out):
        sweep_drafts(out.parent, glob.escape(out.name))
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder.absolute())
    try:
        yield folder
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable
        shutil.rmtree(folder, ignore_errors=True)


def publish(
    student: Student,
    out: Path,
    *,
    privacy: str,
    provenance: Provenance,
    evaluation: AnyEvaluation | None = None,
    encoder: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Write a student and everything about it into ``out`` atomically, and return the names of the files.

    An earlier published student is replaced. The statement ``privacy`` is copied byte for byte. The
    ``encoder`` of a student of embeddings is to be in ``model.onnx``; ``say`` is called with a line if it is
    not.
    """
    if not privacy.strip():
        raise DataError("a student is not published without its privacy statement")
    statement = checked_statement(privacy)
    check_out(out)
    with _writing(out):
        draft = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
        try:
            onnx = _write_onnx(student, draft, encoder)
            _write_all(student, draft, statement, privacy, provenance, evaluation, onnx)
            draft.chmod(0o755)
            _swap(draft, out)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if onnx is not None and onnx.alone:
        say(f"model.onnx has the head only: {onnx.alone}")
    return sorted(path.name for path in out.iterdir())


def _write_onnx(student: Student, draft: Path, encoder: Path | None) -> Written | None:
    """Write a student's ONNX file, if it has that form."""
    if student.kind not in (*IMAGE_MODELS, *EMBEDDING_MODELS):
        return None
    from student import onnx_graph

    if not onnx_graph.can_write(student):
        return None
    path = draft / onnx_graph.FILE
    try:
        return onnx_graph.write(student, path, encoder)
    except (DataError, SchemaError):
        # Its public set was embedded by this folder: it changed since. The training is not lost by that.
        return replace(onnx_graph.write(student, path), alone=_CHANGED)


def _write_all(
    student: Student,
    draft: Path,
    statement: dict[str, object],
    privacy: str,
    provenance: Provenance,
    evaluation: AnyEvaluation | None,
    onnx: Written | None,
) -> None:
    training = {
        "campaign": provenance.campaign,
        "public_set": provenance.public_set,
        **(
            {"learnt_from": provenance.learnt_from}
            if provenance.learnt_from
            else {"labels": provenance.labels}
        ),
        **provenance.training,
    }
    weights.save(student, draft, training=training)
    (draft / PRIVACY).write_text(privacy, encoding="utf-8", newline="")
    card = write_card(student, provenance, statement, evaluation, onnx)
    (draft / "README.md").write_text(card, encoding="utf-8")
    if evaluation is not None:
        write_evaluation(evaluation, draft, promise_of(statement))


def write_evaluation(evaluation: AnyEvaluation, folder: Path, promise: str = "") -> None:
    """Write ``evaluation.json`` and, of one class, pictures with the guarantee into a folder."""
    from matplotlib import rc_context

    from student.evaluation.pictures import draw, draw_curves

    text = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False)
    (folder / "evaluation.json").write_text(text + "\n", encoding="utf-8")
    if not isinstance(evaluation, Evaluation):
        return
    # Names of classes and texts of a statement are untrusted: `$` would be parsed as a formula.
    with rc_context({"text.parse_math": False}):
        draw(evaluation, folder / "evaluation.png", promise=promise)
        if evaluation.scores is not None:
            draw_curves(evaluation, folder / "calibration.png", promise=promise)


def _swap(draft: Path, out: Path) -> None:
    """Move the finished folder to its place; two renames if an older student exists."""
    sync(draft)
    if not out.exists():
        draft.rename(out)
    elif not any(out.iterdir()):
        draft.replace(out)
    else:
        older = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.old."))
        out.replace(older)
        try:
            draft.rename(out)
        except OSError:
            older.rename(out)
            raise
        shutil.rmtree(older, ignore_errors=True)
    sync(out.parent)


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot be written"
        raise DiskError(f"the disk of {out} {what}: {error.strerror or error}") from error
