#!/usr/bin/env python3
"""`pate-healthy URL`: health check of a role in a container.

Exit code 0 if the URL answers with 200, else 1 and one line. Only loopback URLs are allowed. It uses only the
standard library and starts quickly: it runs often.
"""

import http.client
import ssl
import sys
from urllib.parse import urlsplit

_PATIENCE_S = 4


def main(arguments: list[str]) -> int:
    """Send one request, and report the result."""
    url = urlsplit(arguments[0] if len(arguments) == 1 else "")
    if url.scheme not in ("http", "https") or url.hostname not in ("127.0.0.1", "::1"):
        return _said("usage: pate-healthy http[s]://127.0.0.1:PORT/PATH", 2)
    try:
        if url.scheme == "http":
            link = http.client.HTTPConnection(url.hostname, url.port, timeout=_PATIENCE_S)
        else:
            # Our own process on loopback: the name in its certificate does not matter.
            trust = ssl.create_default_context()
            trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
            link = http.client.HTTPSConnection(
                url.hostname, url.port, timeout=_PATIENCE_S, context=trust
            )
        link.request("GET", url.path)
        status = link.getresponse().status
        link.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return _said(f"no answer from {url.geturl()}: {error}", 1)
    return 0 if status == http.client.OK else _said(f"{url.geturl()} answers {status}", 1)


def _said(line: str, code: int) -> int:
    print(line, file=sys.stderr)  # noqa: T201 - this is the screen
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
