"""Simulated parties: voters with the parties' code, in this process or in one of several."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from party.identity.keys import identity_key, shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.teachers.training import train_ensemble
from party.voting.neighbour import NeighbourVotes
from party.voting.site import Site
from party.voting.voter import Voter
from pate.data.embeddings import Embeddings, embedding_arrays
from pate.data.values import Dataset, Images, Inputs, Table
from pate.foreign import npz_arrays
from pate.noise.exact import SystemNoise
from pate.runtime.home import private_directory
from simulation.processes import arguments_of, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from party.teachers.ensemble import Ensemble
    from party.voting.request import Ensemble as AnyEnsemble

    _Array: TypeAlias = (
        NDArray[np.uint8]
        | NDArray[np.int16]
        | NDArray[np.bool_]
        | NDArray[np.int64]
        | NDArray[np.float64]
        | NDArray[np.str_]
    )

#: The public set, below the directory of all homes, if parties do not receive one.
PUBLIC_FILE: Final = "public.npz"
#: In place of a number of teachers: records vote.
_NO_TEACHERS: Final = "-"
_RECORDS: Final = "records.npz"


def party_home(place: Path, number: int) -> Path:
    """Return the home directory of a simulated party; its last part is the party's name."""
    return place / f"party_{number:04d}"


def open_voter(
    home: Path,  # of the party, which is named after it; made if absent
    source: AnyEnsemble | NeighbourVotes,  # of its votes: its teachers, or its records
    *,
    public: Inputs | None = None,  # its own copy of the public set, or None to receive one
) -> Voter:
    """Return the voter of a party."""
    private_directory(home)
    records = source if isinstance(source, NeighbourVotes) else None
    return Voter(
        name=home.name,
        identity=identity_key(home),
        ensemble=None if isinstance(source, NeighbourVotes) else source,
        records=records,
        home=home,
        site=Site(Policy.default(loopback=True), PartyLedger(home / LEDGER_FILE)),
        noise=SystemNoise(),
        public=public,
    )


def open_party(
    home: Path,
    records: Dataset,
    *,
    teachers: int | None,  # k, which are trained, or loaded from its home; None: its records vote
    public: Inputs | None = None,
) -> Voter:
    """Return the voter of a party with these records."""
    private_directory(home)
    source = (
        NeighbourVotes(records, shard_key(home))
        if teachers is None
        else open_ensemble(home, records, teachers)
    )
    return open_voter(home, source, public=public)


def open_ensemble(
    home: Path,
    records: Dataset,
    teachers: int,
    *,
    model: str = "auto",
    device: str = "cpu",
    # called with the number of trained teachers, and k
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Ensemble:
    """Return a party's teachers, trained, or loaded from its home."""
    private_directory(home)
    return train_ensemble(
        records,
        teachers=teachers,
        model=model,
        device=device,
        home=home,
        key=shard_key(home),
        progress=progress,
    )


def store_records(home: Path, records: Dataset) -> None:
    """Write a party's records into its home, so that another process can open the party.

    Read again they have the same hashes, so that stored teachers are reused. CSV is unsuitable, since
    it does not distinguish numbers from categories that look like numbers.
    """
    arrays = _as_arrays(records.inputs)
    arrays["labels"] = records.labels
    arrays["classes"] = np.array(records.classes, dtype=np.str_)
    if records.groups is not None:
        arrays["groups"] = records.groups
    if records.answers is not None:
        arrays["answers"] = records.answers
    _write(home / _RECORDS, arrays)


def load_records(home: Path) -> Dataset:
    """Return what :func:`store_records` wrote."""
    arrays = _read(home / _RECORDS)
    groups, said = arrays.get("groups"), arrays.get("answers")
    answers: NDArray[np.bool_] | NDArray[np.float64] | None = None
    if said is not None:
        answers = said.astype(np.bool_) if said.ndim == 2 else said.astype(np.float64)
    return Dataset(
        _from_arrays(arrays),
        arrays["labels"].astype(np.int64),
        tuple(arrays["classes"].tolist()),
        None if groups is None else groups.astype(np.str_),
        answers,
    )


def store_inputs(path: Path, inputs: Inputs) -> None:
    """Write a public set; read again it has the same hash."""
    _write(path, _as_arrays(inputs))


def load_inputs(path: Path) -> Inputs:
    """Return what :func:`store_inputs` wrote."""
    return _from_arrays(_read(path))


def _as_arrays(inputs: Inputs) -> dict[str, _Array]:
    if isinstance(inputs, Images):
        return {"pixels": inputs.pixels}
    if isinstance(inputs, Embeddings):
        return dict(embedding_arrays(inputs))
    arrays: dict[str, _Array] = {"names": np.array(inputs.names, dtype=np.str_)}
    return arrays | {f"column {at}": cells for at, cells in enumerate(inputs.columns)}


def _from_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> Inputs:
    if "pixels" in arrays:
        return Images(arrays["pixels"].astype(np.uint8))
    if "embeddings" in arrays:
        made = arrays["embeddings"].astype(np.int16)
        return Embeddings(made, str(arrays["source"]), str(arrays["encoder"]))
    names = tuple(arrays["names"].tolist())
    held = (arrays[f"column {at}"] for at in range(len(names)))
    columns = (c.astype(np.str_) if c.dtype.kind == "U" else c.astype(np.float64) for c in held)
    return Table(names, tuple(columns))


def _write(path: Path, arrays: Mapping[str, _Array]) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # takes arrays for its own option


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    return npz_arrays(path)


def worker(place: Path, teachers: int | None) -> list[str]:
    """Return the arguments of this module as a process for some of the parties in ``place``."""
    return [str(place), _NO_TEACHERS if teachers is None else str(teachers)]


def main() -> None:
    """Answer for some parties with records in their homes: the process that `worker` describes."""
    (where, teachers), numbers = arguments_of(sys.argv[1:])
    place = Path(where)
    public = load_inputs(place / PUBLIC_FILE) if (place / PUBLIC_FILE).exists() else None

    def open_(number: int) -> Callable[[bytes], bytes]:
        home = party_home(place, number)
        k = None if teachers == _NO_TEACHERS else int(teachers)
        return open_party(home, load_records(home), teachers=k, public=public).handle

    serve(open_, numbers)


if __name__ == "__main__":
    main()
