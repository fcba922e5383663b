"""An example package with a kind of teachers and a trainer, installed as its users would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from party.teachers.protocol import Labels, NotConformingError, check_kind
from party.teachers.training import kind_for
from pate.data.values import Dataset, Inputs
from pate.errors import DataError, UsageError
from pate.runtime import plugins
from simulation.datasets import digits
from student import weights
from student.training import train
from tests.support.student_samples import noisy_lesson, tumours
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites

EXAMPLE = Path(__file__).parent / "nearest_mean"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example package was installed into."""
    source = tmp_path_factory.mktemp("source") / "nearest_mean"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", target, source],
        check=True, capture_output=True,
    )  # fmt: skip
    return target


@pytest.fixture
def here(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process finds the example package, and forgets it again."""
    monkeypatch.syspath_prepend(str(installed))
    yield
    for name in [name for name in sys.modules if name.startswith("nearest_mean")]:
        del sys.modules[name]


@pytest.mark.usefixtures("here")
def test_the_example_is_a_kind_of_teachers() -> None:
    records = digits()
    kind = kind_for("nearest-mean", records.inputs)
    check_kind(kind, records.take(range(300)), records.inputs.take(range(300, 340)))
    teacher = kind.fit(records.take(range(300)), 0)
    right = teacher.predict(records.inputs.take(range(300, 900))) == records.labels[300:900]
    assert right.mean() > 0.7


@pytest.mark.usefixtures("here")
def test_a_kind_that_breaks_a_rule_is_told_which() -> None:
    from nearest_mean.teachers import Means, NearestMean

    class Crowd(Means):  # type: ignore[misc]
        def predict(self, inputs: Inputs) -> Labels:
            return np.full(len(inputs), len(inputs) % 2, dtype=np.int64)

    class Swayed(NearestMean):  # type: ignore[misc]
        def fit(self, shard: Dataset, seed: int) -> Crowd:
            known = super().fit(shard, seed)
            return Crowd(known.classes, known.means)

    records = digits()
    with pytest.raises(NotConformingError, match="only that query"):
        check_kind(Swayed("cpu"), records.take(range(99)), records.inputs.take(range(99, 101)))


@pytest.mark.usefixtures("here")
def test_the_example_is_a_trainer(tmp_path: Path) -> None:
    public, held_out = digits().take(range(900)), digits().take(range(900, 1797))
    student = train(noisy_lesson(public, 300, wrong=0.0), model="nearest-mean", seed=0)
    assert (student.predict(held_out.inputs) == held_out.labels).mean() > 0.7
    weights.save(student, tmp_path)
    assert "means.json" in json.loads((tmp_path / "model.json").read_text())["files"]
    again = weights.load(tmp_path)
    assert np.array_equal(again.predict(held_out.inputs), student.predict(held_out.inputs))

    description = json.loads((tmp_path / "model.json").read_text())
    description["files"] = {"../outside": "00"}
    (tmp_path / "model.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="plain name"):
        weights.load(tmp_path)


def test_without_the_package_its_names_are_unknown() -> None:
    with pytest.raises(UsageError, match="no model 'nearest-mean'; for images there are auto"):
        kind_for("nearest-mean", digits().inputs)
    with pytest.raises(UsageError, match="no model 'nearest-mean'; choose auto"):
        train(noisy_lesson(tumours()[0], 50, wrong=0.0), model="nearest-mean", seed=0)
    with pytest.raises(UsageError, match="no installed package offers"):
        plugins.load_plugin(plugins.TEACHERS, "nearest-mean")


def test_a_package_that_cannot_be_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declare(tmp_path, "broken", "broken = no_such_module:thing")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="'broken' of broken cannot be loaded"):
        kind_for("broken", digits().inputs)
    _declare(tmp_path, "other", "broken = json:loads")
    with pytest.raises(UsageError, match=r"several packages \(broken, other\)"):
        kind_for("broken", digits().inputs)


def test_what_is_no_kind_of_teachers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _declare(tmp_path, "odd", "odd = builtins:str")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match="returned a str without fit"):
        kind_for("odd", digits().inputs)


def _declare(place: Path, package: str, line: str) -> None:
    folder = place / f"{package}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{plugins.TEACHERS}]\n{line}\n")


@pytest.mark.slow
def test_parties_with_teachers_of_a_plugin_take_part(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONPATH", path)
    sites = Sites(tmp_path, ("north", "south")).deal()
    with Campaign(tmp_path / "campaign", sites, ("env",)) as campaign:  # of this environment
        server = campaign.serve(sites.public(0, 12), "--aggregator", "gnmax", parties="2")
        for name in sites.names:
            campaign.party(name, "--model", "nearest-mean")
        server.ends(0)
        assert server.result()["labels_released"] == 12
        stored = next(sites.home("north").rglob("*.means"))
        assert json.loads(stored.with_suffix(".json").read_text())["kind"] == "nearest-mean"
