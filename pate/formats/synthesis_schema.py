"""The signature under a schema of synthetic queries, in a file of its own.

It covers the bytes of the schema's file, so that nothing depends on the form of its JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pate.errors import SchemaError
from pate.exact import parse as parse_object
from pate.exact import read, write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SCHEMA_FORMAT: Final = "pate-synthesis-schema/1"
SIGNATURE_FORMAT: Final = "pate-synthesis-schema-signature/1"
#: Prefix in a draft where a person has to decide.
TODO: Final = "TODO"
#: Suffix of the signature file, after the schema's own name.
SUFFIX: Final = ".sig"
#: Largest schema, in bytes.
MAX_SCHEMA: Final = 4 << 20
_MAX_SIGNATURE: Final = 1024
_DOMAIN: Final = b"pate/v1/synthesis-schema\0"


@dataclass(frozen=True)
class _Signature:
    key: bytes
    signature: bytes


def parse(content: bytes) -> dict[str, object]:
    """Return the fields of a schema file: JSON, of the right kind, and nothing more is checked."""
    return parse_object(
        content, most=MAX_SCHEMA, error=SchemaError, what="no schema", form=SCHEMA_FORMAT
    )


def numeric_of(content: bytes) -> dict[str, bool]:
    """Return the features of a schema file, or of a draft of one, and whether each holds numbers."""
    fields = parse(content)
    columns = fields.get("columns")
    found: dict[str, bool] = {}
    for column in columns if isinstance(columns, list) else []:
        if not isinstance(column, dict) or column.get("kind") not in ("number", "category"):
            raise SchemaError("one of its columns is neither of the kind number nor category")
        if column.get("name") != fields.get("label"):
            found[str(column.get("name"))] = column["kind"] == "number"
    if not found:
        raise SchemaError("it has no columns")
    return found


def sign(content: bytes, key: Ed25519PrivateKey) -> bytes:
    """Return the signature file of a schema, by the key that parties pinned when they enrolled."""
    parse(content)
    made = _Signature(key.public_key().public_bytes_raw(), key.sign(_DOMAIN + content))
    fields = {"format": SIGNATURE_FORMAT, **write(made)}
    return json.dumps(fields, indent=1).encode() + b"\n"


def verify(content: bytes, signature: bytes, key: bytes) -> None:
    """Check that a campaign's public Ed25519 key signed a schema, else raise SchemaError.

    The key that the file of the signature names is not trusted.
    """
    what = "no signature of a schema"
    fields = parse_object(
        signature, most=_MAX_SIGNATURE, error=SchemaError, what=what, form=SIGNATURE_FORMAT
    )
    given = read(_Signature, fields, error=SchemaError, what=what)
    if given.key != key:
        raise SchemaError(
            "the schema is signed, but not with the key of the server that you are enrolled with; "
            "ask its coordinator for the schema and its signature"
        )
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(given.signature, _DOMAIN + content)
    except (InvalidSignature, ValueError) as error:
        raise SchemaError(
            "the schema is not the one that was signed: it was altered; ask for it again"
        ) from error
