"""The signature under a schema of synthetic queries: made by a coordinator, checked by parties.

What is signed is the file, byte by byte, so nothing depends on how JSON is written. The signature
lies beside it in a file of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pate.errors import SchemaError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEMA_FORMAT: Final = "pate-synthesis-schema/1"
SIGNATURE_FORMAT: Final = "pate-synthesis-schema-signature/1"
#: Of the file beside a schema, after the schema's own name.
SUFFIX: Final = ".sig"
#: Largest schema, in bytes.
MAX_SCHEMA: Final = 4 << 20
_MAX_SIGNATURE: Final = 1024
_DOMAIN: Final = b"pate/v1/synthesis-schema\0"


def parse(content: bytes) -> dict[str, object]:
    """Return the fields of a schema file: JSON, of the right kind, and nothing more is checked.

    Raises:
        SchemaError: if it is too large, no JSON object, names a field twice, or is another file.
    """
    found = _object(content, MAX_SCHEMA, "schema")
    if found.get("format") != SCHEMA_FORMAT:
        raise SchemaError(f"no file of the format {SCHEMA_FORMAT}; was it made by another version?")
    return found


def sign(content: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the signature file of a schema.

    Args:
        content: the schema file.
        key: the signing key that parties pinned when they enrolled.

    Raises:
        SchemaError: if this is no schema file.
    """
    parse(content)
    fields = {
        "format": SIGNATURE_FORMAT,
        "key": key.public_key().public_bytes_raw().hex(),
        "signature": key.sign(_DOMAIN + content).hex(),
    }
    return json.dumps(fields, indent=1).encode() + b"\n"


def verify(content: bytes, signature: bytes, key: bytes) -> None:
    """Check that a schema was signed with a campaign's key.

    Args:
        content: the schema file.
        signature: the signature file.
        key: Ed25519 public key, 32 bytes; what the signature file says of its key is not relied on.

    Raises:
        SchemaError: if it was not.
    """
    fields = _object(signature, _MAX_SIGNATURE, "signature of a schema")
    text = fields.get("signature")
    if fields.get("format") != SIGNATURE_FORMAT or not isinstance(text, str) or len(text) != 128:
        raise SchemaError(f"no file of the format {SIGNATURE_FORMAT}")
    if fields.get("key") != key.hex():
        raise SchemaError(
            "the schema is signed, but not with the key of the server that you are enrolled with; "
            "ask its coordinator for the schema and its signature"
        )
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(text), _DOMAIN + content)
    except (InvalidSignature, ValueError) as error:
        raise SchemaError(
            "the schema is not the one that was signed: it was altered; ask for it again"
        ) from error


def _object(content: bytes, most: int, what: str) -> dict[str, object]:
    if len(content) > most:
        raise SchemaError(f"a {what} of {len(content)} bytes; at most {most} are read")
    try:
        found = json.loads(content.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"no {what}: {error!s:.200}") from error
    if not isinstance(found, dict):
        raise SchemaError(f"no {what}: not a JSON object")
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no number of JSON")
