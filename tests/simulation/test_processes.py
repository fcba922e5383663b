"""Records dealt among simulated parties, which run in processes of their own."""

from __future__ import annotations

import pickle
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from aggregator_server.campaign.sums import BATCH_COUNTS
from aggregator_server.exchange.carrier import Arrival
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import CampaignState
from aggregator_server.ledger.verify import verify
from aggregator_server.options import CampaignOptions
from pate.campaign.settings import spec_of
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Dataset, Images, Table, content_hash
from pate.errors import DataError, ProcessError
from pate.runtime.screen import Screen
from pate.votes import Counts
from simulation.datasets import deal, digits, digits_like, write_inputs, write_labelled
from simulation.options import SimulationOptions
from simulation.parties import Opener, open_ensemble, open_party, party_home
from simulation.processes import PartyProcesses, memory_peak
from simulation.simulate import _dealt, run_campaign
from tests.support.echo_parties import open_echo

DEADLINE_S = 120.0


def start(folder: Path, parties: int, processes: int) -> PartyProcesses:
    return PartyProcesses(
        lambda _: open_echo, parties=parties, processes=processes, log=folder / "log"
    )


@pytest.fixture
def five(tmp_path: Path) -> Iterator[PartyProcesses]:
    with start(tmp_path, 5, 2) as made:
        yield made


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def all_of(link: PartyProcesses, count: int) -> list[Arrival]:
    found: list[Arrival] = []

    def look() -> bool:
        found.extend(link.receive())
        return len(found) >= count

    until(look)
    return found


def test_messages_and_answers_find_each_other_and_large_ones_wait_for_room(
    five: PartyProcesses,
) -> None:
    """Both sides send more than pipes and queues can buffer, without a deadlock."""
    assert five.nodes() == frozenset(range(5))
    assert len(five._lanes) == 2
    body = bytes(1 << 20)
    sent = {(at % 5, b"%d" % at) for at in range(60)}
    for at in range(60):
        five.send(at % 5, b"%d" % at, body)
    found = all_of(five, 60)
    assert {(each.node, each.digest) for each in found} == sent
    assert all(each.body == body + b" %d end" % each.node for each in found)
    assert five.receive() == []


def test_a_party_that_fails_ends_it_by_name_and_its_reason_is_in_the_log(tmp_path: Path) -> None:
    with start(tmp_path, 2, 1) as link:
        link.send(1, b"digest", b"fail")
        with pytest.raises(ProcessError, match=r"party 1 failed \(raised ValueError\)") as caught:
            all_of(link, 1)
        assert "secret" not in str(caught.value)
    assert "secret 42" in (tmp_path / "log").read_text()


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    with start(tmp_path, 1, 3) as link:
        assert len(link._lanes) == 1, "no more processes than parties"
        link.send(0, b"digest", b"die")

        with pytest.raises(ProcessError, match="ended with exit code 3"):
            until(lambda: not link.nodes())


def test_the_peak_of_memory_is_that_of_this_process() -> None:
    before = memory_peak()
    held = b"x" * (64 << 20)
    assert memory_peak() >= max(before, len(held))


CLASSES = tuple(f"class {at:03d}" for at in range(100))
ASKED = 128


def campaign(place: Path, queries: int) -> tuple[CampaignState, Counts, int]:
    """Run a campaign of two parties of three teachers, in one other process; return its end, sums, and the
    server's memory at the peak in bytes."""
    inputs = random_images(queries, 0)
    options = CampaignOptions(
        aggregator="gnmax", parties="2", min_parties=2, classes=",".join(CLASSES), epsilon=1e5,
        max_queries=ASKED, sigma2="40", aggregation="plain",
    )  # fmt: skip
    with (
        PartyProcesses(
            lambda _: Opener(place, {at: records_of(at) for at in range(2)}, 3, inputs),
            parties=2,
            processes=1,
            log=place / "log",
        ) as link,
        Ledger.create(place / "ledger.db", spec_of(options, inputs)) as ledger,
    ):
        tracemalloc.start()
        run_campaign(ledger, inputs, link, screen=Screen("memory"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return ledger.state(), ledger.counts(), peak


def records_of(number: int) -> Dataset:
    return Dataset(random_images(300, number + 1), np.arange(300) % 100, CLASSES)


def random_images(count: int, seed: int) -> Images:
    return Images(np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 1), dtype=np.uint8))


@pytest.mark.slow
def test_the_votes_of_twelve_thousand_queries_never_lie_in_memory_together(tmp_path: Path) -> None:
    """Parties are in another process, so only the server's memory is traced."""
    queries = 12_000
    campaign(tmp_path / "imports", ASKED)  # what is imported late is no memory of a campaign
    state, counts, peak = campaign(tmp_path / "traced", queries)
    assert len(state.batches) == -(-queries * len(CLASSES) // BATCH_COUNTS)
    assert state.queries_asked == ASKED
    whole = 8 * queries * len(CLASSES)  # all summed votes as int64
    assert counts.nbytes == whole
    assert peak < whole / 2, f"{peak} bytes at the peak"
    rows = range(0, queries, 300)
    homes = [party_home(tmp_path / "traced", number) for number in range(2)]
    teachers = [open_ensemble(home, records_of(at), 3) for at, home in enumerate(homes)]
    expected = sum(each.vote(random_images(queries, 0), rows, CLASSES) for each in teachers)
    np.testing.assert_array_equal(counts[::300], expected)
    verify(tmp_path / "traced" / "ledger.db")


PIXELS = np.random.default_rng(5).integers(0, 256, (12, 4, 4, 3), dtype=np.uint8)
LABELS = np.array([0, 1] * 6, dtype=np.int64)
#: Categories that look like numbers, among numbers of which some are missing.
TABLE = Table(
    ("age", "site", "note, free"),
    (
        np.array([np.nan, 0.1, -0.0, 1e300] * 3),
        np.array(["1", "02", "", "3"] * 3, dtype=np.str_),
        np.array(["", "naïve", "a,b", '"'] * 3, dtype=np.str_),
    ),
)
GROUPS = np.array([f"patient {at % 5}" for at in range(12)], dtype=np.str_)
RECORDS = {
    "images": Dataset(Images(PIXELS), LABELS, ("x", "y")),
    "images of patients": Dataset(Images(PIXELS), LABELS, ("x", "y"), GROUPS),
    "table": Dataset(TABLE, LABELS, ("x", "y", "absent")),
    "labels": Dataset(TABLE, 0 * LABELS, ("x", "y"), GROUPS, np.eye(2, dtype=np.bool_)[LABELS]),
    "number": Dataset(TABLE, 0 * LABELS, (), None, np.linspace(-1, 1, 12)),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_and_a_public_set_come_there_as_they_were(kind: str, tmp_path: Path) -> None:
    """A process gets them as multiprocessing sends what it starts with."""
    records = RECORDS[kind]
    found = pickle.loads(pickle.dumps(Opener(tmp_path, {3: records}, 2, records.inputs)))  # noqa: S301
    assert content_hash(found.public) == content_hash(records.inputs)
    there = found.records[3]
    assert there.row_hashes() == records.row_hashes()
    assert (there.inputs.schema(), there.classes) == (records.inputs.schema(), records.classes)
    np.testing.assert_array_equal(there.labels, records.labels)
    for name in ("groups", "answers"):
        given, held = getattr(records, name), getattr(there, name)
        assert (given is None) == (held is None)
        if given is not None:
            np.testing.assert_array_equal(held, given)


def test_a_party_that_is_opened_again_has_its_teachers(tmp_path: Path) -> None:
    home, records = party_home(tmp_path, 7), RECORDS["images"]
    open_party(home, records, teachers=2)
    stored = {path: path.stat() for path in (home / "teachers").rglob("*") if path.is_file()}
    assert stored
    Opener(tmp_path, {7: records}, 2, None)(7)
    for path, before in stored.items():
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nobody_holds_what_another_holds() -> None:
    records = digits()
    dealt = deal(records, 4, public=300, test=200)
    hashes = [set(d.row_hashes()) for d in (*dealt.parties, dealt.public, dealt.test)]
    sizes = [len(d) for d in (*dealt.parties, dealt.public, dealt.test)]
    assert sum(sizes) == len(records) == 1797
    assert len(set.union(*hashes)) == sum(len(h) for h in hashes)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    ours, theirs = digits(), load_digits()
    assert isinstance(ours.inputs, Images)
    pixels = np.rint(theirs.images * (255 / 16)).astype(np.uint8)
    np.testing.assert_array_equal(ours.inputs.pixels[..., 0], pixels)
    np.testing.assert_array_equal(ours.labels, theirs.target)


def test_made_up_digits_are_as_many_as_wanted_and_like_the_real_ones() -> None:
    made, real = digits_like(3000), digits()
    assert len(made) == 3000
    assert (made.inputs.schema(), made.classes) == (real.inputs.schema(), real.classes)
    assert len(set(made.row_hashes())) == 3000, "no two are the same"
    assert digits_like(3000).row_hashes() == made.row_hashes()
    assert isinstance(made.inputs, Images)
    assert isinstance(real.inputs, Images)
    for label in range(10):
        mean = made.inputs.pixels[made.labels == label].mean(axis=0)
        others = [real.inputs.pixels[real.labels == at].mean(axis=0) for at in range(10)]
        assert int(np.argmin([np.abs(mean - each).sum() for each in others])) == label


@pytest.mark.parametrize(("parties", "each"), [(100, 9), (300, 10)])
def test_no_party_of_a_simulation_has_one_class_only(parties: int, each: int) -> None:
    """300 parties of three real digits would: then digits are made, ten for each."""
    setting = SimulationOptions(parties=parties, teachers=1)
    dealt = _dealt(setting, None, Screen("pate"))
    assert min(map(len, dealt.parties)) == each
    # A party of ten digits has one class with chance 1e-9.
    assert all(len(set(part.labels.tolist())) > 1 for part in dealt.parties)


def test_too_many_parties_are_refused() -> None:
    with pytest.raises(DataError, match="too few"):
        deal(digits().take(range(20)), 5, public=10, test=8)


def test_records_and_queries_survive_their_files(tmp_path: Path) -> None:
    records = digits().take(range(60))
    write_labelled(tmp_path / "records.npz", records)
    again = read_dataset(tmp_path / "records.npz")
    assert again.row_hashes() == records.row_hashes()
    assert again.classes == records.classes
    made = write_inputs(tmp_path / "public.npz", records.inputs)
    assert content_hash(read_inputs(made)) == content_hash(records.inputs)
