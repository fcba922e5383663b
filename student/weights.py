"""A student on disk: ``model.json`` and its weights, and back; no pickle.

Images: ``model.safetensors``. Tables and embeddings: one skops file per model. ``model.json`` describes the
student in full and holds the SHA-256 of each weight file.
"""

from __future__ import annotations

import hashlib
import json
import warnings
import zipfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from pate.answers import CLASS, LABELS, NUMBER, answer_of, points_of
from pate.data.skops_file import LARGEST, check_skops
from pate.data.values import Table
from pate.errors import DataError, SchemaError, UsageError
from pate.exact import in_text, parse, read, write
from student.fit.encoding import EmbeddedRows, Encoding, NumberColumn
from student.fit.rows import HEAD, KIND, TableStudent
from student.training import IMAGE_MODELS, MODELS, check_files, is_plugged, plugged

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pate.data.values import Column
    from student.fit.trees import Model
    from student.lesson import Student

FORMAT: Final = "pate-student/1"
DESCRIPTION: Final = "model.json"
IMAGE_WEIGHTS: Final = "model.safetensors"

#: Allowed types of a table model in addition to those that skops trusts. skops excludes trees since
#: their raw indices are followed unchecked; `_check_tree` and `_check_boosting` check them.
_TREES: Final = [
    "sklearn.tree._tree.Tree",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
]
_MODELS: Final = {
    "forest": "RandomForestClassifier",
    "logistic": "LogisticRegression",
    "boosting": "HistGradientBoostingClassifier",
    HEAD: "LogisticRegression",
}
#: The models of a student of labels, of noisy counts or dense sums, and of rounds.
_SETS: Final = (("forest", "logistic"), ("boosting",), ("boosting", "logistic"))
#: Those of a student of embeddings.
_HEADS: Final = ((HEAD,),)

#: Largest size of a description in bytes.
_LONGEST: Final = 2**26

Fields: TypeAlias = dict[str, object]


def save(student: Student, folder: Path, *, training: Mapping[str, object] | None = None) -> Fields:
    """Write weights and ``model.json``, with facts of the training, into a folder; return its content."""
    if student.kind not in MODELS:
        stored = check_files(student.kind, plugged(student.kind).store(student))
        files = {name: _write(folder / name, content) for name, content in stored.items()}
    elif isinstance(student, TableStudent):
        files = _save_tables(student, folder)
    else:
        files = _save_images(student, folder)
    fields: Fields = {
        "format": FORMAT,
        "kind": student.kind,
        "classes": list(student.classes),
        "schema": student.schema,
        **_describe(student),
        "training": dict(training or {}),
        "files": files,
    }
    text = json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
    return fields


def load(folder: Path) -> Student:
    """Return the student that :func:`save` wrote; image students are on the CPU."""
    found = read_description(folder)
    if found.kind in IMAGE_MODELS:
        return _load_images(folder, found)
    if found.kind in (KIND, HEAD):
        return _load_tables(folder, found)
    if not is_plugged(found.kind):
        raise DataError(f"{folder} holds a student of the unknown kind {found.kind!r:.80}")
    return _load_plugged(folder, found)


@dataclass(frozen=True)
class Described:
    """The common part of ``model.json``."""

    kind: str
    classes: tuple[str, ...]
    schema: str
    files: Mapping[str, str]
    # all other fields, by name; not checked
    more: Fields = field(default_factory=dict, metadata=in_text(absent=True))

    def __post_init__(self) -> None:
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise DataError("it must name at least two distinct classes")


def read_description(folder: Path) -> Described:
    """Return the content of ``model.json``, with its common part checked."""
    path = folder / DESCRIPTION
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{folder} has no student: cannot read {path.name}") from error
    what = f"{path} does not describe a student"
    more = parse(content, most=_LONGEST, error=DataError, what=what, form=FORMAT)
    common = {
        name: more.pop(name) for name in ("kind", "classes", "schema", "files") if name in more
    }
    return replace(read(Described, common, error=DataError, what=what), more=more)


def _describe(student: Student) -> Fields:
    if student.kind not in MODELS:
        return {}
    if isinstance(student, TableStudent):
        described: Fields = {"constant": student.constant}
        if isinstance(student.encoding, Encoding):  # embeddings are described by their schema
            columns = student.encoding.to_json()
            described = {"preprocessing": {"columns": columns}, **described}
        if student.answer != CLASS:
            described |= {"answer": student.answer, "thresholds": list(student.thresholds)}
        return described
    from student.fit.network import ImageStudent

    assert isinstance(student, ImageStudent)  # noqa: S101  # there are two kinds
    return {
        "architecture": write(student.architecture),
        "preprocessing": {"layout": "channels first", "scale": 1 / 127.5, "offset": -1.0},
    }


def _save_images(student: Student, folder: Path) -> dict[str, str]:
    from safetensors.torch import save as to_bytes

    from student.fit.network import ImageStudent

    if not isinstance(student, ImageStudent):
        raise TypeError(f"cannot save a {type(student).__name__}")
    state = {name: part.cpu().contiguous() for name, part in student.network.state_dict().items()}
    return {IMAGE_WEIGHTS: _write(folder / IMAGE_WEIGHTS, to_bytes(state))}


def _save_tables(student: TableStudent, folder: Path) -> dict[str, str]:
    import skops.io

    files = {}
    for name, model in student.models.items():
        # Without compression, so that a reader knows the unpacked size.
        content: bytes = skops.io.dumps(model, compression=zipfile.ZIP_STORED)
        check_skops(content)
        files[f"{name}.skops"] = _write(folder / f"{name}.skops", content)
    return files


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def _read(folder: Path, name: str, found: Described, most: int | None = None) -> bytes:
    try:
        if most is not None and (folder / name).stat().st_size > most:
            raise DataError(f"{folder / name} is too large for a model")
        content = (folder / name).read_bytes()
    except OSError as error:
        raise DataError(f"{folder / name} is missing: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != found.files.get(name):
        raise DataError(f"{folder / name} is not the file that {DESCRIPTION} describes")
    return content


def _load_images(folder: Path, found: Described) -> Student:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    from student.fit.network import Architecture, ImageStudent, Network

    what = f"{folder / DESCRIPTION}: its architecture"
    described = found.more.get("architecture")
    architecture = read(Architecture, described, error=DataError, what=what)
    if architecture.classes != len(found.classes):
        raise DataError(f"{folder / DESCRIPTION}: the architecture has other classes")
    with torch.device("meta"):
        network = Network(architecture)
    try:
        state = from_bytes(_read(folder, IMAGE_WEIGHTS, found))
        network.load_state_dict(state, strict=True, assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise DataError(
            f"{folder / IMAGE_WEIGHTS} does not hold the weights of the model"
        ) from error
    if not all(torch.isfinite(part).all() for part in state.values()):
        raise DataError(f"{folder / IMAGE_WEIGHTS} holds weights that are not finite numbers")
    return ImageStudent(architecture, network.eval(), found.classes, found.kind)


def _load_plugged(folder: Path, found: Described) -> Student:
    # Names are checked before any file is opened: a description may come from anywhere.
    check_files(found.kind, dict.fromkeys(found.files, b""))
    files = {name: _read(folder, name, found) for name in found.files}
    return plugged(found.kind).restore(files, found.classes, found.schema)


def _load_tables(folder: Path, found: Described) -> Student:
    classes, encoding = found.classes, _encoding_of(folder, found)
    constant = found.more.get("constant")
    if constant is not None and (type(constant) is not int or not 0 <= constant < len(classes)):
        raise DataError(f"{folder / DESCRIPTION}: no class has the number {constant!r}")
    answer, least = _answer_of(folder, found)
    each = len(least) or (len(classes) - 1 if answer == NUMBER and len(classes) > 2 else 0)
    several = (tuple(f"label-{at}" for at in range(each)),)
    sets: tuple[tuple[str, ...], ...] = (
        several if each else _sets(found) if constant is None else ((),)
    )
    for names in sets:
        if set(found.files) == {f"{name}.skops" for name in names}:
            break
    else:
        raise DataError(f"{folder / DESCRIPTION} names the files {sorted(found.files)}")
    width = _width(encoding)
    known = 2 if each else len(classes)
    models = {name: _load_model(folder, name, found, width, known) for name in names}
    return TableStudent(encoding, models, constant, classes, found.kind, answer, least)


def _sets(found: Described) -> tuple[tuple[str, ...], ...]:
    return _HEADS if found.kind == HEAD else _SETS


def _encoding_of(folder: Path, found: Described) -> Encoding | EmbeddedRows:
    if found.kind == HEAD:
        try:
            return EmbeddedRows(found.schema)
        except SchemaError as error:
            raise DataError(f"{folder / DESCRIPTION}: {error}") from error
    preprocessing = found.more.get("preprocessing")
    if not isinstance(preprocessing, dict):
        raise DataError(f"{folder / DESCRIPTION} lacks its preprocessing")
    return Encoding.from_json(preprocessing.get("columns"))


def _width(encoding: Encoding | EmbeddedRows) -> int:
    if isinstance(encoding, EmbeddedRows):
        return encoding.width
    return int(encoding.encode(_no_rows(encoding)).shape[1])


def _answer_of(folder: Path, found: Described) -> tuple[str, tuple[float, ...]]:
    """Return what a student answers with, and its thresholds, after checking them."""
    said, least = found.more.get("answer", CLASS), found.more.get("thresholds", [])
    where = folder / DESCRIPTION
    try:
        answer = answer_of(str(said))
        if answer.name == NUMBER:
            points_of(found.classes)
    except UsageError as error:
        raise DataError(f"{where}: {error}") from error
    wanted = len(found.classes) if answer.name == LABELS else 0
    if (
        not isinstance(least, list)
        or len(least) != wanted
        or not all(type(each) is float and 0 <= each <= 1 for each in least)
        or (not answer.one_hot and found.more.get("constant") is not None)
    ):
        raise DataError(f"{where}: its thresholds do not fit its labels")
    return str(answer), tuple(least)


def _load_model(folder: Path, name: str, found: Described, width: int, classes: int) -> Model:
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException

    path = folder / f"{name}.skops"
    content = _read(folder, path.name, found, most=LARGEST)
    try:
        check_skops(content)
    except DataError as error:
        raise DataError(f"{path} is not a skops file of a model: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # written by another scikit-learn; checked below
            loaded = skops.io.loads(content, trusted=_TREES)
    except UntrustedTypesFoundException as error:
        raise DataError(f"{path} holds types that a student has no use for") from error
    except Exception as error:  # skops lets the errors of many parsers through
        raise DataError(f"{path} is not a skops file of a model: {error}") from error
    kind = _MODELS.get(name, _MODELS[HEAD if found.kind == HEAD else "boosting"])  # of a label
    if type(loaded).__name__ != kind or not type(loaded).__module__.startswith("sklearn."):
        raise DataError(f"{path} holds a {type(loaded).__name__}, not a {kind}")
    known = np.asarray(loaded.classes_)
    if loaded.n_features_in_ != width or not set(known.tolist()) <= set(range(classes)):
        raise DataError(f"{path} has other features or classes than {DESCRIPTION} says")
    if kind == _MODELS[HEAD]:
        _check_linear(path, loaded, width, len(known))
    for tree in getattr(loaded, "estimators_", []):
        _check_tree(path, tree.tree_, width, len(known))
    if kind == _MODELS["boosting"] and not _is_sound_boosting(loaded, width, len(known)):
        raise DataError(f"{path} holds a tree whose nodes point outside of it")
    model: Model = loaded
    return model


def _check_linear(path: Path, model: object, width: int, classes: int) -> None:
    """Refuse weights of another shape, or that are not finite."""
    rows = 1 if classes == 2 else classes
    weights, bias = (np.asarray(vars(model).get(name)) for name in ("coef_", "intercept_"))
    sound = weights.shape == (rows, width) and bias.shape == (rows,)
    if (
        not sound
        or not all(part.dtype.kind == "f" for part in (weights, bias))
        or not (np.isfinite(weights).all() and np.isfinite(bias).all())
    ):
        raise DataError(f"{path} holds weights of another shape, or that are not finite")


def _check_tree(path: Path, tree: object, width: int, classes: int) -> None:
    """Refuse a tree whose indices are out of bounds or cyclic."""
    left, right, feature, value, features = (
        np.asarray(getattr(tree, name))
        for name in ("children_left", "children_right", "feature", "value", "n_features")
    )
    count = len(left)
    here = np.arange(count)
    leaf = left == -1
    sound = (
        count > 0
        and len(right) == len(feature) == count
        and int(features) == width
        and value.shape == (count, 1, classes)
        and bool(np.isfinite(value).all())
        and bool((right[leaf] == -1).all())
        # scikit-learn numbers a child after its parent, so there is no cycle.
        and bool(((left > here) & (left < count))[~leaf].all())
        and bool(((right > here) & (right < count))[~leaf].all())
        and bool(((feature >= 0) & (feature < width))[~leaf].all())
    )
    if not sound:
        raise DataError(f"{path} holds a tree whose nodes point outside of it")


def _is_sound_boosting(model: object, width: int, classes: int) -> bool:
    """Return whether predicting stays within the arrays of boosted trees, and terminates."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    attributes = vars(model)
    trees_each = 1 if classes == 2 else classes
    iterations = attributes.get("_predictors")
    baseline = np.asarray(attributes.get("_baseline_prediction"))
    bins = getattr(attributes.get("_bin_mapper"), "is_categorical_", None)
    if (
        not isinstance(iterations, list)
        or attributes.get("n_trees_per_iteration_") != trees_each
        or baseline.dtype != np.float64
        or baseline.shape != (1, trees_each)
        or attributes.get("_preprocessor") is not None
        or attributes.get("_in_fit")
        or bins is None
        # The students' rows are numbers; categories would need bit tables.
        or np.any(np.asarray(bins))
        or not all(isinstance(trees, list) and len(trees) == trees_each for trees in iterations)
    ):
        return False
    for tree in (tree for trees in iterations for tree in trees):
        nodes = np.asarray(getattr(tree, "nodes", None))
        if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1 or not len(nodes):
            return False
        inner = nodes["is_leaf"] == 0
        # scikit-learn numbers a child after its parent, so there is no cycle.
        ahead = [
            (nodes[side] > np.arange(len(nodes))) & (nodes[side] < len(nodes))
            for side in ("left", "right")
        ]
        sound = ahead[0] & ahead[1] & (nodes["feature_idx"] >= 0) & (nodes["feature_idx"] < width)
        if not sound[inner].all() or nodes["is_categorical"].any():
            return False
        if not np.isfinite(nodes["value"]).all():
            return False
    return True


def _no_rows(encoding: Encoding) -> Table:
    empty: tuple[Column, ...] = tuple(
        np.zeros(0) if isinstance(column, NumberColumn) else np.zeros(0, dtype=np.str_)
        for column in encoding.columns
    )
    return Table(tuple(column.name for column in encoding.columns), empty)
