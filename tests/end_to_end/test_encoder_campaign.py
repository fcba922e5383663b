"""A campaign over images of any sizes, by records that vote, with masked sums and a tiny encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from aggregator_server.ledger.store.place import place_of
from aggregator_server.ledger.verify import read_campaign
from aggregator_server.results.report import LEDGER_FILE, describe
from aggregator_server.results.statement import privacy_statement
from pate.encoders.encoder import read_description
from pate.formats.privacy_statement import PrivacyStatement
from pate.runtime.screen import Screen
from simulation.datasets import digits
from simulation.options import SimulationOptions
from simulation.simulate import run_simulation
from tests.support.encoders import tiny_encoders as tiny

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

#: Records of each class, of two digits that a random projection tells apart.
_EACH = 100


def digit_folders(folder: Path) -> Path:
    """Class folders of real digits, each image in a size of its own."""
    records = digits()
    pixels = records.inputs.pixels  # type: ignore[union-attr] # they are images
    for label in (0, 1):
        home = folder / f"digit {records.classes[label]}"
        home.mkdir(parents=True)
        for at, row in enumerate(np.flatnonzero(records.labels == label)[:_EACH].tolist()):
            side = 8 + at % 13
            image = Image.fromarray(pixels[row, :, :, 0]).resize((side, side))
            image.save(home / f"{at}.png")
    return folder


def test_records_vote_by_an_encoder(tmp_path: Path) -> None:
    encoder = tiny.image_folder(tmp_path / "encoder", width=24)
    setting = SimulationOptions(
        parties=3, aggregator="neighbour", epsilon=4.0, delta=0.0, student=False,
        data=digit_folders(tmp_path / "data"), encoder=encoder, out=tmp_path / "out",
    )  # fmt: skip
    report = run_simulation(setting, Screen("pate"))
    assert report.labels_answered > 0
    assert report.label_accuracy is not None
    assert report.label_accuracy > 0.8
    found = describe(tmp_path / "out" / "campaign")
    assert found["aggregation"] == "masked"
    described = read_description(encoder)
    assert found["encoder"] == described.statement()
    state, _ = read_campaign(place_of(tmp_path / "out" / "campaign", None))
    statement = PrivacyStatement.from_json(privacy_statement(state).to_json())
    assert statement.encoder == described.statement()
    assert described.digest in described.statement()
    assert "nothing here protects the records that it was trained on" in described.statement()
    entries = (tmp_path / "out" / "campaign" / LEDGER_FILE).read_bytes()
    schema = f"embeddings 24 by {described.digest} of images"
    assert schema.encode() in entries
