"""What the process that commands are forked from does once, for all of them: it is not for other imports."""

from __future__ import annotations

import functools
import gc
import importlib
from typing import Final

import numpy as np

from aggregator_server.cli.main import app as server
from party.cli.main import app as party
from party.teachers import linear
from pate.data.values import Images
from pate.runtime import command
from student.cli import app as student

#: Modules that the commands import as they run.
_LATER: Final = (
    "tests.support.world.direct",
    "tests.support.world.forked",
    "aggregator_server.session",
    "pate.campaign.settings",
    "pate.planning.population",
    "party.session",
    "party.teachers.training",
    "pate.features.scattering",
    "safetensors.numpy",
    "student.session",
    "student.client",
    "sklearn.linear_model",
    # What a server and a party fork for Flower.
    "flwr.superlink.cli.flower_superlink",
    "party.flower.supernode_process",
    "anyio._backends._asyncio",
    "grpc._server",
    "httpcore",
    "prometheus_client",
    "rich._emoji_codes",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)

for _name in _LATER:
    importlib.import_module(_name)
# The random directions of linear teachers are drawn once: forks of 8 x 8 pixels have them.
for _view in linear.VIEWS:
    linear.describe(Images(np.zeros((1, 8, 8, 1), dtype=np.uint8)), _view)
# Each command line is made once, and not by each command.
vars(command)["program_of"] = _made = functools.cache(command.program_of)
for _app in (server, party, student):
    _made(_app)
# A collection in a fork would copy the memory of all that is here.
gc.collect()
gc.freeze()
