"""A ledger in PostgreSQL does what one in a file does: the same tests, in a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store.place import InDatabase
from tests.aggregator_server.ledger import test_ledger
from tests.support.postgres import Cluster
from tests.support.server.campaigns import start


@pytest.fixture
def path(cluster: Cluster, tmp_path: Path) -> InDatabase:
    return cluster.place(tmp_path)


@pytest.fixture
def ledger(path: InDatabase) -> Iterator[Ledger]:
    with start(path) as made:
        yield made


#: Tests of the file itself.
_OF_FILES = {
    "test_files_are_for_this_user_alone",
    "test_commits_are_durable_by_the_files_own_settings",
    "test_two_servers_never_share_a_ledger",
    "test_a_ledger_that_is_not_there_or_not_one_is_told_apart",
    "test_an_interrupted_creation_leaves_nothing_in_the_way",
    "test_a_log_without_its_ledger_is_not_replayed_into_a_new_one",
    "test_a_folder_that_others_may_write_to_is_refused",
    "test_a_full_disk_is_a_disk_error_and_the_ledger_goes_on_from_the_file",
    "test_the_published_head_does_not_tell_votes_apart",
}


def _tests() -> dict[str, object]:
    return {name: made for name, made in vars(test_ledger).items() if name.startswith("test_")}


globals().update({name: made for name, made in _tests().items() if name not in _OF_FILES})
