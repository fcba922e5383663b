"""The soak over Flower: real processes, TLS, enrolled parties, and faults at random times.

Most faults come after the first durable charge. Each restart has another hash seed, working directory and
umask, and uses ``pate-server resume`` or the same command. After each campaign :mod:`tests.soak.checks`
checks its final state.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from simulation.datasets import digits_like, write_inputs
from tests.soak.checks import CHECKS, Left
from tests.soak.enrolled import MODES, NAMES, Base, Stage
from tests.soak.faults import Fault, Havoc, Played

if TYPE_CHECKING:
    from pathlib import Path

#: Seconds for one campaign, on a machine that is busy with others.
_WITHIN_S: Final = 600.0


@dataclass
class FlowerSoak:
    """Runs campaigns over Flower, a few concurrently."""

    out: Path  # output folder; its content is removed
    seed: int  # of every choice except the timing of processes
    at_once: int = 2  # number of concurrent campaigns
    # in the order of their end, later of their numbers
    results: list[Played] = field(default_factory=list)
    _seconds: float = 0.0
    _under_way: list[Havoc] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [
            f"campaign {each.number} (seed {self.seed}): {wrong}"
            for each in self.results
            for wrong in each.wrong
        ]

    def run(self, campaigns: int) -> None:
        """Run all campaigns; a failed one keeps its folder, and the others continue."""
        shutil.rmtree(self.out, ignore_errors=True)
        base = Base.make((self.out / "base").resolve())
        began = time.monotonic()
        with ThreadPoolExecutor(self.at_once) as pool:
            playing = [pool.submit(self._play, number, base) for number in range(1, campaigns + 1)]
            try:
                for each in as_completed(playing):
                    self.results.append(each.result())
                    print(self.results[-1], flush=True)
            except BaseException:  # Ctrl-C: no started process may remain
                pool.shutdown(wait=False, cancel_futures=True)
                for havoc in self._under_way:
                    havoc.deadline = 0.0
                raise
        self.results.sort(key=lambda each: each.number)
        self._seconds = time.monotonic() - began

    def report(self) -> None:
        """Print the table, and write ``soak.json``."""
        held = self.results

        def total(what: str) -> int:
            return sum(getattr(each, what) for each in held)

        clean = sum(not each.wrong for each in held)
        rows = {
            "campaigns": f"{len(held)}, seed {self.seed}, in {self._seconds:.0f} s",
            "modes": ", ".join(f"{n} {mode}" for mode, n in Counter(r.mode for r in held).items()),
            "kills": f"{total('kills')}, {total('late_kills')} of them after the first charge",
            "stops": f"{total('stops')}, {total('late_stops')} of them after the first charge",
            "resumed, too few parties left": str(total("resumed")),
            "labels": f"{total('labels')}; {total('vain')} charges in vain",
        }
        for check in CHECKS:
            rows[f"check: {check}"] = (
                f"{sum(check in each.passed for each in held)} of {len(held)} passed"
            )
        rows["campaigns that passed every check"] = f"{clean} of {len(held)}"
        print()
        for name, text in rows.items():
            print(f"{name:45} {text}")
        told = {"seed": self.seed, "table": rows, "campaigns": [asdict(each) for each in held]}
        (self.out / "soak.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")

    def _play(self, number: int, base: Base) -> Played:
        chance = random.Random(f"{self.seed} {number}")  # noqa: S311 - which fault comes is no secret
        mode = chance.choices(list(MODES), [each.weight for each in MODES.values()])[0]
        names = NAMES if chance.random() < 1 / 3 else NAMES[:3]
        faults = Fault.draw(chance, mode, names, MODES[mode].charges)
        began = time.monotonic()
        played = Played(number, mode, len(names))
        folder = self.out.resolve() / "campaigns" / f"{number:04d}"
        folder.mkdir(parents=True)
        inputs = digits_like(MODES[mode].queries, seed=self.seed * 10_000 + number).inputs
        public = write_inputs(folder / "public.npz", inputs)
        patience = chance.choice((5.0, 30.0))
        with Stage.of(
            base, folder, names, public=public, mode=mode, patience=patience, chance=chance
        ) as stage:
            havoc = Havoc(stage, began + _WITHIN_S, played)
            self._under_way.append(havoc)
            try:
                stage.begin()
                havoc.wreak(faults)
                havoc.finish()
            except Exception as error:  # noqa: BLE001 - the other campaigns go on
                played.wrong.append(f"{type(error).__name__}: {error}")
            else:
                Left(stage, havoc).look()
        played.seconds = round(time.monotonic() - began, 1)
        if not played.wrong:
            shutil.rmtree(folder)
        return played
