"""What must be refused: contexts, messages to a party of the run, and messages to its server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pate.masking import shamir
from pate.masking.announced import Announced, sign_keys
from pate.masking.context import VERSION
from pate.masking.keys import KeyPair, Keys, seal
from pate.masking.party import PartyMasking
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.vector_run import NAMES, Run, fixed, iter_of, plain

Bad = dict[str, Any]

PRIME_25519 = 2**255 - 19
#: Of X25519, the points of low order, on the curve and on its twist.
LOW_ORDER = (
    0,
    1,
    PRIME_25519 - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)


def flipped(raw: bytes, at: int = 0) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def of_context(run: Run) -> list[Bad]:
    """Contexts that cannot be built."""
    good = plain(run.context)
    members = good["members"]
    changes: list[tuple[str, dict[str, object], str]] = [
        ("another version", {"version": VERSION + 1}, f"version {VERSION + 1}"),
        ("a short campaign id", {"campaign": "00" * 15}, "15 bytes"),
        ("a long attempt id", {"attempt": "00" * 17}, "17 bytes"),
        ("a short batch hash", {"batch": ""}, "0 bytes"),
        ("a short terms hash", {"terms": "00"}, "1 bytes"),
        ("a roster out of order", {"members": members[::-1]}, "not sorted"),
        ("a repeated name", {"members": [members[0], *members]}, "name twice"),
        (
            "a repeated identity",
            {"members": [members[0], {**members[1], "identity": members[0]["identity"]},
                         *members[2:]]},
            "one identity",
        ),
        ("an empty name", {"members": [{**members[0], "name": ""}, *members[1:]]}, "name"),
        (
            "a name with a line break",
            {"members": [{**members[0], "name": "a\nb"}, *members[1:]]},
            "printable",
        ),
        (
            "a short identity",
            {"members": [{**members[0], "identity": "00" * 31}, *members[1:]]},
            "31 bytes",
        ),
        ("no queries", {"rows": 0}, "0 queries"),
        ("too many counts", {"rows": 2**28}, "too many"),
        ("a ring of 12 bits", {"bits": 12}, "8, 16 or 32"),
        ("more survivors than parties", {"threshold": 6}, "more than n"),
        ("sums that could be one party's", {"threshold": 3, "colluders": 2}, "at least 2"),
        ("room for two lists of survivors", {"threshold": 3, "colluders": 1}, "n + c"),
        ("fewer than no colluders", {"colluders": -1}, "negative"),
    ]  # fmt: skip
    return [
        {"name": name, "call": "context", "given": {**good, **change}, "error": "ProtocolError",
         "says": says}
        for name, change, says in changes
    ]  # fmt: skip


def resigned(run: Run, name: str, **change: bytes) -> Keys:
    """Keys that a party has made otherwise and signed rightly."""
    bare = replace(run.keys[name], **change)
    return sign_keys(run.context, name, run.identities[name], bare)


def of_keys(run: Run) -> dict[str, tuple[Keys, str]]:
    """Keys of bergen that every party refuses."""
    keys = run.keys["bergen"]
    other = replace(run.context, attempt=fixed("another attempt", 16))
    prime = PRIME_25519.to_bytes(32, "little")
    low = {
        f"a {kind.replace('_', ' ')} of low order, {at}": (
            resigned(run, "bergen", **{kind: point.to_bytes(32, "little")}), "low order",
        )
        for kind in ("mask_key", "share_key")
        for at, point in enumerate(LOW_ORDER)
    }  # fmt: skip
    return {
        **low,
        "a wrong signature": (replace(keys, signature=flipped(keys.signature)), "not signed"),
        "a signature by another party": (
            sign_keys(run.context, "bergen", run.identities["aachen"], keys), "not signed",
        ),
        "another context": (sign_keys(other, "bergen", run.identities["bergen"], keys), "not signed"),
        "a mask key that a server put in its place": (
            replace(keys, mask_key=KeyPair(fixed("a server's key")).public), "not signed",
        ),
        "another commitment": (
            replace(keys, seed_commitment=flipped(keys.seed_commitment)), "not signed",
        ),
        "a truncated signature": (replace(keys, signature=keys.signature[:-1]), "63 bytes"),
        "a truncated mask key": (replace(keys, mask_key=keys.mask_key[:-1]), "31 bytes"),
        "a long share key": (replace(keys, share_key=keys.share_key + b"\0"), "33 bytes"),
        "a key in a second written form": (
            resigned(run, "bergen", mask_key=prime), "one written form",
        ),
        "a key with its highest bit set": (
            resigned(run, "bergen", share_key=keys.share_key[:31] + bytes([keys.share_key[31] | 128])),
            "one written form",
        ),
        "one key for both uses": (resigned(run, "bergen", share_key=keys.mask_key), "two uses"),
        "a key of another party": (
            resigned(run, "bergen", mask_key=run.keys["aachen"].mask_key), "aachen",
        ),
    }  # fmt: skip


def to_party(name: str, call: str, given: object, error: str, says: str) -> Bad:
    """Something that cádiz refuses."""
    return {
        "name": name, "to": "cádiz", "call": call, "given": plain(given), "error": error,
        "says": says,
    }  # fmt: skip


def to_server(name: str, call: str, given: list[object], says: str) -> Bad:
    """Something that the server refuses: arguments of a call, or after them of its advance."""
    return {
        "name": name, "to": "server", "call": call, "given": plain(given),
        "error": "ProtocolError", "says": says,
    }  # fmt: skip


def of_shares(run: Run) -> list[Bad]:
    found = [
        to_party(name, "shares", {**run.keys, "bergen": keys}, "ProtocolError", says)
        for name, (keys, says) in of_keys(run).items()
    ]
    own = run.keys["cádiz"]
    few = {name: run.keys[name] for name in NAMES[1:3]}
    protocol = "ProtocolError"
    return [
        *found,
        to_party("survivors too few from the start", "shares", few, "QuorumError", "3 are needed"),
        to_party("a stranger's keys", "shares", {**run.keys, "fulda": run.keys["espoo"]}, protocol,
                 "6 parties"),
        to_party("a stranger's keys in a party's place", "shares",
                 {**few, "cádiz": own, "fulda": run.keys["espoo"]}, protocol, "not in the roster"),
        to_party("keys without one's own", "shares",
                 {name: keys for name, keys in run.keys.items() if name != "cádiz"}, protocol,
                 "missing"),
        to_party("one's own keys changed", "shares",
                 {**run.keys, "cádiz": resigned(run, "cádiz", seed_commitment=bytes(32))}, protocol,
                 "other keys"),
    ]  # fmt: skip


def of_boxes(run: Run) -> list[Bad]:
    boxes = run.boxes_for("cádiz")
    good, sender = boxes["bergen"], KeyPair(run.secret("bergen", 1))

    def sealed(shares: tuple[int, int], known: Announced = run.announced) -> bytes:
        about = known.box("bergen", "cádiz")
        return seal(sender, known.keys["cádiz"].share_key, "cádiz", about, shares)

    def said(name: str, box: bytes, says: str) -> Bad:
        return to_party(name, "mask", {**boxes, "bergen": box}, "ProtocolError", says)

    other = replace(run.context, attempt=fixed("another attempt", 16))
    elsewhere = Announced(other, {
        name: sign_keys(other, name, run.identities[name], keys) for name, keys in run.keys.items()
    })  # fmt: skip
    return [
        said("a truncated box", good[:-1], "81 bytes"),
        said("a long box", good + b"\0", "83 bytes"),
        said("an empty box", b"", "0 bytes"),
        said("a changed box", flipped(good, 40), "does not open"),
        said("a changed tag", flipped(good, 81), "does not open"),
        said("a box for another party", run.boxes["bergen"]["aachen"], "does not open"),
        said("a box of another party", boxes["aachen"], "does not open"),
        said("one's own box sent back", run.boxes["cádiz"]["bergen"], "does not open"),
        said("a box of another attempt", sealed((1, 2), elsewhere), "does not open"),
        said("a seed share out of the field", sealed((shamir.PRIME, 1)), "no element"),
        said("a key share out of the field", sealed((1, 2**264 - 1)), "no element"),
        to_party("too few boxes", "mask", {"bergen": good}, "QuorumError", "3 are needed"),
        to_party("a stranger's box", "mask", {**boxes, "fulda": good}, "ProtocolError",
                 "not in the roster"),
        to_party("a box from oneself", "mask", {**boxes, "cádiz": good}, "ProtocolError",
                 "does not mask with"),
    ]  # fmt: skip


def of_repeats(run: Run) -> list[Bad]:
    """Another request in a phase that was answered."""
    others: dict[str, object] = {
        "shares": {name: run.keys[name] for name in NAMES[:4]},
        "mask": {name: box for name, box in run.boxes_for("cádiz").items() if name != "delft"},
        "sign_survivors": NAMES[:4],
        "unmask": {**run.signatures, "bergen": run.signatures["aachen"]},
    }
    return [
        {**to_party(f"{call} a second time, otherwise", call, given, "RefusedError",
                    "a second time"),
         "again": True}
        for call, given in others.items()
    ]  # fmt: skip


def of_survivors(run: Run) -> list[Bad]:
    def said(name: str, survivors: list[str], says: str, error: str = "ProtocolError") -> Bad:
        return to_party(name, "sign_survivors", survivors, error, says)

    return [
        said("a repeated name", ["aachen", "bergen", "cádiz", "cádiz"], "twice"),
        said("survivors too few", ["bergen", "cádiz"], "3 are needed", "QuorumError"),
        said("a list without oneself", ["aachen", "bergen", "delft"], "without it"),
        said("a stranger survives", ["aachen", "cádiz", "fulda"], "not in the roster"),
        said("a survivor that sealed no box", ["aachen", "cádiz", "espoo"], "its box never came"),
        said("no survivors", [], "3 are needed", "QuorumError"),
    ]


def of_signatures(run: Run) -> list[Bad]:
    good = run.signatures
    protocol = "ProtocolError"
    # Bergen signs, too, that delft has survived, to show two lists to others.
    twice = PartyMasking(
        run.context, name="bergen", identity=run.identities["bergen"],
        random=iter_of(run.drawn["bergen"]),
    )  # fmt: skip
    twice.keys()
    twice.shares(run.keys)
    twice.mask(run.boxes_for("bergen"), run.votes["bergen"])
    other_list = twice.sign_survivors(NAMES[:4])

    def said(name: str, signature: bytes, says: str) -> Bad:
        return to_party(name, "unmask", {**good, "bergen": signature}, protocol, says)

    return [
        said("a wrong signature of the survivors", flipped(good["bergen"]), "not signed by bergen"),
        said("a signature of other survivors", other_list, "not signed by bergen"),
        said("a signature of another party", good["aachen"], "not signed by bergen"),
        said("a signature of keys in its place", run.keys["bergen"].signature, "not signed by"),
        said("a truncated signature", good["bergen"][:-1], "63 bytes"),
        to_party("signatures too few", "unmask", {n: good[n] for n in NAMES[1:3]}, "QuorumError",
                 "3 are needed"),
        to_party("a signature of no survivor", "unmask",
                 {**good, "delft": run.identities["delft"].sign(b"anything")}, protocol,
                 "not on"),
        to_party("a stranger's signature", "unmask", {**good, "fulda": good["aachen"]}, protocol,
                 "not in the roster"),
    ]  # fmt: skip


def of_server(run: Run) -> list[Bad]:
    keys = [
        to_server(name, "take_keys", ["bergen", each], says)
        for name, (each, says) in of_keys(run).items()
    ]
    boxes, masked = run.boxes["bergen"], run.masked["bergen"]
    opening = run.openings["bergen"]
    some = dict(boxes)
    del some["espoo"]
    seeds, key_shares = dict(opening.seed_shares), dict(opening.key_shares)
    wrong = {**seeds, "aachen": flipped(seeds["aachen"])}
    without = {name: share for name, share in seeds.items() if name != "aachen"}
    large = {**seeds, "aachen": shamir.PRIME.to_bytes(33, "little")}
    return [
        *keys,
        to_server("a stranger's keys", "take_keys", ["fulda", run.keys["bergen"]], "fulda"),
        to_server("keys under another name", "take_keys", ["delft", run.keys["bergen"]],
                  "not signed"),
        to_server("a box missing", "take_boxes", ["bergen", some], "each of its neighbours"),
        to_server("a box for oneself", "take_boxes", ["bergen", {**boxes, "bergen": bytes(82)}],
                  "each of its neighbours"),
        to_server("a truncated box", "take_boxes",
                  ["bergen", {**boxes, "aachen": boxes["aachen"][:-1]}], "81 bytes"),
        to_server("masked votes cut short", "take_masked", ["bergen", masked[:-2]], "10 bytes"),
        to_server("masked votes too long", "take_masked", ["bergen", masked * 2], "24 bytes"),
        to_server("masked votes of who sealed no boxes", "take_masked", ["espoo", masked],
                  "missed a phase"),
        to_server("a wrong signature of the survivors", "take_signature",
                  ["bergen", flipped(run.signatures["bergen"])], "not signed by bergen"),
        to_server("a signature of who dropped out", "take_signature",
                  ["delft", run.signatures["bergen"]], "missed a phase"),
        to_server("a share out of the field", "take_unmasking",
                  ["bergen", UnmaskingShares(large, key_shares)], "no element"),
        to_server("a truncated share", "take_unmasking",
                  ["bergen", UnmaskingShares({**seeds, "aachen": bytes(32)}, key_shares)], "33 bytes"),
        to_server("a share missing", "take_unmasking", ["bergen", UnmaskingShares(without, key_shares)],
                  "each survivor"),
        to_server("no key shares", "take_unmasking", ["bergen", UnmaskingShares(seeds, {})], "each dropout"),
        to_server("both secrets of one party", "take_unmasking",
                  ["bergen", UnmaskingShares(seeds, {**key_shares, "aachen": bytes(33)})], "each dropout"),
        {**to_server("a wrong share, and none to spare", "take_unmasking",
                     ["bergen", UnmaskingShares(wrong, key_shares)], "do not give it back"),
         "refused_by": "advance"},
    ]  # fmt: skip


def bad_messages(run: Run) -> list[Bad]:
    """All that a party or the server refuses."""
    return [
        *of_shares(run),
        *of_boxes(run),
        *of_survivors(run),
        *of_signatures(run),
        *of_repeats(run),
        *of_server(run),
    ]
