"""An encoder that is open: images or texts in, rows of whole numbers out, one record at a time.

A record's row depends on that record only. The graph runs on one record at a time, in a single thread, so no
kernel splits its sums by batch or by thread; the row is brought to length 1 and rounded to whole numbers at
once.

An encoder was tried before it is given a record. So whatever it fails with then, or takes too long for, is of
that record: it is unusable, and the others are embedded.
"""

from __future__ import annotations

import hashlib
import math
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pate.data.embeddings import UNIT, Embeddings
from pate.data.odd import Unusable, UnusableRecordError, judged, usable
from pate.encoders import inputs
from pate.encoders.cache import TOO_SLOW
from pate.encoders.description import FILE, MOST_BYTES, Description, FileOf, read_at_most
from pate.encoders.graph import checked_graph, open_session
from pate.encoders.inputs import first_line, opened_tokenizer
from pate.encoders.trial import MOST_SECONDS, Limit, seconds_after
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.encoded import Record
    from pate.data.odd import Odd
    from pate.encoders.cache import Cache, Memory

#: Characters of a text that are brought to the tokenizer.
MOST_CHARACTERS: Final = 100_000
#: Records that are in work at a time, per thread.
_AHEAD: Final = 4


class TooSlowError(UnusableRecordError):
    """A record on which the encoder works much longer than on the inputs of its trial."""

    def __init__(self) -> None:
        super().__init__("the encoder takes too long for it")


class Encoder:
    """A public encoder, ready to run."""

    def __init__(
        self,
        description: Description,
        model: bytes,
        tokenizer: bytes | None,
        seconds: float = MOST_SECONDS,
    ) -> None:
        """Open a checked graph; :meth:`open` is for folders."""
        self.description, self.digest = description, description.digest
        self._seconds = seconds
        graph = checked_graph(model)
        images, texts = description.images, description.texts
        if images is not None:
            size = images.height, images.width
            first = images.layout == "first"
            shape = (1, images.channels, *size) if first else (1, *size, images.channels)
            self._inputs = [(graph.require_images(shape), 1)]
        else:
            self._inputs = [(port.name, port.kind) for port in graph.require_texts()]
        ranks = {"none": (2,), "first": (3,), "mean": (3,) if images is None else (3, 4)}
        graph.require_output(description.output, ranks[description.pooling], description.width)
        self._ranks = ranks[description.pooling]
        self._session = open_session(model)
        self._tokenizer, self._most_bytes = None, 0
        if texts is not None and tokenizer is not None:
            self._tokenizer, self._most_bytes = opened_tokenizer(tokenizer, texts.longest)

    @classmethod
    def open(cls, folder: Path, *, trial: bool = True, seconds: float = MOST_SECONDS) -> Encoder:
        """Open the encoder of a folder.

        With ``trial``, some inputs are run in another process first, with bounds on its time and
        memory, unless that was done in this process; ``seconds`` is then a small multiple of its
        slowest run.
        """
        description, contents = opened_files(folder)
        checked_graph(contents[0], f"the encoder in {folder}")
        if trial:
            seconds = seconds_after(folder, description)
        tokenizer = contents[1] if len(contents) > 1 else None
        try:
            return cls(description, contents[0], tokenizer, seconds)
        except DataError as error:
            raise DataError(f"the encoder in {folder}: {error}") from error

    @property
    def width(self) -> int:
        """Coordinates of an embedding."""
        return self.description.width

    @property
    def source(self) -> str:
        """What it takes: ``images`` or ``texts``."""
        return self.description.source

    def row(self, record: Record) -> NDArray[np.int16]:
        """Return the embedding of one record, in units of 1/:data:`~pate.data.embeddings.UNIT`."""
        prepared = self.prepared(record)
        return self._rounded(self._pooled(self._run(prepared)))

    def prepared(self, record: Record) -> dict[str, NDArray[Any]]:
        """Return one record as the graph takes it, by its inputs' names; a tokenizer may raise anything."""
        images = self.description.images
        if images is not None:
            if isinstance(record, str):
                raise UnusableRecordError("the encoder takes images, not texts")
            try:
                fed: list[NDArray[Any]] = [inputs.prepared(record, images)]
            except DataError as error:
                raise UnusableRecordError(str(error)) from error
        else:
            if not isinstance(record, str):
                raise UnusableRecordError("the encoder takes texts, not images")
            ids, mask = self._tokens(record)
            by_name = {
                "input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)
            }  # fmt: skip
            fed = [
                by_name[name].astype(np.int32 if kind == 6 else np.int64)
                for name, kind in self._inputs
            ]
        return {name: value for (name, _), value in zip(self._inputs, fed, strict=True)}

    def rows(
        self,
        records: Iterable[Record],
        *,
        odd: Odd | None = None,
        place: Callable[[int], str] = lambda row: f"record {row + 1}",
        move: Callable[[int], None] | None = None,
        cache: Cache | Memory | None = None,
        threads: int | None = None,
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Return the embeddings of records, (n, d) int16, and (n,) which of the records are usable.

        Records are taken one by one, a few ahead of the work, so they may come from a stream. The
        result does not depend on the number of threads, each of which runs one record at a time.
        """

        def work(record: Record) -> NDArray[np.int16] | Unusable:
            return judged(lambda: self._row_of(record, cache))

        made: list[NDArray[np.int16]] = []
        good: list[bool] = []
        nothing = np.zeros(self.width, dtype=np.int16)
        for at, found in enumerate(_in_order(work, records, threads or cores())):
            if odd is None and isinstance(found, Unusable):
                raise UnusableRecordError(f"{place(at)}: {found.error}") from found.error
            row = usable(found, odd, place(at))
            made.append(nothing if row is None else row)
            good.append(row is not None)
            if move is not None:
                move(at + 1)
        values = np.stack(made) if made else np.zeros((0, self.width), dtype=np.int16)
        return values, np.array(good, dtype=np.bool_)

    def _row_of(self, record: Record, cache: Cache | Memory | None) -> NDArray[np.int16]:
        """Return the embedding of one record, from the cache if it is there; errors as :meth:`row`.

        That a record took too long is kept, too: it is the only outcome that another run may not have.
        """
        if cache is None:
            return self.row(record)
        key = hash_of(record)
        found = cache.get(key)
        if found is None:
            try:
                found = self.row(record)
            except TooSlowError:
                cache.put(key, TOO_SLOW)
                raise
            cache.put(key, found)
        if not found.size:
            raise TooSlowError
        return found

    def embeddings(
        self, values: NDArray[np.int16], window: tuple[int, int] | None = None
    ) -> Embeddings:
        """Return rows as inputs of a campaign."""
        source = self.source if window is None else "{} window {} {}".format(self.source, *window)
        return Embeddings(values, source, self.digest)

    def trial_inputs(self) -> list[Record]:
        """Return inputs for a trial: of the largest size that the graph is given, then of other content."""
        images, texts = self.description.images, self.description.texts
        if images is not None:
            shape = images.height, images.width, images.channels
            steps = np.arange(math.prod(shape), dtype=np.uint64)
            # Multiplied by an odd number and cut: it looks like noise, everywhere the same.
            mixed = steps * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(56)
            return [each.astype(np.uint8).reshape(shape) for each in (steps, mixed)]
        assert texts is not None  # noqa: S101 - one of the two
        return ["the " * texts.longest, "the " * (MOST_CHARACTERS // 4)]

    def _tokens(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        assert self._tokenizer is not None  # noqa: S101 - of an encoder of texts
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise UnusableRecordError("the text has a lone surrogate") from error
        if len(text) > MOST_CHARACTERS:
            raise UnusableRecordError(f"the text has more than {MOST_CHARACTERS} characters")
        if size > self._most_bytes:  # by its length only, whatever it says
            raise UnusableRecordError(
                f"the text has more than {self._most_bytes} bytes, of which the tokenizer could make too much"
            )
        try:
            found = self._tokenizer.encode(text)
        except Exception as error:  # its errors have no common base but this
            raise self._failed(
                f"has a tokenizer that cannot take it: {first_line(error)}"
            ) from error
        if not found.ids:
            raise UnusableRecordError("the text has no tokens")
        mask = np.array([found.attention_mask], dtype=np.int64)
        return np.array([found.ids], dtype=np.int64), mask

    def _run(self, feed: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Run the graph on one input."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        try:
            with Limit(self._seconds, lambda: setattr(options, "terminate", True)):
                (made,) = self._session.run([self.description.output], feed, options)
        except Exception as error:  # its errors have no common base but this
            if options.terminate:
                raise TooSlowError from error
            raise self._failed(f"cannot run: {first_line(error)}") from error
        if not isinstance(made, np.ndarray) or made.dtype != np.float32:
            raise self._failed("gives no float32 numbers")
        return made

    def _failed(self, how: str) -> UnusableRecordError:
        return UnusableRecordError(
            f"the encoder {self.description.name} {how}", "the encoder cannot run on it"
        )

    def _pooled(self, made: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return (d,) of the graph's output for one input."""
        width = self.width
        places = made.shape[2:] if made.ndim == 4 else made.shape[1:-1]
        coordinates = made.shape[1] if made.ndim == 4 else made.shape[-1] if made.ndim else 0
        fits = made.ndim in self._ranks and made.shape[0] == 1 and coordinates == width
        if not fits or not math.prod(places):
            shape = "x".join(map(str, made.shape)) or "a single number"
            wanted = " or ".join(map(str, self._ranks))
            raise self._failed(
                f"gives {shape} for one input; its description says {width} coordinates in an output of "
                f"{wanted} dimensions"
            )
        exact = made.astype(np.float64)
        if made.ndim == 4:
            exact = exact.reshape(width, -1).T
        rows: NDArray[np.float64] = exact.reshape(-1, width)
        if self.description.pooling == "mean":
            # One input, all of whose tokens are its own: the mean over the mask is the mean.
            sums = [math.fsum(column) / len(rows) for column in rows.T.tolist()]
            return np.array(sums, dtype=np.float64)
        first: NDArray[np.float64] = rows[0]
        return first

    @staticmethod
    def _rounded(point: NDArray[np.float64]) -> NDArray[np.int16]:
        """Return a point at length 1, as whole numbers."""
        if not np.isfinite(point).all():
            raise UnusableRecordError("the encoder gives NaN or infinity for it")
        largest = float(np.abs(point).max())
        if largest == 0:
            raise UnusableRecordError("the encoder gives zeros only for it")
        scaled = point / largest  # so that no square overflows or vanishes
        length = math.sqrt(math.fsum((scaled * scaled).tolist()))
        return np.rint(scaled * (UNIT / length)).astype(np.int16)


def opened_files(folder: Path) -> tuple[Description, list[bytes]]:
    """Return an encoder's description and the content of each of its files, compared with its digest."""
    description = read_description(folder)
    return description, [_described(folder, each) for each in description.files]


def read_description(folder: Path) -> Description:
    """Return what an encoder's folder says of it; its other files are not read."""
    if not folder.is_dir():
        raise DataError(f"there is no folder at {folder}: --encoder takes an encoder's folder")
    path = folder / FILE
    return Description.from_bytes(read_at_most(path, MOST_BYTES), str(path))


def hash_of(record: Record) -> bytes:
    """Return SHA-256 of a record as it is read, before any encoder."""
    if isinstance(record, str):
        return hashlib.sha256(b"text\0" + record.encode("utf-8", "surrogatepass")).digest()
    head = "image {} {}\0".format("x".join(map(str, record.shape)), record.dtype.str).encode()
    return hashlib.sha256(head + np.ascontiguousarray(record).tobytes()).digest()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_order(
    work: Callable[[Record], NDArray[np.int16] | Unusable], records: Iterable[Record], threads: int
) -> Iterator[NDArray[np.int16] | Unusable]:
    """Yield the results in the records' order; a few records are taken ahead."""
    if threads < 2:
        yield from map(work, records)
        return
    source = iter(records)
    with _pool(threads) as pool:
        waiting = [pool.submit(work, each) for each in islice(source, _AHEAD * threads)]
        while waiting:
            yield waiting.pop(0).result()
            waiting += [pool.submit(work, each) for each in islice(source, 1)]


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool whose waiting work is dropped at an error."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _described(folder: Path, entry: FileOf) -> bytes:
    """Return the content of a file of an encoder, if it is the described one."""
    path = folder / entry.file
    content = read_at_most(path, entry.size)
    if FileOf.of(entry.file, content) != entry:
        raise DataError(
            f"{path} is not the file that {FILE} describes: its SHA-256 differs; get both again"
        )
    return content
