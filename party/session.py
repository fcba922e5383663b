"""One party's part in one campaign: read, shard, train, connect, vote, leave."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from party.client_app import make_client_app
from party.keys import identity_key, shard_key
from party.resident import Connection
from party.training import train_ensemble
from party.voter import Ending, Voter
from pate.data.read import read_dataset, read_inputs
from pate.errors import UnreachableError
from pate.statement import in_words

if TYPE_CHECKING:
    from pathlib import Path

    from pate.runtime.screen import Screen

#: After its last answer a party stays connected for so long: a SuperNode sends what it was given
#: within about 3.5 seconds, and what it has not sent when it is stopped is lost.
_LAST_WORDS_S: Final = 5.0


@dataclass(frozen=True)
class Settings:
    """What ``pate-party start`` was asked for; each field is the option of that name."""

    name: str
    data: Path
    server: str
    teachers: int
    model: str
    device: str
    label: str | None
    group: str | None
    classes: tuple[str, ...] | None
    public: Path | None
    drop: tuple[str, ...]
    home: Path
    max_wait: float | None


def take_part(settings: Settings, screen: Screen) -> Ending:
    """Take part until the campaign has ended, and return how.

    Raises:
        PateError: if the data, the settings, the server or the campaign do not allow it.
    """
    dataset = read_dataset(
        settings.data,
        label=settings.label,
        group=settings.group,
        classes=settings.classes,
        drop=settings.drop,
    )
    public = None if settings.public is None else read_inputs(settings.public, drop=settings.drop)
    screen.say(f"{settings.name}: {len(dataset)} records, classes {', '.join(dataset.classes)}")
    with screen.bar("teachers ready") as progress:
        ensemble = train_ensemble(
            dataset,
            teachers=settings.teachers,
            model=settings.model,
            device=settings.device,
            home=settings.home,
            key=shard_key(settings.home),
            progress=progress,
        )
    screen.say(f"{ensemble.teachers} teachers are ready; connecting to {settings.server}")
    voter = Voter(
        name=settings.name,
        identity=identity_key(settings.home),
        ensemble=ensemble,
        home=settings.home,
        public=public,
        say=screen.say,
    )
    over = _Over(voter)
    connection = Connection(
        settings.server,
        make_client_app(voter.handle),
        home=settings.home / "flower",
        on_event=lambda line: None if over.decided else screen.say(line),
        max_wait=settings.max_wait,
    )
    try:
        connection.run(stop=over)
    except UnreachableError:
        # A server that has heard our last words may be gone at once, and that is as it should be.
        if not over.decided:
            raise
    if voter.refusal is not None:
        raise voter.refusal
    if voter.ending is None:
        raise RuntimeError("the connection ended before the campaign did")
    ending = voter.ending
    screen.say(
        f"the campaign has ended: {ending.queries_asked} queries asked, {ending.labels_released} "
        f"labels released, at most {in_words(ending.epsilon, ending.delta, ending.unit)}"
    )
    return ending


class _Over:
    """Says whether a party may disconnect: all is decided, and its last answer has been sent."""

    def __init__(self, voter: Voter) -> None:
        self._voter = voter
        self._since: float | None = None

    @property
    def decided(self) -> bool:
        return self._voter.ending is not None or self._voter.refusal is not None

    def __call__(self) -> bool:
        if not self.decided:
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= _LAST_WORDS_S
