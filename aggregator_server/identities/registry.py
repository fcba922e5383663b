"""The registry of enrolled parties: a small file that several processes change atomically.

A running ``pate-server`` reads it; ``enroll``, ``admit`` and ``revoke`` in other terminals change
it. Every change is made under a lock and replaces the whole file, so a reader sees the state before
or after it, and detects a change by the file's inode and time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from pate.errors import DiskError, PateError, RefusedError, StateError, UsageError
from pate.exact import in_text, parse, read, write
from pate.formats.enrolment import Answer, SealingKey, check_name, node_key
from pate.runtime.failpoints import reach
from pate.runtime.home import open_private, sweep_drafts, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_FORMAT: Final = "pate-parties/1"
#: The file of thousands of parties is far smaller.
_LARGEST: Final = 2**28
INVITED: Final = "invited"
ENROLLED: Final = "enrolled"
REVOKED: Final = "revoked"
#: Identifies a state of the file: its inode, time of change and size.
Stamp = tuple[int, int, int]
#: Errors of opening that do not mean a change: this process lacks resources.
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass(frozen=True)
class Invitation:
    """An issued, unused one-time code."""

    # stored in place of the code, 32 bytes; see :func:`pate.formats.enrolment.verifier_of`
    verifier: bytes
    expires: int  # in seconds since 1970

    def __post_init__(self) -> None:
        if len(self.verifier) != 32:
            raise StateError(f"the verifier of a code has {len(self.verifier)} bytes")


@dataclass(frozen=True)
class Entry:
    """The registry's entry of one party. Times are in seconds since 1970."""

    name: str
    # :data:`INVITED` (it has never answered), :data:`ENROLLED` or :data:`REVOKED`
    state: Literal["invited", "enrolled", "revoked"]
    identity: bytes  # its Ed25519 public key (32 bytes), or empty
    node: bytes  # the public key of its SuperNode (DER), or empty
    changed: int
    retired: tuple[bytes, ...] = ()  # hashes of keys that it must not use again, ascending
    invitation: Invitation | None = field(default=None, metadata=in_text(name="code"))
    # the sealing key that it had last, None before it has answered: it may have made another one
    # since
    sealing: SealingKey | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.state != INVITED:
            node_key(self.node)
            if len(self.identity) != 32:
                raise StateError(f"the identity key of {self.name} has {len(self.identity)} bytes")
            if self.sealing is None:
                raise StateError(f"{self.name} has no sealing key")


class Registry:
    """The parties in one file."""

    def __init__(self, path: Path) -> None:
        """Open the registry at ``path``; nothing is read yet."""
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._read_last: tuple[Stamp, Mapping[str, Entry]] | None = None

    @staticmethod
    def empty() -> bytes:
        """Return the content of a registry without parties."""
        return _write({})

    def stamp(self) -> Stamp | None:
        """Return a value that changes whenever the registry does; None if it cannot be read now."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def parties(self) -> Mapping[str, Entry]:
        """Return all parties by name, sorted.

        A process out of file handles gets the last content, if the file is unchanged.
        """
        stamp = self.stamp()
        try:
            found = _read(self._path.read_bytes())
        except OSError as error:
            if error.errno not in _SHORT:
                raise StateError(
                    f"{self._path} cannot be read ({error.strerror}); restore it from a backup"
                ) from error
            if self._read_last is None or self._read_last[0] != stamp:
                raise StateError(
                    f"{self._path} cannot be read now ({error.strerror}), though it is intact: "
                    "raise the limit of open files (`ulimit -n`), or wait"
                ) from error
            return self._read_last[1]
        except PateError as error:
            raise StateError(
                f"{self._path} is damaged ({error}); restore it from a backup"
            ) from error
        if stamp is not None:
            self._read_last = stamp, found
        return found

    def invite(
        self,
        name: str,
        verifier: bytes,
        *,
        now: int,
        expires: int,
        again: bool,  # whether an enrolled or revoked party may enrol again
        # stores the code for the party. It is called last; if it raises, no code is opened or
        # invalidated
        hand_over: Callable[[], None] = lambda: None,
    ) -> None:
        """Open a code for a party; an earlier open code becomes invalid."""
        check_name(name)
        with self._changing() as table:
            entry = table.get(name) or Entry(name, INVITED, b"", b"", now)
            if entry.state != INVITED and not again:
                raise UsageError(
                    f"{name} is already {entry.state}; --again lets it enrol with new keys"
                    + (", and keeps the old ones until it has" if entry.state == ENROLLED else "")
                )
            hand_over()
            reach("bundle-handed-over")
            table[name] = replace(entry, invitation=Invitation(verifier, expires))

    def take(self, answer: Answer, *, authority: bytes, now: int) -> bool:
        """Accept the keys of a party; its code is then used.

        ``authority``: fingerprint of the server's authority.

        Returns false if exactly these keys were accepted before; nothing changes then.
        """
        answer.check_keys(authority)
        with self._changing() as table:
            entry = table.get(answer.name)
            code = None if entry is None else entry.invitation
            # The same work for known and unknown names.
            fits = answer.made_with(bytes(32) if code is None else code.verifier, authority)
            if (
                entry is not None
                and (entry.state, entry.identity, entry.node)
                == (ENROLLED, answer.identity, answer.node)
                and not fits
            ):
                return False  # the sender missed the confirmation
            if entry is None or code is None:
                raise RefusedError(
                    f"no code is open for {answer.name}: it was used or never issued"
                )
            if code.expires <= now:
                raise RefusedError(f"the code of {answer.name} has expired")
            if not fits:
                raise RefusedError(f"an answer in the name of {answer.name} has a wrong code")
            _check_keys_are_new(table, answer)
            kept = {answer.identity, answer.node}
            gone = {_mark(k) for k in (entry.identity, entry.node) if k and k not in kept}
            table[answer.name] = Entry(
                answer.name,
                ENROLLED,
                answer.identity,
                answer.node,
                now,
                retired=tuple(sorted({*entry.retired, *gone})),
                sealing=answer.sealing,
            )
        return True

    def seal(self, name: str, identity: bytes, sealing: SealingKey) -> None:
        """Record the sealing key that an enrolled party has now.

        ``identity``: its identity key, 32 bytes, which signed the sealing key; of a party with
        another one now, or none, nothing is recorded.
        """
        with self._changing() as table:
            entry = table.get(name)
            if entry is not None and (entry.state, entry.identity) == (ENROLLED, identity):
                table[name] = replace(entry, sealing=sealing)

    def revoke(self, name: str, *, now: int) -> str:
        """Revoke a party permanently, with its keys and any open code. Returns its earlier state."""
        with self._changing() as table:
            entry = table.get(name)
            if entry is None:
                raise UsageError(f"there is no party {name!r}; `pate-server parties` lists them")
            if entry.state == INVITED:
                del table[name]
            else:
                table[name] = replace(
                    entry,
                    state=REVOKED,
                    changed=entry.changed if entry.state == REVOKED else now,
                    invitation=None,
                )
            return entry.state

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, Entry]]:
        """Lock, provide the parties, and write them if the block changed them."""
        try:
            handle = open_private(self._lock)
        except OSError as error:
            raise DiskError(f"cannot write {self._lock}: {error.strerror}") from error
        with handle as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            sweep_drafts(self._path.parent, self._path.name)
            before = self.parties()
            table = dict(before)
            yield table
            if table != before:
                write_file(self._path, _write(table))
                reach("parties-changed")


def _check_keys_are_new(table: Mapping[str, Entry], answer: Answer) -> None:
    """Check that no key of an answer belongs to another party or was retired."""
    for entry in table.values():
        same = entry.name == answer.name and entry.state == ENROLLED
        for key, known in ((answer.identity, entry.identity), (answer.node, entry.node)):
            if _mark(key) in entry.retired or (key == known and not same):
                raise RefusedError(
                    f"a key in the answer of {answer.name} is, or was, a key of {entry.name}: "
                    "each party makes its own, and a revoked one makes a new identity "
                    "(`pate-party enroll --new-identity`)"
                )


def _mark(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _write(table: Mapping[str, Entry]) -> bytes:
    parties = {name: write(entry) for name, entry in sorted(table.items())}
    for fields in parties.values():
        del fields["name"]
    return json.dumps({"format": _FORMAT, "parties": parties}, indent=1).encode() + b"\n"


def _read(content: bytes) -> dict[str, Entry]:
    """Read the file."""
    found = parse(content, most=_LARGEST, error=StateError, what="it", form=_FORMAT)
    parties = found.get("parties")
    if found.keys() != {"parties"} or not isinstance(parties, dict):
        raise StateError("it has no table of parties")
    table = {name: _entry(name, fields) for name, fields in parties.items()}
    for key in ("identity", "node"):
        known = [getattr(e, key) for e in table.values() if e.state == ENROLLED]
        if len(known) != len(set(known)):
            raise StateError(f"two parties with one {key} key")
    return table


def _entry(name: str, fields: object) -> Entry:
    named = {"name": name, **fields} if isinstance(fields, dict) else fields
    return read(Entry, named, error=StateError, what=f"{name!r:.80}")
