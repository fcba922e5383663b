"""Failpoints: named places at which a test may kill the process, as a power cut would.

A process started with ``PATE_FAILPOINT=name`` (or ``name:3`` for the third time) sends itself
SIGKILL when it reaches the place of that name. Without the variable a failpoint costs one
comparison. The names are the steps at which a crash must neither lose nor duplicate anything: of the
campaign, of enrolment, and of the state in a home.
"""

from __future__ import annotations

import os
import signal
from typing import Final

#: All failpoints; a misspelt name in a test is an error.
NAMES: Final = frozenset({
    # any process
    "file-drafted",         # the new content of a file is durable, the old one is in its place
    # server: its identity and its parties
    "identity-drafted",     # authority, certificate and keys are durable, under another name
    "bundle-handed-over",   # a party's bundle is on disk, its code is not open
    "parties-changed",      # the invitation or enrolment is durable, not announced
    # server: the campaign
    "public-set-stored",    # the public set is on disk, there is no ledger
    "ledger-drafted",       # the ledger has its first entry, under another name
    "ledger-created",       # the ledger is in its place, no port is open
    "entry-written",        # any entry of the ledger: written, not committed
    "roster-recorded",      # the roster is in the ledger, no votes were requested
    "opening-listed",       # the survivors of a sum are in the ledger, no unmasking was requested
    "votes-arrived",        # all votes have arrived, none is on disk
    "votes-recorded",       # the histogram is on disk
    "charge-recorded",      # the charge is durable, no noise was drawn
    "noise-drawn",          # labels exist only in memory
    "release-recorded",     # the labels are durable
    "model-made",           # the model of the next round is only in memory
    "model-recorded",       # it is durable, the round has not ended
    "round-ended",          # a round's end is durable
    "campaign-closed",      # the end is durable, the parties do not know of it
    "farewell-said",        # the parties are notified, not yet noted on disk
    "parties-told",         # their notification is noted on disk
    # server: envelopes
    "envelope-noted",       # the digest of an envelope is on disk, it is not outside
    "answer-taken",         # an answer is on disk, the campaign has not gone on
    "replies-deleted",      # those of earlier sums are deleted, nothing was asked for the next one
    # server: the student
    "label-sent",           # a label has left, the next one has not
    "predictions-arrived",  # the student's predictions are only in memory
    "predictions-recorded", # they are durable, the student does not know it
    # party: enrolment
    "enrolment-pending",    # the keys are durable, no answer has left
    "enrolment-answered",   # the answer has left, not yet noted on disk
    "enrolment-accepted",   # the enrolment is durable, the one it replaces still exists
    "identity-settled",     # the identity key is in its place, and still in the enrolment
    # party: the campaign
    "teacher-trained",      # a teacher is in memory, not yet on disk
    "party-entry-written",  # any entry of its ledger: written, not committed
    "offer-recorded",       # its joining is durable, the server does not know
    "public-set-kept",      # the public set is on disk, the server does not know
    "answer-recorded",      # the answer is in its ledger, no vote was computed
    "voting",               # votes are computed, neither cached nor sent
    "votes-cached",         # votes are on disk, and have not left
    "noise-share-drawn",    # its share of the noise is only in memory
    "noise-share-kept",     # the share is durable, nothing was masked with it
    "shares-sent",          # masked votes are requested, so its shares have arrived
    "votes-proved",         # the proof of its masked votes is made, and has not left
    "masked-sent",          # the list of survivors is received, so its masked vote has arrived
    "survivors-signed",     # the list is signed, and the signature has not left
    "opening-recorded",     # the unmasking is in its ledger, its shares have not left
    "bundles-kept",         # bundles are durable, and have not left
    "round-begun",          # the bundles of a round are bound to it, no votes were computed
    "masked-kept",          # the masked votes of a round are durable, and have not left
    "list-signed",          # the list of survivors of a round is fixed, its signature has not left
    "list-kept",            # the list is fixed, the shares have not left
    "ending-recorded",      # the end is in its ledger, the server does not know
    # party: envelopes
    "envelope-answered",    # the answer is on its disk, neither in its ledger nor outside
    "envelope-recorded",    # the answer is in its ledger, and has not appeared
    # party: synthetic rows
    "party-synthesis-reserved", # their cost is in its ledger, no record was read
    "party-synthesis-written",  # the file is in its place, the ledger does not know
})  # fmt: skip

_seen = 0


def reach(name: str) -> None:
    """Kill this process if the environment names this failpoint."""
    global _seen  # one process, one failpoint: passes are counted per process
    if name not in NAMES:
        raise ValueError(f"no failpoint is called {name!r}")
    wanted, _, times = os.environ.get("PATE_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    _seen += 1
    if _seen >= int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
