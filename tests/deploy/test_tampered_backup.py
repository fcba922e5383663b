"""An altered backup: whatever its manifest contains, only its role's own files are written."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from aggregator_server.cli.main import app as server_app
from aggregator_server.identities import Identities
from aggregator_server.ledger import backup as server_backup
from aggregator_server.results.report import LEDGER_FILE
from party import backup as party_backup
from party.cli.main import app as party_app
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE as PARTY_LEDGER
from party.ledger.ledger import PartyLedger
from party.voting.casting import NoiseShares
from pate.errors import DataError, PateError, StateError, UsageError
from pate.storage.manifest import MANIFEST, read_manifest
from tests.deploy.test_party_backup import BATCH, CAMPAIGN, VOTES, drawn
from tests.support.party.offers import answer_and_open, joining, queries, settled
from tests.support.server.campaigns import label, start

if TYPE_CHECKING:
    from collections.abc import Callable

ATTACKER = Ed25519PrivateKey.from_private_bytes(bytes([7]) * 32)
#: Files that a party creates in its home on a restore, in addition to the backup's.
MADE_BESIDE = {"lock", "ledger.head"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of either role, of a trial: it is not signed."""
    root = tmp_path_factory.mktemp("kept")
    home = root / "hospital_a"
    ledger = PartyLedger(home / PARTY_LEDGER)
    NoiseShares(home / party_backup.NOISE_FILE).share(CAMPAIGN, BATCH, VOTES, drawn, answered=False)
    ledger.join(joining())
    answer_and_open(ledger, settled(), queries(0, 2))
    party_backup.back_up(home, root / "party")
    folder = root / "home" / "spring"
    folder.mkdir(parents=True)
    (folder / "public.bin").write_bytes(b"the public set")
    with start(folder / LEDGER_FILE) as server_ledger:
        label(server_ledger)
        server_ledger.end_round(wants_predictions=False)
        server_ledger.finish()
    server_backup.back_up(folder, root / "server")
    return root


class Scene:
    """A copy of a backup, homes to restore it to, and other users' files next to them."""

    def __init__(self, root: Path, kept: Path, role: str) -> None:
        self.root, self.role = root, role
        self.place = root / "backups" / "monday"
        self.other = kept / ("party" if role == "server" else "server") / "ledger.db"
        self.homes, self.victim = root / "homes", root / "victim"
        shutil.copytree(kept / role, self.place)
        for path in (self.homes / "hospital_b", self.victim, self.homes / "identity"):
            path.mkdir(parents=True)
        (self.homes / "hospital_b" / "policy.toml").write_text("largest_epsilon = 1.0\n")
        (self.homes / "hospital_b" / "shard.key").write_bytes(bytes(32))
        (self.victim / "authorized_keys").write_text("ssh-ed25519 GOOD\n")
        self.fields: dict[str, Any] = json.loads((self.place / MANIFEST).read_text())
        self.head = self.fields["head"]
        self.forged: str | None = None
        self.fields["name"] = "hospital_b" if role == "party" else "spring"

    def add(self, name: str, content: bytes) -> None:
        """Make the backup name a file, and contain it if the name is possible."""
        self.fields["files"][name] = hashlib.sha256(content).hexdigest()
        if "\0" in name or name in ("", ".", ".."):
            return
        path = self.place / name
        try:
            path.relative_to(self.root)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(content)
        except (OSError, ValueError, UnicodeEncodeError):
            return  # it is elsewhere, or no name of a file

    def write(self, *, signed: bool) -> None:
        """Write the manifest as an attacker who knows the format, and has only another key."""
        fields = {key: value for key, value in self.fields.items() if key != "signature"}
        signature = ""
        if signed:
            fields["signer"] = ATTACKER.public_key().public_bytes_raw().hex()
            text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
            signature = ATTACKER.sign(b"pate/v1/backup/" + text.encode()).hex()
        fields["signature"] = signature if self.forged is None else self.forged
        (self.place / MANIFEST).write_text(json.dumps(fields))

    def restore(self, **options: Any) -> Path:
        """Put the backup back; return where to."""
        if self.role == "party":
            home = party_backup.named_home(self.place, self.homes)
            party_backup.restore(self.place, home, head=self.head, **options)
            return home
        from aggregator_server.options import folder_of

        folder = folder_of(self.homes, read_manifest(self.place).name)
        server_backup.restore(self.place, folder, head=None, close=False, **options)
        return folder

    def allowed(self) -> set[Path]:
        """All paths that putting it back may make."""
        if self.role == "party":
            names = {*party_backup.CONTENTS.files, *MADE_BESIDE}
            return {self.homes / "hospital_b" / name for name in names}
        folder = self.homes / "spring"
        return {folder, *(folder / name for name in server_backup.CONTENTS.files)}


@pytest.fixture(params=["party", "server"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, kept: Path) -> Scene:
    made = Scene(tmp_path / "scene", kept, request.param)
    if made.role == "server":  # a trial; else what lies there is no identity
        (made.homes / "identity").rmdir()
    return made


def tree(root: Path) -> dict[Path, tuple[int, str]]:
    """Kind, mode and content of all that is below a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = ""
        if stat.S_ISREG(mode) and path.stat().st_size <= 2**20:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(mode):
            content = str(path.readlink())
        found[path] = (mode, content)
    return found


def changed(before: dict[Path, tuple[int, str]], after: dict[Path, tuple[int, str]]) -> set[Path]:
    """Return the new, changed and missing files."""
    return {path for path in before | after if before.get(path) != after.get(path)}


def sparse(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(2**36 + 1)


def as_link(scene: Scene, name: str) -> None:
    (scene.place / name).unlink()
    (scene.place / name).symlink_to(scene.victim / "authorized_keys")
    content = (scene.victim / "authorized_keys").read_bytes()
    scene.fields["files"][name] = hashlib.sha256(content).hexdigest()


def as_pipe(scene: Scene, name: str) -> None:
    (scene.place / name).unlink()
    os.mkfifo(scene.place / name)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def in_the_way(scene: Scene, name: str) -> None:
    """A name of the backup is a link in the home, which leads elsewhere."""
    home = scene.homes / ("hospital_b" if scene.role == "party" else "spring")
    home.mkdir(exist_ok=True)
    (home / name).symlink_to(scene.victim / "authorized_keys")


#: A file of a backup that is not its ledger.
SECOND = {"party": "noise.db", "server": "public.bin"}
VARIANTS: dict[str, Callable[[Scene], object]] = {
    "above": lambda s: s.add("../escaped", b"evil"),
    "far above": lambda s: s.add("../../victim/authorized_keys", b"evil"),
    "absolute": lambda s: s.add(str(s.victim / "authorized_keys"), b"evil"),
    "in a folder": lambda s: s.add("enrolments/evil/node.key", bytes(32)),
    "the policy": lambda s: s.add("policy.toml", b'campaigns = "any"\n'),
    "the identity": lambda s: s.add("identity.key", bytes(32)),
    "the shard key": lambda s: s.add("shard.key", bytes([1]) * 32),
    "the enrolment": lambda s: s.add("enrolment.json", b"{}"),
    "the mark": lambda s: s.add("ledger.head", b"0" * 86),
    "the lock": lambda s: s.add("lock", b""),
    "a log of the ledger": lambda s: s.add("ledger.db-wal", b"pages"),
    "where a ledger is": lambda s: s.add("ledger.json", b"{}"),
    "teachers": lambda s: s.add("votes.db", b"votes"),
    "keys of a login": lambda s: s.add("authorized_keys", b"evil"),
    "another letter": lambda s: s.add("NOISE.DB", b"evil"),
    "hidden": lambda s: s.add(".ssh", b"evil"),
    "no name": lambda s: s.add("", b"evil"),
    "a zero byte": lambda s: s.add("noise.db\0", b"evil"),
    "the other role's": lambda s: s.add(SECOND["server" if s.role == "party" else "party"], b""),
    "named above": lambda s: s.fields.update(name="../victim"),
    "named absolutely": lambda s: s.fields.update(name=str(s.victim)),
    "named a folder": lambda s: s.fields.update(name="."),
    "named the folder above": lambda s: s.fields.update(name=".."),
    "named nothing": lambda s: s.fields.update(name=""),
    "named below": lambda s: s.fields.update(name="hospital_b/enrolments"),
    "named with a zero byte": lambda s: s.fields.update(name="hospital\0"),
    "named at length": lambda s: s.fields.update(name="a" * 300),
    "of the other role": lambda s: s.fields.update(role="server" if s.role == "party" else "party"),
    "of no role": lambda s: s.fields.update(role="root"),
    "without its ledger": lambda s: s.fields["files"].pop("ledger.db"),
    "without files": lambda s: s.fields.update(files={}),
    "of many files": lambda s: s.fields["files"].update({f"f{at}": "0" * 64 for at in range(17)}),
    "files as a list": lambda s: s.fields.update(files=["ledger.db"]),
    "a flipped bit": lambda s: flipped(s.place / "ledger.db"),
    "another ledger": lambda s: shutil.copy(s.other, s.place / "ledger.db"),
    "a file that is not there": lambda s: (s.place / SECOND[s.role]).unlink(),
    "a link": lambda s: as_link(s, SECOND[s.role]),
    "a linked ledger": lambda s: as_link(s, "ledger.db"),
    "a pipe": lambda s: as_pipe(s, SECOND[s.role]),
    "a huge file": lambda s: sparse(s.place / SECOND[s.role]),
    "a manifest that is a link": lambda s: s.fields.update(files="link"),
    "a manifest that is a pipe": lambda s: s.fields.update(files="pipe"),
    "a link in the home": lambda s: in_the_way(s, SECOND[s.role]),
    "of another form": lambda s: s.fields.update(format=3),
    "a signature of zeros": lambda s: setattr(s, "forged", "0" * 128),
}


@pytest.mark.parametrize("role", ["party", "server"])
def test_a_manifest_that_was_altered_writes_nothing(tmp_path: Path, kept: Path, role: str) -> None:
    for at, (variant, signed) in enumerate(product(VARIANTS, (True, False))):
        made = Scene(tmp_path / str(at), kept, role)
        if role == "server":  # a trial; else what lies there is no identity
            (made.homes / "identity").rmdir()
        require_nothing_written(made, variant, signed=signed)
        shutil.rmtree(made.root)


def require_nothing_written(scene: Scene, variant: str, *, signed: bool) -> None:
    """Restore an altered backup, which must be refused."""
    VARIANTS[variant](scene)
    scene.write(signed=signed or scene.forged is not None)
    manifest = scene.place / MANIFEST
    if scene.fields["files"] in ("link", "pipe"):
        manifest.unlink()
        if scene.fields["files"] == "pipe":
            os.mkfifo(manifest)
        else:
            manifest.symlink_to(scene.victim / "authorized_keys")
    before = tree(scene.root)
    try:
        scene.restore()
    except PateError:
        pass
    else:
        raise AssertionError(f"{scene.role}, {variant}: it was put back")
    found = changed(before, tree(scene.root))
    assert found <= {scene.homes / "hospital_b" / "lock", *scene.allowed()}, variant
    written = {path for path in found if path.name not in MADE_BESIDE}
    assert not written, variant


def test_without_a_change_it_is_put_back(scene: Scene) -> None:
    """The control: without a change the restore succeeds."""
    for signed in (True, False):
        scene.write(signed=signed)
        before = tree(scene.root)
        home = scene.restore()
        found = changed(before, tree(scene.root))
        assert found <= scene.allowed()
        assert {path.name for path in found} >= set(scene.fields["files"])
        assert not list(home.glob(".*"))
        for name in scene.fields["files"]:
            assert (home / name).stat().st_mode & 0o777 == 0o600
            assert (home / name).stat().st_nlink == 1
            (home / name).unlink()
        for name in MADE_BESIDE:
            (home / name).unlink(missing_ok=True)
        if scene.role == "server":
            home.rmdir()


#: Parts of names that mean something to a file system, or to a role.
PARTS = st.sampled_from([
    "..", ".", "/", "a", "\0", "\n", "ledger.db", "noise.db", "public.bin", "-wal", "-shm", "victim",
    "authorized_keys", "policy.toml", "identity", ".key", "hospital_b", "enrolments", "campaign.key",
    "lock", "parties-told", "spring", "é", "\u202e", "%2e%2e", "\\", "~",
])  # fmt: skip
NAMES = st.one_of(
    st.lists(PARTS, max_size=6).map("".join),
    st.lists(PARTS, max_size=5).map("/".join),
    st.text(max_size=20),
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES,
        "role": st.sampled_from(["party", "server", "root"]),
        "ledger": st.text(max_size=8),
        "made_at": st.text(max_size=8),
        "format": st.sampled_from([0, 1, 2, 3, "2"]),
        "extra": st.none(),
        "signer": st.sampled_from(["", "0" * 64]),
    },
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    role=st.sampled_from(["party", "server"]),
    change=CHANGES,
    added=st.dictionaries(NAMES, st.binary(max_size=40), max_size=3),
    removed=st.sets(st.sampled_from(["ledger.db", "noise.db", "public.bin"])),
    signed=st.booleans(),
)
def test_whatever_a_manifest_says_only_files_of_a_backup_are_written(
    kept: Path,
    role: str,
    change: dict[str, Any],
    added: dict[str, bytes],
    removed: set[str],
    *,
    signed: bool,
) -> None:
    with tempfile.TemporaryDirectory(prefix="tampered.", dir=kept.parent) as where:
        scene = Scene(Path(where) / "scene", kept, role)
        (scene.homes / "identity").rmdir()
        for name in removed:
            scene.fields["files"].pop(name, None)
        for name, content in added.items():
            scene.add(name, content)
        scene.fields.update(change)
        scene.write(signed=signed)
        before = tree(Path(where))
        with contextlib.suppress(PateError):
            scene.restore()
        names = {"party": party_backup.CONTENTS, "server": server_backup.CONTENTS}[role].files
        for path in changed(before, tree(Path(where))):
            inside = path.relative_to(scene.homes)  # nothing next to the homes
            if len(inside.parts) == 2:
                assert inside.parts[1] in {*names, *(MADE_BESIDE if role == "party" else ())}
                assert path not in before, "nothing that was there is written over"
            else:
                assert len(inside.parts) == 1
                assert path not in before or path.is_dir()


def signed_scene(tmp_path: Path, kept: Path) -> tuple[Scene, Path]:
    """A backup that the party in its home signed, and the home without its ledger."""
    scene = Scene(tmp_path / "scene", kept, "party")
    home = scene.homes / "hospital_b"
    for name in ("ledger.db", "noise.db"):
        shutil.copy(scene.place / name, home / name)
    identity_key(home)
    shutil.rmtree(scene.place)
    made = party_backup.back_up(home, scene.place)
    assert made["signer"] == identity_key(home).public_key().public_bytes_raw().hex()
    for path in home.glob("*.db*"):
        path.unlink()
    scene.fields = json.loads((scene.place / MANIFEST).read_text())
    return scene, home


def test_a_party_takes_back_what_it_signed_and_nothing_that_another_did(
    tmp_path: Path, kept: Path
) -> None:
    scene, home = signed_scene(tmp_path, kept)
    own = (scene.place / MANIFEST).read_text()
    for altered in (
        own.replace("hospital_b", "hospital_c"),
        own.replace('"made_at": "2', '"made_at": "3'),
        own.replace(scene.fields["files"]["noise.db"], "0" * 64),
        own.replace(scene.fields["signer"], "1" * 64),
    ):
        assert altered != own
        (scene.place / MANIFEST).write_text(altered)
        with pytest.raises(DataError, match="its signature is invalid"):
            scene.restore()
    scene.write(signed=True)
    with pytest.raises(
        DataError, match=r"is signed by [0-9a-f]{64}, but [0-9a-f]{64} was expected"
    ):
        scene.restore()
    attacker = ATTACKER.public_key().public_bytes_raw().hex()
    (scene.place / MANIFEST).write_text(own)
    with pytest.raises(DataError, match="was expected"):
        scene.restore(signed_by=attacker)
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        scene.restore(signed_by="the usual one")
    (scene.place / MANIFEST).write_text(json.dumps({**scene.fields, "signer": "", "signature": ""}))
    with pytest.raises(DataError, match="is not signed, but the signer"):
        scene.restore()
    (scene.place / MANIFEST).write_text(own)
    assert scene.restore() == home
    # As after `enroll --new-identity`: the earlier key is named by whoever restores.
    for path in home.glob("*.db*"):
        path.unlink()
    (home / "identity.key").write_bytes(bytes(32))
    with pytest.raises(DataError, match="give that key"):
        scene.restore()
    scene.restore(signed_by=scene.fields["signer"].upper())


def test_no_campaign_comes_back_in_the_place_of_an_identity(tmp_path: Path, kept: Path) -> None:
    scene = Scene(tmp_path / "scene", kept, "server")
    (scene.homes / "identity").rmdir()
    scene.fields["name"] = "identity"
    scene.write(signed=False)
    with pytest.raises(UsageError, match="cannot be the name of a campaign"):
        scene.restore()
    assert [path.name for path in scene.homes.iterdir()] == ["hospital_b"]


def test_a_server_with_an_identity_takes_back_what_it_signed_alone(
    tmp_path: Path, kept: Path
) -> None:
    import datetime as dt

    scene = Scene(tmp_path / "scene", kept, "server")
    (scene.homes / "identity").rmdir()
    identities = Identities.create(scene.homes, [], 9092, dt.datetime.now(dt.UTC))
    with pytest.raises(DataError, match="is not signed"):
        scene.restore()
    scene.write(signed=True)
    with pytest.raises(DataError, match="was expected"):
        scene.restore()
    identity = (scene.homes / "identity").rename(scene.root / "identity")
    scene.write(signed=False)
    folder = scene.restore()
    identity.rename(scene.homes / "identity")
    shutil.rmtree(scene.place)
    made = server_backup.back_up(folder, scene.place)
    assert made["signer"] == identities.signing_key.public_key().public_bytes_raw().hex()
    shutil.rmtree(folder)
    assert scene.restore() == folder


@pytest.mark.parametrize("role", ["party", "server"])
def test_the_commands_say_who_signed(
    tmp_path: Path, kept: Path, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    scene = Scene(tmp_path / "scene", kept, role)
    scene.write(signed=True)
    command = ["restore", str(scene.place)]
    command += ["--head", scene.head] if role == "party" else []
    app = party_app if role == "party" else server_app
    done = CliRunner().invoke(app, command if role == "party" else ["ledger", *command])
    assert done.exit_code == 0, done.output
    attacker = ATTACKER.public_key().public_bytes_raw().hex()
    assert f"is signed by {attacker}" in "".join(done.output.split("\n")).replace("  ", " ")


def test_something_that_came_into_the_home_meanwhile_is_not_replaced(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between check and write: a file is created only if its name is free."""
    scene = Scene(tmp_path / "scene", kept, "party")
    scene.write(signed=False)
    late = scene.homes / "hospital_b" / "ledger.db"
    real = os.link

    def link(source: Path, target: Path) -> None:
        if target == late:
            late.write_bytes(b"another ledger")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StateError, match="nothing is overwritten"):
        scene.restore()
    assert late.read_bytes() == b"another ledger"
