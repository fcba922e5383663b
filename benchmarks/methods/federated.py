"""Federated averaging by Flower's own strategies, over a grid in this process.

Four ways: without privacy; with the noise of Flower's server wrapper; with that of Flower's client mod; and
with Opacus at each party. Flower's noise protects *all records of a party*, which protects each of them;
that is the smallest unit it has, and with few parties it costs most of the model. Opacus at each
party protects a record, also from the server.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.method import (
    DELTA,
    Fitted,
    Method,
    Setting,
    gaussian_multiplier,
    mu,
    needed,
    product,
)  # fmt: skip
from benchmarks.methods.networks import (
    WIDENS,
    Descent,
    arrays,
    build,
    descend,
    fill,
    of_both,
    private_descent,
)  # fmt: skip
from benchmarks.problem import Problem
from benchmarks.record import Cost

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

_WAIT_S: Final = 3600.0


@dataclass
class _Party:
    """One party: its records, and what it spent."""

    rows: NDArray[np.float32]
    labels: NDArray[np.int64]
    weight: float
    seconds: float = 0.0
    up: int = 0
    down: int = 0
    rounds: int = 0


def average(
    problem: Problem,
    setting: Setting,
    seed: int,
    how: Descent,
    *,
    strategy: Callable[[Strategy, int], Strategy] = lambda inner, _: inner,
    mods: Sequence[Mod] = (),
    equal: bool = False,
) -> Fitted:
    """Return the model after the setting's rounds.

    Args:
        problem: the data set.
        setting: with its model, kind of rows and rounds.
        seed: of the dealing, and of everything random.
        how: of a party's training in one round.
        strategy: wraps Flower's average of so many parties.
        mods: Flower's, at each party.
        equal: whether parties weigh the same, as accounts of a whole party need; otherwise by records.
    """
    from flwr.app import ArrayRecord

    from benchmarks.methods.local_grid import LocalGrid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    rows, labels = problem.rows(str(setting["kind"])), problem.split.private.labels
    name, width = str(setting["model"]), rows.private.shape[1]
    parties = [
        _Party(rows.private[part], labels[part], 1.0 if equal else float(len(part)))
        for part in problem.parts(seed)
    ]
    apps = [
        _app(party, name, problem.classes, replace(how, seed=1_000 * seed + number), mods)
        for number, party in enumerate(parties)
    ]
    model = build(name, width, problem.classes, seed)
    inner = _everyone()
    # One worker: seconds of a party are its own.
    grid = LocalGrid(apps, workers=1)
    began = time.process_time()
    try:
        found = strategy(inner, len(parties)).start(
            grid, ArrayRecord(arrays(model)), int(setting["rounds"]), _WAIT_S
        )
    finally:
        grid.close()
    seconds = time.process_time() - began
    fill(model, found.arrays.to_numpy_ndarrays())
    costs = [Cost(each.rounds, each.up, each.down, each.seconds) for each in parties]
    return Fitted(*of_both(model, rows), Cost.of_parties(costs, seconds))


def _everyone() -> Strategy:
    """Return Flower's average of all parties; only its messages are made by the grid.

    Flower's own constructor of a message takes the run from a global of a server's process.
    """
    from flwr.app import RecordDict
    from flwr.serverapp.strategy import FedAvg

    class Everyone(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> list[Message]:
            config["server-round"] = server_round
            content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
            return [
                grid.create_message(content, "train", node, str(server_round))
                for node in grid.get_node_ids()
            ]

    return Everyone(fraction_evaluate=0.0)


def _app(party: _Party, name: str, classes: int, how: Descent, mods: Sequence[Mod]) -> ClientApp:
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp(mods=[*mods])

    @app.train()
    def train(message: Message, _context: Context) -> Message:
        began = time.thread_time()
        received = message.content.array_records["arrays"]
        model = build(name, party.rows.shape[1], classes, 0)
        fill(model, received.to_numpy_ndarrays())
        party.rounds += 1
        descend(model, party.rows, party.labels, replace(how, seed=how.seed + party.rounds * 10**6))
        sent = ArrayRecord(arrays(model))
        party.down += received.count_bytes()
        party.up += sent.count_bytes()
        party.seconds += time.thread_time() - began
        metrics = MetricRecord({"num-examples": party.weight})
        return Message(RecordDict({"arrays": sent, "metrics": metrics}), reply_to=message)

    return app


def _local(setting: Setting, seed: int) -> Descent:
    """Return a party's training without noise of its own."""
    share = float(setting.get("share", 1.0))
    return Descent(int(setting["steps"]), share, float(setting["rate"]), 1.0, 0.0, seed)


def _plain(problem: Problem, setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
    return average(problem, setting, seed, _local(setting, seed))


def _server(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Clipping

    noise = gaussian_multiplier(needed(epsilon), int(setting["rounds"]))
    clip = float(setting["clip"])
    return average(
        problem, setting, seed, _local(setting, seed), equal=True,
        strategy=lambda inner, parties: Clipping(inner, noise, clip, parties),
    )  # fmt: skip


def _client(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
    from flwr.clientapp.mod import LocalDpMod

    clip = float(setting["clip"])
    # The mod has the classical formula for one round; it is given the epsilon by which its noise is
    # that of the exact one for all rounds. Two updates of a party are up to twice the clip apart.
    sigma = 2 * clip * math.sqrt(int(setting["rounds"])) / mu(needed(epsilon))
    classical = 2 * clip * math.sqrt(2 * math.log(1.25 / DELTA)) / sigma
    mod = LocalDpMod(clip, 2 * clip, classical, DELTA)
    return average(problem, setting, seed, _local(setting, seed), mods=(mod,), equal=True)


def _plain_settings(problem: Problem) -> list[Setting]:
    def of(model: str, kinds: tuple[str, ...], rates: tuple[float, ...]) -> list[Setting]:
        return product(
            model=(model,), kind=kinds, rounds=(20,), steps=(16,), rate=rates, share=(0.125,)
        )

    return [
        *of("linear", problem.kinds, (1.0, 4.0)),
        *of("network-64", problem.kinds[-1:], (0.1, 0.4)),
    ]


def _of_parties(problem: Problem) -> list[Setting]:
    """Return what is tried where noise protects whole parties: few rounds, small updates."""
    return product(
        model=("linear",), kind=problem.kinds[-1:], rounds=(1, 5), steps=(5,), rate=(0.5, 2.0),
        clip=(0.1, 1.0),
    )  # fmt: skip


def _each_settings(problem: Problem) -> list[Setting]:
    linear = [
        {**one, "share": 1.0, "steps": 60 // int(one["rounds"])}
        for one in product(
            model=("linear",), kind=problem.kinds, rounds=(1, 5), rate=(0.06, 0.25, 1.0), clip=(0.1,)
        )
    ]  # fmt: skip
    network = product(
        model=("network-64",), kind=problem.kinds[-1:], share=(0.125,), rounds=(5,), steps=(48,),
        rate=(0.02, 0.1), clip=(0.1,),
    )  # fmt: skip
    return [*linear, *network]


def methods(work: Path) -> list[Method]:
    """Return all ways, with a folder for noise multipliers."""

    def of_each(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        how = private_descent(setting, epsilon, int(setting["rounds"]), work, seed)
        return average(problem, setting, seed, how)

    return [
        Method(name="fedavg-opacus", settings=_each_settings, fit=of_each, widens=WIDENS),
        Method(name="fedavg-server-noise", settings=_of_parties, fit=_server, widens=WIDENS),
        Method(name="fedavg-client-noise", settings=_of_parties, fit=_client, widens=WIDENS),
        Method(
            name="fedavg", settings=_plain_settings, fit=_plain, private=False,
            widens={"rate": 4, "steps": 4},
        ),
    ]  # fmt: skip
