"""Generate code from the .proto files: ``make protos``.

The generated files are committed, so that installing needs no compiler; a test regenerates them and fails if
they differ.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PLAIN = ["protos/pate/v1/vote.proto"]
_SERVICES = ["protos/pate/v1/student.proto"]


def generate(into: Path) -> None:
    """Write the generated code of all .proto files below ``into``."""
    from grpc_tools import protoc

    common = ["protoc", f"--proto_path={ROOT}", f"--python_out={into}", f"--pyi_out={into}"]
    runs = [[*common, *_PLAIN], [*common, f"--grpc_python_out={into}", *_SERVICES]]
    for arguments in runs:
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc refused {' '.join(arguments)}")


if __name__ == "__main__":
    generate(ROOT)
    sys.exit(0)
